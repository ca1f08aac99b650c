"""Reports of `edgedeploy bench`: what changed between two of them beyond chance, and their page."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Command
from scipy import stats
from support.commands import output_of, refused
from test_bench_costs import COSTS, report, row

from edgedeploy.benchmarking.comparison import compare_reports, mann_whitney, read_report
from edgedeploy.benchmarking.page import compile_and_run, medians, page, spreads
from edgedeploy.benchmarking.report import Report, Skipped
from edgedeploy.benchmarking.turns import Costs
from edgedeploy.errors import SlowerError

FAST = [1.0 + 0.001 * turn for turn in range(10)]
SLOW = [1.2 + 0.001 * turn for turn in range(10)]


def entry(turns: list[float], engine: str = "edgedeploy", **fields: Any) -> dict[str, Any]:
    stated = {"model": "net", "engine": engine, "version": "1", "device": "CPU", "threads": 2}
    return {**stated, "median_ms": float(np.median(turns)), "turns_ms": turns, **fields}


def write(path: Path, *rows: dict[str, Any], **machine: Any) -> Path:
    path.write_text(json.dumps({"machine": {"cpu": "Example", "load": 0.1, **machine}, "rows": rows}))
    return path


@pytest.mark.parametrize(("first", "second"), [(3, 4), (10, 10), (2, 9), (1, 1), (8, 1)])
def test_probabilities_of_small_samples_are_those_of_scipy(first: int, second: int) -> None:
    random = np.random.default_rng(first * 100 + second)
    for shift in (0.0, 0.3, 2.0):
        one, other = random.normal(0, 1, first), random.normal(shift, 1, second)
        wanted = stats.mannwhitneyu(one, other, alternative="two-sided", method="exact").pvalue
        assert mann_whitney(one.tolist(), other.tolist()) == pytest.approx(wanted)


def test_probabilities_of_large_samples_are_those_of_scipy() -> None:
    random = np.random.default_rng(0)
    one, other = random.normal(0, 1, 60), random.normal(0.3, 1, 50)
    wanted = stats.mannwhitneyu(one, other, alternative="two-sided", method="asymptotic").pvalue
    assert mann_whitney(one.tolist(), other.tolist()) == pytest.approx(wanted)
    assert mann_whitney([], [1.0]) is None
    assert mann_whitney([1.0] * 5, [1.0] * 5) == 1.0


def test_probabilities_are_corrected_for_their_number_as_holm_does(tmp_path: Path) -> None:
    """0.008, 0.2 and 1, of three, two and one that are left."""
    turns = [1.0, 2.0, 3.0, 4.0, 5.0]
    shifted = {"a": [each + 10 for each in turns], "b": [2.5, 4.5, 5.5, 6.5, 7.5], "c": [each + 0.1 for each in turns]}
    before = write(tmp_path / "a.json", *(entry(turns, engine) for engine in shifted))
    after = write(tmp_path / "b.json", *(entry(values, engine) for engine, values in shifted.items()))
    found = {each.engine: each.p for each in compare_reports(read_report(before), read_report(after)).changes}
    single = {engine: mann_whitney(turns, values) for engine, values in shifted.items()}
    assert found["a"] == pytest.approx(3 * (single["a"] or 0))
    assert found["b"] == pytest.approx(min(1, 2 * (single["b"] or 0)))
    assert found["c"] == pytest.approx(single["c"])


def test_what_changed_is_shown_with_what_is_gone_and_new(command: Command, tmp_path: Path) -> None:
    before = write(tmp_path / "a.json", entry(FAST), entry(FAST, "mnn"), entry(FAST, "ncnn"))
    after = write(tmp_path / "b.json", entry(SLOW), entry(FAST, "mnn"), entry(FAST, batch=4))
    out = output_of(command, "bench", "compare", before, after)
    lines = {line.split()[1]: line.split() for line in out.splitlines() if line.startswith("net ")}
    assert lines["edgedeploy"][2:5] == ["1.00", "1.20", "1.199"]
    assert lines["edgedeploy"][-1] == "slower"
    assert lines["mnn"][-3:] == ["no", "difference", "found"]
    assert "gone: net, ncnn, 2 threads" in out
    assert "new: net (batch 4), edgedeploy, 2 threads" in out
    assert "note:" not in out


def test_it_ends_with_a_code_if_edgedeploy_became_slower_than_is_allowed(command: Command, tmp_path: Path) -> None:
    before = write(tmp_path / "a.json", entry(FAST), entry(FAST, "mnn"))
    slower = write(tmp_path / "b.json", entry(SLOW), entry(FAST, "mnn"))
    theirs = write(tmp_path / "c.json", entry(FAST), entry(SLOW, "mnn"))
    code, out, err = command("bench", "compare", before, slower, "--fail-above", 1.05)
    assert code == SlowerError.exit_code == 28
    assert "slower than 1.05 times the time before on net" in err
    assert "slower" in out
    assert command("bench", "compare", before, slower, "--fail-above", 1.3)[0] == 0
    assert command("bench", "compare", slower, before, "--fail-above", 1.05)[0] == 0
    assert command("bench", "compare", before, theirs, "--fail-above", 1.05)[0] == 0
    assert command("bench", "compare", before, theirs, "--fail-above", 1.05, "--engine", "mnn")[0] == 28
    code, out, _ = command("bench", "compare", before, slower, "--fail-above", 1.05, "--json")
    assert (code, json.loads(out)["error"]["code"]) == (28, 28)


def test_what_may_be_chance_fails_nothing(command: Command, tmp_path: Path) -> None:
    before = write(tmp_path / "a.json", entry([1.0, 1.3, 1.1, 1.4]))
    after = write(tmp_path / "b.json", entry([1.2, 1.5, 1.25, 1.05]))
    assert command("bench", "compare", before, after, "--fail-above", 1.01)[0] == 0


def test_differences_between_the_reports_themselves_are_pointed_out(command: Command, tmp_path: Path) -> None:
    before = write(tmp_path / "a.json", entry([1.0, 1.1]), load=3.5)
    after = write(tmp_path / "b.json", entry([1.0, 1.1], version="2"), cpu="Another")
    _, out, _ = command("bench", "compare", before, after, "--json")
    said = json.loads(out)
    assert said["changes"][0]["real"] is False
    assert said["notes"] == [
        "the reports are of different processors: Example, and Another",
        "other programs were running: load 3.5 and 0.1",
        "other versions of edgedeploy",
        "2 rounds are too few to tell 1 change from chance: use --rounds 10 or more",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "JSON"),
        ("[]", "must be an object"),
        ("{}", "machine: must be given"),
        ('{"machine": {}, "rows": [{}]}', "rows.0.model"),
        (json.dumps({"machine": {}, "rows": [entry(FAST, median_ms=0)]}), "rows.0.median_ms"),
        (json.dumps({"machine": {}, "rows": [entry(FAST, median_ms=float("nan"))]}), "median_ms"),
        ("[" * 100_000, "JSON"),
    ],
    ids=["empty", "list", "no fields", "no model", "no time", "not a number", "nested"],
)
def test_what_is_no_report_is_refused(command: Command, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.json").write_text(content)
    err = refused(command, 7, "bench", "compare", tmp_path / "a.json", tmp_path / "a.json")
    assert "is not a report of edgedeploy bench" in err
    assert message in err


def test_a_file_that_is_not_there_is_named(command: Command, tmp_path: Path) -> None:
    assert "a.json" in refused(command, 7, "bench", "compare", tmp_path / "a.json", tmp_path / "b.json")


# The page about a benchmark: its charts, its tables, and what a hostile name can do to it.

HOSTILE = "</script><script>alert(1)</script>\u202e"


@pytest.fixture
def found() -> Report:
    return report(row("edgedeploy"), row("onnxruntime", Costs(load_s=1.0)), row("edgedeploy", COSTS, 16))


def embedded(text: str) -> object:
    [said] = re.findall(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)
    return json.loads(said)


def test_there_is_a_bar_for_each_engine_on_each_network_and_batch(found: Report) -> None:
    drawn = medians(found)
    assert re.findall("<title>(.*?)</title>", drawn) == [
        "edgedeploy on net (batch 4): 2.00 ms",
        "edgedeploy on net (batch 16): 2.00 ms",
        "onnxruntime on net (batch 4): 2.00 ms",
    ]
    assert "net (batch 16)" in drawn


def test_engines_that_compile_stand_with_both_times(found: Report) -> None:
    drawn = compile_and_run(found)
    assert "edgedeploy on net (batch 4): 1.50 s, then 2.00 ms" in drawn
    assert "onnxruntime on" not in drawn
    for rows in ([row("onnxruntime", Costs())], [row("edgedeploy"), row("onnxruntime", Costs())]):
        assert compile_and_run(report(*rows)) is None  # one point alone says no more than the table


def test_there_is_a_box_for_each_engine(found: Report) -> None:
    drawn = spreads(found, "net (batch 4)")
    assert drawn.count('class="box"') == 2
    assert "onnxruntime: 2.00 ms of 3 inferences" in drawn


def test_the_page_says_all_that_the_report_holds(found: Report) -> None:
    text = page(found)
    assert embedded(text) == json.loads(json.dumps(found.to_dict()))
    assert "In geometric means, edgedeploy takes 1.00 of the time of onnxruntime" in text
    for said in ("Example", "2 rounds", "net (batch 16)", "take turns", "onnxruntime 1.0 on CPU"):
        assert said in text
    assert text.count("<svg") == 4


def test_a_hostile_name_stays_text(found: Report) -> None:
    bad = report(*found.rows, row(HOSTILE))
    bad.skipped.append(Skipped("ncnn", [HOSTILE], HOSTILE))
    bad.skipped.append(Skipped("mnn", ["net"], f"`pip install {HOSTILE}` brings it"))
    text = page(bad)
    assert "<code>pip install &lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "`" not in text.partition('<script type="application/json"')[0]
    assert "<script>" not in text
    assert "\u202e" not in text
    assert json.loads(json.dumps(embedded(text))) == json.loads(json.dumps(bad.to_dict()))


def test_a_report_without_any_other_engine_has_a_page() -> None:
    assert "No other engine was measured" in page(report(row("edgedeploy", Costs())))


def test_an_unwritable_page_is_refused_first(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refused(command, 10, "bench", "digits", "--report", tmp_path / "no folder" / "out.html")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "edgedeploy[report]" in refused(command, 12, "bench", "digits", "--report", tmp_path / "out.html")
