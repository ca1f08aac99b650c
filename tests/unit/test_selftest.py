"""Self-tests: what a package is tested with, within which tolerances, and what a build so finds."""

import dataclasses
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import Command
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.agents import packaged
from support.commands import json_of, output_of, refusal
from support.networks import Graph, begun, tiny
from tvm import relax

from edgedeploy.errors import NumericalError, PackageError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.frontends.onnx.importer import TRANSLATIONS
from edgedeploy.frontends.translation import Builder
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.package.archive import read_package, write_package
from edgedeploy.package.entry import Case, SelfTest
from edgedeploy.runtime.session import Session
from edgedeploy.selftest import checking
from edgedeploy.selftest.recording import recorded
from edgedeploy.selftest.tolerance import (
    EXACT,
    TOLERANCE,
    Recorded,
    difference_of,
    error_limit,
    fractions,
    is_steady,
    largest_of,
    steadiest,
    step_of,
    tolerance_of,
    usual_tolerance,
)
from edgedeploy.target.board import load_board
from edgedeploy.zoo.source import Source

pytestmark = pytest.mark.compiles

INT64, BOOL = TensorProto.INT64, TensorProto.BOOL


def cases_of(path: Path) -> dict[str, Recorded]:
    return recorded(read_onnx(path))


def written(make: Callable[[Graph], str]) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        graph = Graph()
        return graph.save(path, make(graph))

    return write


is_infinite = written(lambda graph: graph.node("IsInf", graph.input("x", [4, 6]), detect_negative=0))
largest = written(lambda graph: graph.node("ReduceMax", graph.input("x", [4, 6]), axes=[1]))
squeezed = written(lambda graph: graph.node("Squeeze", graph.input("x", [1, 4, 1]), graph.weight(np.array([2]))))
gathered = written(lambda graph: graph.node("Gather", graph.normal(5, 3), graph.input("i", [2, 8], INT64)))
softmax = written(lambda graph: graph.node("Softmax", graph.input("x", [8, 5])))
largest_of_all = written(lambda graph: graph.node("GlobalMaxPool", graph.input("x", [1, 4, 7, 8])))
strides_beyond_the_kernel = written(
    lambda graph: graph.conv(graph.input("x", [1, 1, 17, 18]), 1, 1, 3, auto_pad="SAME_UPPER", strides=[10, 10])
)


@written
def one_hot(graph: Graph) -> str:
    depth, values = graph.weight(np.array(6)), graph.weight(np.array([0, 1], np.float32))
    return graph.node("OneHot", graph.input("i", [8], INT64), depth, values)


@written
def as_large_as_before(graph: Graph) -> str:
    scales = graph.weight(np.array([1, 1, 1.1, 1.1], np.float32))
    return graph.node("Resize", graph.input("x", [1, 2, 6, 9]), "", scales, mode="linear")


@written
def masked_attention(graph: Graph) -> str:
    """Softmax of what a mask lets pass; equal shares in rows where it lets nothing, whose maximum is -inf."""
    lowest = graph.weight(np.array(-np.inf, np.float32))
    scores = graph.node("Where", graph.input("mask", [6, 6], BOOL), graph.input("x", [6, 6]), lowest)
    most = graph.node("ReduceMax", scores, axes=[1])
    nothing = graph.node("Equal", most, lowest)
    shift = graph.node("Where", nothing, graph.weight(np.array(0, np.float32)), most)
    shares = graph.node("Exp", graph.node("Sub", scores, shift))
    total = graph.node("Max", graph.node("ReduceSum", shares, keepdims=1), graph.weight(np.array(1e-9, np.float32)))
    equal = graph.weight(np.full((1, 6), 1 / 6, np.float32))
    return graph.node("Where", nothing, equal, graph.node("Div", shares, total))


def starting_at_the_lowest_float(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    found = build.reduce("max", inputs[0], list(attr["axes"]), keepdims=bool(attr.get("keepdims", 1)))
    return build.maximum(found, np.finfo(np.float32).min)


def without_its_maximum(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    shares = build.exp(inputs[0])
    return build.divide(shares, build.reduce("sum", shares, [-1], keepdims=True))


def in_its_depth(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    return build.cast(build.equal(build.expand_dims(inputs[0], axis=-1), np.arange(6)), "float32")


# Mistakes of translations, each of a kind that random inputs do not show.
MISTAKES: dict[str, tuple[Callable[[Path], Path], str, Callable[..., Any], str]] = {
    "either infinity": (is_infinite, "IsInf", lambda _, inputs, __: relax.op.isinf(inputs[0]), "for infinite inputs"),
    "a maximum that is finite": (largest, "ReduceMax", starting_at_the_lowest_float, "for infinite inputs"),
    "a mask that is all": (masked_attention, "ReduceMax", starting_at_the_lowest_float, "for edge inputs"),
    "indices from the end": (
        *(gathered, "Gather", lambda _, inputs, __: relax.op.take(inputs[0], inputs[1], 0, mode="clip")),
        "for edge inputs",
    ),
    "a one from the end": (one_hot, "OneHot", in_its_depth, "for edge inputs"),
    "exp of large values": (softmax, "Softmax", without_its_maximum, "for edge inputs"),
    "what a third program confirms": (
        *(softmax, "Softmax", without_its_maximum),
        r"the reference evaluator of onnx \S+ agrees with onnxruntime",
    ),
    "another shape": (
        *(squeezed, "Squeeze", lambda _, inputs, __: relax.op.reshape(inputs[0], [4, 1])),
        "it is 1x4 of float32, not 4x1 of float32",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_build_finds_a_wrong_operator(tmp_path: Path, mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write, operator, wrong, said = MISTAKES[mistake]
    path = write(tmp_path / "net.onnx")
    monkeypatch.setitem(TRANSLATIONS, operator, wrong)
    with pytest.raises(NumericalError, match=said):
        packaged(path)
    assert not path.with_suffix(".tar.gz").exists()


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        ("Conv", r"onnx \S+ differs from onnxruntime \S+ in operator Conv of node '\w+'"),
        ("Neg", r"agrees with onnxruntime \S+ about each operator that is small enough to ask about \(1\)"),
    ],
)
def test_of_large_networks_a_third_program_is_asked_about_each_small_operator(
    tmp_path: Path, operator: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph()
    large = graph.conv(graph.input("x", [1, 8, 47, 48]), 8, 8, 3, pads=[1, 1, 1, 1])
    strided = graph.conv(large, 8, 2, 3, auto_pad="SAME_UPPER", strides=[10, 10])
    made = strided if operator == "Conv" else graph.node("Neg", large)
    monkeypatch.setattr(checking, "MOST_GFLOP_OF_SECOND_OPINION", 1e-3)
    monkeypatch.setitem(TRANSLATIONS, "Neg", lambda _, inputs, __: relax.op.abs(inputs[0]))
    with pytest.raises(NumericalError) as refused:
        packaged(graph.save(tmp_path / "net.onnx", made))
    assert re.search(said, str(refused.value.why))


@pytest.mark.parametrize(
    "write",
    [strides_beyond_the_kernel, largest_of_all, as_large_as_before],
    ids=["strides_beyond_the_kernel", "largest_of_all", "as_large_as_before"],
)
def test_a_third_program_decides_between_reference_and_code(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    """onnxruntime 1.32 is wrong about these; where it is right, it stays the reference."""
    manifest, contents = read_package(packaged(write(tmp_path / "net.onnx")).path)
    assert manifest.checked.how == "here"
    assert manifest.selftest.reference.startswith(("the reference evaluator of onnx", "onnxruntime"))
    case = manifest.selftest.cases[0]
    [taken], [expected] = ([contents[name] for name in names] for names in (case.inputs, case.outputs))
    evaluator = ReferenceEvaluator(str(tmp_path / "net.onnx"))
    given = np.frombuffer(taken, np.float32).reshape(manifest.inputs[0].shape)
    [wanted] = evaluator.run(None, {"x": given})
    np.testing.assert_allclose(np.frombuffer(expected, np.float32), wanted.ravel(), rtol=1e-5)


@pytest.mark.parametrize("write", [gathered, one_hot], ids=["gathered", "one_hot"])
def test_sound_networks_pass(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    package = packaged(write(tmp_path / "net.onnx"))
    assert [case.name for case in package.manifest.selftest.cases][:2] == ["random", "edge"]
    assert package.error <= 1


def test_indices_lie_in_their_table_and_reach_both_ends(tmp_path: Path) -> None:
    cases = cases_of(gathered(tmp_path / "net.onnx"))
    assert set(np.unique(cases["random"].inputs["i"])) <= set(range(5))
    assert set(np.unique(cases["edge"].inputs["i"])) == {0, 4, -1, -5}


def test_random_inputs_of_a_package_lie_in_their_tables_too(command: Command, tmp_path: Path) -> None:
    path = gathered(tmp_path / "net.onnx")
    package = packaged(path)
    assert package.manifest.inputs[0].below == 5
    table = numpy_helper.to_array(onnx.load(path).graph.initializer[0])
    for mode in ("random", "ones"):
        output_of(command, "run", package.path, "--fill-mode", mode, "--outputs", "out.npz")
        [rows] = dict(np.load("out.npz")).values()
        assert {tuple(row) for row in rows.reshape(-1, 3)} <= {tuple(row) for row in table}


def test_an_index_is_followed_through_other_operators(tmp_path: Path) -> None:
    graph = Graph()
    near = graph.node("Unsqueeze", graph.input("i", [4], TensorProto.INT32), graph.weight(np.array([0])))
    taken = graph.node("GatherElements", graph.normal(3, 4), graph.node("Cast", near, to=INT64), axis=0)
    cases = cases_of(graph.save(tmp_path / "net.onnx", taken))
    assert {int(value) for value in np.unique(cases["edge"].inputs["i"])} == {0, 2, -1, -3}


def test_places_to_write_to_are_not_named_twice(tmp_path: Path) -> None:
    graph = Graph()
    places, updates = graph.input("i", [4, 1], INT64), graph.input("u", [4, 3])
    path = graph.save(tmp_path / "net.onnx", graph.node("ScatterND", graph.normal(5, 3), places, updates))
    for case in cases_of(path).values():
        assert len(np.unique(case.inputs["i"] % 5)) == 4


def test_what_overflows_in_the_reference_is_left_out(tmp_path: Path) -> None:
    cases = cases_of(written(lambda graph: graph.node("Exp", graph.input("x", [6, 8])))(tmp_path / "net.onnx"))
    assert np.isfinite(cases["edge"].outputs["exp0"]).mean() >= 0.25
    assert set(np.unique(cases["edge"].inputs["x"])) >= {0.0, 1.0}


def test_networks_of_products_are_not_given_infinities(tmp_path: Path) -> None:
    cases = cases_of(tiny(tmp_path / "net.onnx"))
    assert list(cases) == ["random", "edge"]
    assert np.abs(cases["edge"].inputs["data"]).max() <= 4


def test_no_integer_is_divided_by_zero(tmp_path: Path) -> None:
    graph = Graph()
    names = [graph.input(name, [8], INT64) for name in "ab"]
    path = graph.save(tmp_path / "net.onnx", graph.node("Div", *names))
    for case in cases_of(path).values():
        assert (case.inputs["b"] > 0).all()


WITHIN_A_HALF = Case(name="random", inputs=[], outputs=[], usual=0, relative=[0], absolute=0.5, spread=[None])


@pytest.mark.parametrize(
    ("found", "expected", "sound"),
    [
        ([1.0, np.inf, -np.inf, np.nan], [1.0, np.inf, -np.inf, np.nan], True),
        ([1.25, np.inf], [1.0, np.inf], True),
        ([1.0, -np.inf], [1.0, np.inf], False),
        ([1.0, 3.4e38], [1.0, np.inf], False),
        ([1.0, np.inf], [1.0, 2.0], False),
        ([1.0, np.nan], [1.0, 2.0], False),
        ([1.0, 2.0], [1.0, np.nan], False),
        ([], [], True),
    ],
)
def test_infinities_and_nans_agree_with_the_same_alone(found: list[float], expected: list[float], sound: bool) -> None:
    given, wanted = {"y": np.array(found, np.float32)}, {"y": np.array(expected, np.float32)}
    assert (fractions(given, wanted, WITHIN_A_HALF)["y"] <= 1) is sound


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"shape": [1, 8]}, "it is 1x8x1x1 of float32, not 1x8 of float32"),
        ({"shape": [8, 1, 1, 1]}, "not 8x1x1x1"),
        ({"dtype": "int32"}, "not 1x8x1x1 of int32"),
    ],
)
def test_an_output_of_another_shape_or_dtype_is_refused(tmp_path: Path, changed: dict[str, Any], named: str) -> None:
    package = packaged(tiny(tmp_path / "net.onnx")).path
    manifest, contents = read_package(package)
    [output] = manifest.outputs
    write_package(package, manifest.model_copy(update={"outputs": [output.model_copy(update=changed)]}), contents)
    with pytest.raises(PackageError, match=named):
        Session.open(package).run({"data": np.ones((1, 3, 8, 8), np.float32)})


def test_scalars_stay_scalars(command: Command, tmp_path: Path) -> None:
    graph = Graph()
    doubled = graph.node("Mul", graph.input("x", []), graph.weight(np.array(2, np.float32)))
    more = graph.node("Add", graph.input("i", [], INT64), graph.weight(np.array(1)))
    output_of(command, "build", graph.save(tmp_path / "net.onnx", doubled, more))
    np.savez("in.npz", x=np.float32(1.5), i=np.int64(41))
    output_of(command, "run", "dist/local/net.tar.gz", "--inputs", "in.npz", "--outputs", "out.npz")
    found = np.load("out.npz")
    assert [(found[name].shape, found[name].item()) for name in found] == [((), 3.0), ((), 42)]
    assert command("run", "dist/local/net.tar.gz", "--repeat", "2", "--print-top", "1")[0] == 0
    np.savez("in.npz", x=np.zeros(1, np.float32), i=np.int64(41))
    err = refusal(command, 7, "run", "dist/local/net.tar.gz", "--inputs", "in.npz")
    assert "has shape 1" in err
    assert "a scalar" in err


@pytest.mark.cold_cache
def test_a_build_can_go_unchecked_and_says_so(command: Command, tmp_path: Path) -> None:
    assert "checked: no" in output_of(command, "build", tiny(tmp_path / "net.onnx"), "--no-check")
    [said] = json.loads(command("package", "show", "dist/local/net.tar.gz", "--json")[1].join("[]"))
    assert said["checked"] == {"how": "no", "emulator": None}


def test_without_an_emulator_it_is_compiled_for_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, *rest: None if "qemu" in name else found(name, *rest))
    package = packaged(softmax(tmp_path / "net.onnx"), "rpi4")
    assert package.manifest.checked.how == "compiled for this machine"
    assert package.manifest.abi.machine == "EM_AARCH64"
    assert package.error is not None
    monkeypatch.setitem(TRANSLATIONS, "Softmax", without_its_maximum)
    path = softmax(tmp_path / "wrong.onnx")
    with pytest.raises(NumericalError, match="for edge inputs"):
        packaged(path, "rpi4")
    assert not path.with_suffix(".tar.gz").exists()


@pytest.mark.slow
def test_long_work_is_not_emulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedeploy.selftest.checking.MOST_EMULATED_GFLOP", 1e-9)
    assert packaged(tiny(tmp_path / "net.onnx"), "rpi4").manifest.checked.how == "compiled for this machine"


# Tolerances: as narrow as usual, but where the reference's own kernels differ by more; never wider than that shows.

LOCAL = load_board("local")


def cancelling(path: Path, part: float = 4e-3, scale: float = 1.0) -> Path:
    """The small difference of two large convolutions, which makes their rounding errors 1 / part times as large.

    A second output is a convolution alone; its values are multiplied by `scale`.
    """
    graph, data = begun(1, 64, 12, 12)
    weights = graph.random.standard_normal((32, 64, 3, 3)).astype(np.float32)
    changed = weights + part * graph.random.standard_normal(weights.shape).astype(np.float32)
    first, second = (graph.node("Conv", data, graph.weight(each), pads=[1] * 4) for each in (weights, changed))
    # Not of one convolution, which the compiler could make of both: what is in between cannot be folded.
    small = graph.node("Sub", graph.node("Relu", first), graph.node("Relu", second))
    steady = graph.node("Conv", data, graph.weight((scale * weights).astype(np.float32)), pads=[1] * 4)
    return graph.save(path, small, steady)


PROB = TensorSpec(name="prob", shape=[1, 4], dtype="float32")


def test_a_sound_network_that_rounding_changes_by_more_is_built_and_says_so(command: Command, tmp_path: Path) -> None:
    [said] = json_of(command, "build", cancelling(tmp_path / "net.onnx"))
    case = next(case for case in said["tolerance"] if case["name"] == "random")
    sensitive, steady = case["relative"]
    assert case["usual"] == steady == TOLERANCE[0]
    assert TOLERANCE[0] < sensitive <= 10 * TOLERANCE[0]
    # Three times as much as kernels differ: of the spread two digits are stated, and of the tolerance, rounded up.
    unit, step = (10 ** (math.floor(math.log10(value)) - 1) for value in (case["spread"][0], sensitive))
    assert 0.95 * 3 * case["spread"][0] <= sensitive <= 3 * (case["spread"][0] + unit / 2) + step
    assert case["spread"][1] < 1e-5
    assert said["spread_to"] == "onnxruntime without graph optimisation"
    line = f"sub4 may differ by {sensitive:g} of its largest value for random inputs: {said['spread_to']} differs by "
    line += f"{case['spread'][0]:g}"
    assert line in command("package", "show", "dist/local/net.tar.gz")[1]
    assert f"tolerance: {line}" in command("build", tmp_path / "net.onnx")[1]


def test_with_the_usual_tolerance_alone_it_would_be_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedeploy.selftest.tolerance.MOST", 1.0)
    with pytest.raises(NumericalError, match=r"allowed \(0.0001 of its largest value, of which rounding alone changes"):
        packaged(cancelling(tmp_path / "net.onnx", part=1e-3))


def layers(path: Path, change: float, dtype: Any = np.float32) -> Path:
    """Three convolutions in one type, the weights of the second of which are too large by a part."""
    graph = Graph()
    value = graph.node("Cast", graph.input("data", [1, 3, 16, 16]), to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    for index, inputs in enumerate((3, 32, 32)):
        weights = graph.random.standard_normal((32, inputs, 3, 3)) * (1 + change * (index == 1)) / 9
        value = graph.node("Relu", graph.node("Conv", value, graph.weight(weights.astype(dtype)), pads=[1] * 4))
    return graph.save(path, graph.node("Cast", value, to=TensorProto.FLOAT))


@pytest.mark.parametrize(
    ("dtype", "change", "usual"),
    [
        (np.float32, 0.0, "0.0001"),
        (np.float32, 3e-4, "0.0001"),
        (np.float16, 0.0, "0.0091"),
        (np.float16, 3e-2, "0.0091"),
    ],
)
def test_a_layer_that_is_wrong_by_three_times_its_type_s_tolerance_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: Any, change: float, usual: str
) -> None:
    sound, disturbed = (read_onnx(layers(tmp_path / f"{part}.onnx", part, dtype)) for part in (0.0, change))
    monkeypatch.setattr(Source, "read", lambda self: dataclasses.replace(sound, module=disturbed.module))
    if not change:
        assert packaged(tmp_path / "0.0.onnx").manifest.selftest.relative == float(usual)
        return
    with pytest.raises(NumericalError, match=rf"differs by [23][.\d]* times what is allowed \({re.escape(usual)}"):
        packaged(tmp_path / "0.0.onnx")


def test_an_output_of_nothing_but_rounding_is_not_let_through(tmp_path: Path) -> None:
    path = cancelling(tmp_path / "net.onnx", part=1e-5)
    case = recorded(network := read_onnx(path))["random"]
    assert tolerance_of(network, LOCAL, case, network.outputs[0].name)[0] == 10 * TOLERANCE[0]
    with pytest.raises(NumericalError, match="rounding alone changes"):
        packaged(path)


def inference(spread: float, largest: float = 1.0) -> Recorded:
    return Recorded({}, {"y": np.array([largest], np.float32)}, {"y": spread})


def computing_in(*dtypes: str) -> Any:
    builder, given = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1,), "float32"))
    with builder.function("main", [given]):
        for dtype in dtypes:
            given = builder.emit(relax.op.exp(relax.op.astype(given, dtype)))
        builder.emit_func_output(given)
    return SimpleNamespace(quantised=False, half=None, module=builder.get())


FLOAT = computing_in("float32")
QUANTISED: Any = SimpleNamespace(quantised=True, half=None, module=FLOAT.module)


@pytest.mark.parametrize(
    ("spread", "largest", "wanted"),
    [
        (0.0, 1.0, 1e-4),
        (3e-5, 1.0, 1e-4),
        (1.23e-4, 1.0, 3.7e-4),  # two digits, and not less than three times
        (0.5, 1.0, 1e-3),
        (3e-7, 1e-5, 1e-4),  # within what is allowed for values near zero
        (0.0, 0.0, 1e-4),
    ],
)
def test_what_is_allowed_follows_the_reference_s_own_kernels(spread: float, largest: float, wanted: float) -> None:
    assert tolerance_of(FLOAT, LOCAL, inference(spread, largest), "y") == (pytest.approx(wanted), 1e-6)


@pytest.mark.parametrize(
    ("dtypes", "board", "wanted"),
    [
        (["float16"], "local", (9.1e-3, 9.1e-5)),  # sqrt(2^13) times that of float32, as its epsilon is 2^13 times
        (["float16", "float32"], "local", (9.1e-3, 9.1e-5)),
        (["bfloat16"], "local", (2.6e-2, 2.6e-4)),
        (["float64"], "local", (1e-4, 1e-6)),
        (["float32"], "nuc-opencl", (1e-3, 1e-6)),
        (["float16"], "nuc-opencl", (9.1e-3, 9.1e-5)),
    ],
)
def test_the_coarsest_type_limits_the_digits(dtypes: list[str], board: str, wanted: tuple[float, float]) -> None:
    assert tolerance_of(computing_in(*dtypes), load_board(board), inference(0.0), "y") == wanted  # type: ignore[arg-type]


def test_what_is_only_kept_in_half_precision_has_the_usual_tolerance(tmp_path: Path) -> None:
    graph = Graph()
    data = graph.input("data", [1, 8, 6, 6], TensorProto.FLOAT16)
    weights = graph.weight(graph.random.standard_normal((8, 8, 3, 3)).astype(np.float16))
    wide = [graph.node("Cast", each, to=TensorProto.FLOAT) for each in (data, weights)]
    network = read_onnx(graph.save(tmp_path / "net.onnx", graph.node("Conv", *wide)))
    assert usual_tolerance(network, LOCAL) == TOLERANCE


@pytest.mark.parametrize(("spread", "wanted"), [(0.0, 0.2), (0.02, 0.26), (0.05, 0.3)])
def test_quantised_networks_may_differ_by_two_steps_and_by_what_steps_upstream_do(spread: float, wanted: float) -> None:
    outputs = {"y": np.linspace(0, 1, 11, dtype=np.float32)}
    case = Recorded({}, outputs, {"y": spread})
    assert step_of(outputs["y"]) == pytest.approx(0.1)
    assert tolerance_of(QUANTISED, LOCAL, case, "y") == (pytest.approx(wanted), 1e-6)
    assert error_limit(QUANTISED, LOCAL, [case]) == np.inf


def test_inputs_whose_outputs_rounding_alone_changes_too_much_check_no_quantised_network() -> None:
    steady, restless = inference(0.09), inference(0.11)
    assert is_steady(QUANTISED, steady)
    assert not is_steady(QUANTISED, restless)
    assert steadiest(QUANTISED, [restless, steady]) is steady
    assert steadiest(QUANTISED, [restless]) is None


@pytest.mark.parametrize(("quantised", "apart", "rms"), [(True, 0.09, False), (True, 0.5, True), (False, 0.5, False)])
def test_a_few_restless_values_of_many_are_compared_by_root_mean_squares(
    quantised: bool, apart: float, rms: bool
) -> None:
    wanted = np.where(np.arange(1000) % 2, np.float32(1), np.float32(-1))
    other = np.where(np.arange(1000) < 10, np.float32(apart), np.float32(0)) + wanted
    network = SimpleNamespace(
        **vars(FLOAT) | {"quantised": quantised}, inputs=[SimpleNamespace(name="x")], reference_name=""
    )
    network.other_kernels = [lambda inputs: {"y": other}]
    case = Recorded.of(network, {}, {"y": wanted})  # type: ignore[arg-type]
    assert case.spread["y"] == pytest.approx(apart / 10 if rms else apart)
    assert case.measures == ({"y": "rms"} if rms else {})
    if rms:
        tolerance, absolute = tolerance_of(QUANTISED, LOCAL, case, "y")
        assert tolerance == pytest.approx(0.3)  # two steps are more
        case_of = WITHIN_A_HALF.model_copy(update={"relative": [tolerance], "absolute": absolute, "rms": ["y"]})
        assert fractions({"y": other}, {"y": wanted}, case_of)["y"] == pytest.approx(0.05 / 0.3, rel=1e-4)
        assert fractions({"y": -wanted}, {"y": wanted}, case_of)["y"] > 6
        assert fractions({"y": np.where(other < 1, np.nan, other)}, {"y": wanted}, case_of)["y"] == np.inf


def test_rows_are_found_wherever_they_are() -> None:
    expected = np.random.default_rng(0).standard_normal((1, 100, 4)).astype(np.float32)
    found = expected[:, ::-1].copy()
    found[:, :50] += 1
    assert difference_of(found, expected, "rows") == (0.0, largest_of(expected))
    found[:, 50] = np.nan
    assert difference_of(found, expected, "rows")[0] > 0.01  # type: ignore[index]
    assert difference_of(np.full_like(found, np.nan), expected, "rows")[0] == np.inf  # type: ignore[index]


@pytest.mark.parametrize(("count", "layer", "by_rows"), [(60, True, True), (60, False, False), (20, True, False)])
def test_what_a_network_goes_on_with_may_be_chosen_otherwise(
    tmp_path: Path, count: int, layer: bool, by_rows: bool
) -> None:
    graph = Graph(opset=17)
    chosen = graph.node("TopK", graph.input("x", [80, 40]), graph.weight(np.array([count])), axis=0, outputs=2)
    path = graph.save(tmp_path / "net.onnx", graph.node("MatMul", chosen, graph.normal(40, 8)) if layer else chosen)
    network = read_onnx(path)
    case, name = recorded(network)["random"], network.outputs[0].name
    assert case.measures == ({name: "rows"} if by_rows else {})
    assert tolerance_of(network, LOCAL, case, name)[0] == (1e-3 if by_rows else 1e-4)


def test_those_computed_in_integers_throughout_must_be_equal() -> None:
    assert tolerance_of(QUANTISED, LOCAL, inference(0.01), "y", exact=True) == EXACT


def test_the_more_rounding_does_the_less_may_be_added_to_it() -> None:
    steady, sensitive = (error_limit(FLOAT, LOCAL, [inference(spread)]) for spread in (1e-6, 3e-5))  # type: ignore[arg-type]
    assert steady == pytest.approx(50, rel=0.02)
    assert sensitive == pytest.approx(1.7, rel=0.02)
    assert error_limit(FLOAT, LOCAL, [inference(1e-6), inference(3e-5)]) == sensitive  # type: ignore[arg-type]
    assert error_limit(FLOAT, LOCAL, [inference(0.0)]) == np.inf  # type: ignore[arg-type]


def test_a_sensitive_network_gets_no_tiles_of_four(tmp_path: Path) -> None:
    """Both halves: what its reference's kernels differ by keeps Winograd's larger tiles out of the network."""

    def sizes(path: Path) -> set[str]:
        functions = packaged(path).compiled.functions.values()
        return {entry.tile[:6] for entry in functions if entry.template == "winograd convolution"}

    assert sizes(wide(tmp_path / "steady.onnx", subtract=False)) == {"F(4x4)"}
    assert "F(4x4)" not in sizes(wide(tmp_path / "sensitive.onnx", subtract=True))


def wide(path: Path, subtract: bool) -> Path:
    """Convolutions that tiles of four are the fastest for; a difference of two of them, or their sum."""
    graph, data = begun(1, 3, 56, 56)
    data = graph.node("Relu", graph.conv(data, 3, 64, 1))
    weights = graph.random.standard_normal((64, 64, 3, 3)).astype(np.float32)
    other = weights + 5e-3 * graph.random.standard_normal(weights.shape).astype(np.float32)
    pair = [graph.node("Relu", graph.node("Conv", data, graph.weight(each), pads=[1] * 4)) for each in (weights, other)]
    return graph.save(path, graph.node("Sub" if subtract else "Add", *pair))


def test_a_reference_without_other_kernels_leaves_the_usual_tolerance(tmp_path: Path) -> None:
    network = read_onnx(cancelling(tmp_path / "net.onnx"))
    for kernels in ([], [lambda inputs: 1 / 0]):
        changed = dataclasses.replace(network, other_kernels=kernels)
        case = recorded(changed)["random"]
        assert case.spread == {}
        assert tolerance_of(changed, LOCAL, case, changed.outputs[0].name) == TOLERANCE


def loose(usual: float, spread: float | None) -> Case:
    files = {"inputs": ["in.bin"], "outputs": ["out.bin"]}
    return Case(name="random", **files, usual=usual, relative=[0.05], absolute=0, spread=[spread])


def test_more_is_allowed_of_a_quantised_network_without_other_kernels_too() -> None:
    said = SelfTest(cases=[loose(1e-3, None)], reference="LiteRT").raised([PROB], quantised=True)
    assert said == ["prob may differ by 0.05 of its largest value for random inputs: two steps of its integers"]


@pytest.mark.parametrize(
    ("spread", "why"),
    [
        (0.0, "two steps of its integers"),  # and not: another program differs by 0, by rounding alone
        (0.01, "two steps of its integers; onnxruntime differs by 0.01, by rounding alone"),
    ],
)
def test_steps_of_a_quantised_network_are_what_more_is_allowed_for(spread: float, why: str) -> None:
    test = SelfTest(cases=[loose(1e-4, spread)], reference="a", spread_to="onnxruntime")
    [said] = test.raised([PROB], quantised=True)
    assert said.partition(": ")[2] == why
