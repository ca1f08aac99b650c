"""Tolerances: as narrow as usual, but where the reference's own kernels differ by more; never wider than that shows."""

import dataclasses
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import Command
from onnx import TensorProto, helper
from support.agents import packaged
from support.commands import output_of
from support.networks import Graph, begun
from tvm import relax

from edgedeploy.errors import NumericalError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.package.entry import Case, SelfTest
from edgedeploy.selftest.recording import recorded
from edgedeploy.selftest.tolerance import (
    EXACT,
    TOLERANCE,
    Recorded,
    error_limit,
    is_steady,
    steadiest,
    step_of,
    tolerance_of,
    usual_tolerance,
)
from edgedeploy.target.board import load_board
from edgedeploy.zoo.source import Source

pytestmark = pytest.mark.compiles

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
    [said] = json.loads(output_of(command, "build", cancelling(tmp_path / "net.onnx"), "--json"))
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
    for kernels in (None, lambda inputs: 1 / 0):
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
