"""The sweep of popular networks: benchmarks/sweep.py and the page that it writes."""

import ast
from argparse import Namespace
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
import sweep_measure
from layers import Layer
from results import read_results, write_results
from sweep_measure import measure_all, results_of
from sweep_networks import SUFFIXES, Case, Network, read_cases
from sweep_page import page, read_page
from sweep_result import Result

BENCHMARKS = Path(sweep_measure.__file__).parent
NETWORK = Network("own", "layer", exporters=("legacy", "dynamo", "pt2"))
LEGACY = Case(NETWORK, "legacy")


def arguments(folder: Path, **others: object) -> Namespace:
    usual = {"processes": 1, "rounds": 2, "threads": 1, "output": None, "remark": "", "keep": False, "resume": True}
    return Namespace(**{"folder": folder, "json": folder / "results.json", **usual, **others})


def save(folder: Path) -> None:
    onnx.save(Layer(8, 16, (20, 20), 3).model(), LEGACY.file(folder))


def test_the_list_has_a_hundred_networks_of_packages_and_every_own_one_has_a_function() -> None:
    cases = read_cases()
    assert len({(case.network.family, case.network.name) for case in cases if case.network.family != "own"}) >= 100
    assert len({case.name for case in cases}) == len(cases)
    assert {case.exporter for case in cases} == set(SUFFIXES)
    source = ast.parse((BENCHMARKS / "networks" / "pytorch.py").read_text(encoding="utf-8"))
    functions = {each.name for each in source.body if isinstance(each, ast.FunctionDef) and each.name[0] != "_"}
    assert {case.network.name for case in cases if case.network.family == "own"} == functions


def test_the_page_in_the_docs_shows_networks_of_the_list() -> None:
    text = (BENCHMARKS.parent / "docs" / "networks.md").read_text(encoding="utf-8")
    shown = set()
    for part in text.split("\n## ")[1:]:
        family, *lines = part.splitlines()
        rows = [line.split(" | ") for line in lines if line.startswith("| ") and not line.startswith("| network ")]
        shown |= {f"{family}.{network[2:]}.{exporter}" for network, exporter, *_ in rows}
    assert shown
    assert shown <= {case.name for case in read_cases()}


def test_onnxruntime_runs_the_file_itself_or_the_same_network_of_another_exporter(tmp_path: Path) -> None:
    legacy, dynamo, program = (Case(NETWORK, exporter) for exporter in NETWORK.exporters)
    assert program.onnx(tmp_path) is None
    for case in (legacy, dynamo, program):
        case.file(tmp_path).touch()
    found = [case.onnx(tmp_path) for case in (legacy, dynamo, program)]
    assert found == [case.file(tmp_path) for case in (legacy, dynamo, legacy)]


@pytest.mark.compiles
def test_a_network_is_built_and_measured_beside_onnxruntime_with_the_same_outputs(tmp_path: Path) -> None:
    save(tmp_path)
    [result] = results_of([LEGACY], tmp_path, rounds=2, threads=2)
    assert (result.outcome, result.message, result.unmeasured) == ("built", "", "")
    assert 0.5 < result.ratio / (result.ours_ms / result.onnxruntime_ms) < 2
    assert result.difference < 1e-4
    assert 0 <= result.scalar <= result.general < 1


@pytest.mark.compiles
def test_a_refusal_is_its_message_in_one_line(tmp_path: Path) -> None:
    opsets = '<ir_version: 8, opset_import: ["": 13, "unknown": 1]>'
    model = onnx.parser.parse_model(f"{opsets} graph (float[1, 4] x) => (float[1, 4] y) {{ y = unknown.Strange(x) }}")
    onnx.save(model, LEGACY.file(tmp_path))
    [result] = results_of([LEGACY], tmp_path, rounds=2)
    assert result.outcome == "refused"
    assert "Strange" in result.message
    assert "\n" not in result.message
    assert result.ratio is None


@pytest.mark.compiles
def test_a_network_that_takes_too_long_is_ended_and_said_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_measure, "DEADLINE_S", 1e-3)
    save(tmp_path)
    [result] = results_of([LEGACY], tmp_path, rounds=2)
    assert (result.outcome, result.message) == ("crash", "it took longer than 0.001 s")


def test_a_run_goes_on_where_it_was_ended_and_names_what_was_not_exported(tmp_path: Path) -> None:
    known, refused = Result(LEGACY.name, "built", ratio=0.5), Case(NETWORK, "dynamo")
    LEGACY.file(tmp_path).write_bytes(b"is not read again")
    refused.refusal(tmp_path).write_text("TypeError: no such operator", encoding="utf-8")
    write_results(tmp_path / "results.json", [known])
    measure_all([LEGACY, refused, Case(NETWORK, "pt2")], arguments(tmp_path, output=tmp_path / "page.md"))
    found = read_results(tmp_path / "results.json", Result)
    assert [each.name for each in found] == [LEGACY.name, refused.name]
    assert (found[0].ratio, found[1].outcome, found[1].message) == (0.5, "not exported", "TypeError: no such operator")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "| layer | dynamo | not exported |  |  |  |  |  |  | TypeError: no such operator |" in text
    assert "1 network of the list has no result yet." in text


def test_the_page_counts_outcomes_and_shows_medians_and_geometric_means() -> None:
    slow = [("resize", "general", True, 0.3), ("mean", None, True, 0.001), ("softmax", "general", False, 0.2)]
    results = [
        Result("own.a.legacy", "built", ours_ms=1.0, ratio=0.5, parallel_ratio=1.2, general=0.25, scalar=0.0),
        Result("own.b.legacy", "built", ours_ms=2.0, ratio=2.0, general=0.5, scalar=0.301, functions=slow),
        Result("timm.c.legacy", "refused", "an operator | is not known"),
    ]
    lines = page(results, [each.name for each in results], 9, 2, "Under load.").splitlines()
    assert "| legacy | 3 | 2 | 1 | 0 | 0 | 2 | 1.25 | 1.00 | 1 | 1 | 1.20 | 1.20 | 1 |  |" in lines
    assert "| a | legacy | yes | 1.00 | 0.50 | **1.20** |  | 25% |  |  |" in lines
    assert "| b | legacy | yes | 2.00 | **2.00** |  |  | 50% | 30% (resize 30%) |  |" in lines
    assert "| c | legacy | refused |  |  |  |  |  |  | an operator \\| is not known |" in lines
    assert "**Under load.**" in lines
    assert lines.index("## own") < lines.index("## timm")


def test_rows_of_a_page_are_read_as_they_were_written(tmp_path: Path) -> None:
    slow = [("resize", "general", True, 0.3), ("softmax", "general", True, 0.2)]
    results = [
        Result(
            "own.a.legacy", "built", ours_ms=1.0, ratio=2.0, parallel_ratio=1.3, general=0.5, scalar=0.5, functions=slow
        ),
        Result("own.a.pt2", "built", ours_ms=1.0, ratio=0.5, to_legacy=1.2, general=0.25, unmeasured="no | file"),
        Result("timm.c.legacy", "refused", "an operator | is <not> known"),
    ]
    names = [each.name for each in results]
    (tmp_path / "page.md").write_text(page(results, names, 9, 2, None), encoding="utf-8")
    assert page(read_page(tmp_path / "page.md"), names, 9, 2, None) == page(results, names, 9, 2, None)
    assert read_page(tmp_path / "no page.md") == []


def test_a_page_keeps_its_rows_beside_new_ones(tmp_path: Path) -> None:
    known, *_, listed = read_cases()
    (tmp_path / "page.md").write_text(page([Result(known.name, "built", ratio=0.5)], [known.name], 9, 2, None), "utf-8")
    write_results(tmp_path / "results.json", [Result(listed.name, "built", ratio=0.7)])
    measure_all([listed], arguments(tmp_path, output=tmp_path / "page.md", keep=True))
    assert [each.name for each in read_page(tmp_path / "page.md")] == [known.name, listed.name]


@pytest.mark.compiles
@pytest.mark.slow
def test_exporters_are_compared_with_the_older_one_in_the_same_turns(tmp_path: Path) -> None:
    save(tmp_path)
    dynamo = Case(NETWORK, "dynamo")
    dynamo.file(tmp_path).write_bytes(LEGACY.file(tmp_path).read_bytes())
    [result] = results_of([dynamo], tmp_path, rounds=3)
    assert (result.name, result.outcome, result.unmeasured) == (dynamo.name, "built", "")
    assert 0.4 < result.to_legacy < 2.5


def test_what_training_begins_with_at_zero_is_moved_and_statistics_fit_random_inputs() -> None:
    torch = pytest.importorskip("torch")
    from sweep_export import made
    from sweep_networks import Input

    network = Network("own", "keyword_conv1d", [Input((1, 40, 101))])
    model, (value,) = made(network)
    norms = [each for each in model.modules() if isinstance(each, torch.nn.BatchNorm1d)]
    spreads: list[float] = []
    for each in norms:
        assert each.weight.min() != each.weight.max()
        each.register_forward_hook(lambda norm, given, result: spreads.append(float(result.std() / norm.weight.mean())))
    with torch.no_grad():
        outputs, again = model(value), made(network)[0](value)
    assert len(spreads) == len(norms) > 0
    assert all(0.5 < spread < 2 for spread in spreads)
    np.testing.assert_array_equal(outputs, again)
