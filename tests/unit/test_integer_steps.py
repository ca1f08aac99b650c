"""By which instructions a CPU sums up products of integers, and functions of bytes that are straight lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from support.profiles import x86

from edgedeploy.compile.backends import host_of
from edgedeploy.compile.backends.cpu.steps import steps_for
from edgedeploy.compile.integers.operators import every_integer, lines_through
from edgedeploy.compile.integers.quantisation import Steps
from edgedeploy.compile.ir.types import LayerTypes
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.board import load_board

BOARDS = {
    "cascadelake": x86("cascadelake", 512),
    "alderlake": x86("alderlake", 256),
    "skylake-avx512": x86("skylake-avx512", 512),
    "haswell": x86("haswell", 256),
    "x86-64": x86("x86-64", 128),
    **{name: load_board(name) for name in ("rpi5", "rpi4", "rpi3", "rpi-armhf", "visionfive2")},
}


def best(name: str, weights: str = "int8") -> tuple[str, int] | None:
    board = BOARDS[name]
    types = LayerTypes(host_of(board).activation_type, weights, "int32", "int32")
    return next(((step.instruction, step.products) for step in steps_for(types, board)), None)


# For each CPU: the instruction for bytes, its products, and the instruction for wide weights.
STEPS = {
    "cascadelake": ("vpdpbusd", 64, "vpdpwssd"),
    "alderlake": ("vpdpbusd", 32, "vpdpwssd"),
    "skylake-avx512": ("vpmaddwd", 32, "vpmaddwd"),
    "haswell": ("vpmaddwd", 16, "vpmaddwd"),
    "x86-64": ("pmaddwd", 8, "pmaddwd"),
    "rpi5": ("sdot", 64, "sdot"),
    "rpi4": ("smull", 64, "smlal"),
    "rpi3": ("smull", 64, "smlal"),
    "rpi-armhf": ("vmull.s8", 64, "vmlal.s16"),
}


def test_the_features_of_the_cpu_say_which() -> None:
    assert {name: best(name) for name in BOARDS} == {**{name: STEPS[name][:2] for name in STEPS}, "visionfive2": None}


def test_wide_weights_have_steps_of_their_own() -> None:
    found = {name: step[0] if (step := best(name, "int16")) else None for name in BOARDS}
    assert found == {**{name: STEPS[name][2] for name in STEPS}, "visionfive2": None}


@pytest.mark.parametrize(
    ("weights", "wide"),
    [
        ([-127, 127], []),
        ([-128, 3], ["rpi4", "rpi3", "rpi-armhf"]),
        ([-129, 0], [*BOARDS]),
        ([0, 128], [*BOARDS]),
        ([-256, 254], [*BOARDS]),
    ],
)
def test_weights_are_stored_wide_where_a_step_could_overflow(weights: list[int], wide: list[str]) -> None:
    found = {name: host_of(board).weight_type(np.array(weights)) for name, board in BOARDS.items()}
    assert found == {name: "int16" if name in wide else "int8" for name in BOARDS}


@pytest.mark.parametrize("weights", [[0, 255], [-257, 3]])
def test_weights_that_are_no_sum_of_two_bytes_are_wider_still_where_these_are_multiplied(weights: list[int]) -> None:
    found = {name: host_of(board).weight_type(np.array(weights)) for name, board in BOARDS.items()}
    assert found == {name: "int32" if name == "rpi5" else "int16" for name in BOARDS}


def test_x86_multiplies_unsigned_by_signed_bytes_and_others_signed_ones() -> None:
    found = {name: host_of(board).activation_type for name, board in BOARDS.items()}
    assert found == {name: "uint8" if board.is_x86 else "int8" for name, board in BOARDS.items()}


# Functions of quantised tensors that are straight lines: the same byte as the network's operators for every byte.


def bytes_of_onnxruntime(folder: Path, operator: str, before: Steps, after: Steps, **attributes: float) -> np.ndarray:
    """What onnxruntime makes of every byte: it is dequantised, the operator's, and quantised again."""
    numbers = {"s": before.scale, "t": after.scale}
    zeros = {"z": np.array(before.zero_point, before.dtype), "y": np.array(after.zero_point, after.dtype)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"]),
        helper.make_node(operator, ["real"], ["made"], **attributes),
        helper.make_node("QuantizeLinear", ["made", "t", "y"], ["bytes"]),
    ]
    types = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", types[before.dtype], [256])],
        [helper.make_tensor_value_info("bytes", types[after.dtype], [256])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in {**numbers, **zeros}.items()],
    )
    path = folder / "net.onnx"
    save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)]), path)
    session = cpu_session(path, optimised=False)
    [found] = session.run(None, {"x": every_integer(before).astype(before.dtype)})
    return np.asarray(found)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.25, 1.0, 1.5])
def test_lines_of_leaky_relus_give_every_byte_of_onnxruntime(tmp_path: Path, dtype: str, alpha: float) -> None:
    random = np.random.default_rng(int(alpha * 100))
    found = 0
    for _ in range(20):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        before, after = (
            Steps(np.float32(random.uniform(0.001, 0.2)), int(random.integers(low, high + 1)), dtype) for _ in range(2)
        )
        reals = before.dequantised(every_integer(before))
        reals = np.where(reals < 0, reals * np.float32(alpha), reals)
        lines = lines_through(reals, before, after, after.limits)
        if lines is None:
            continue
        found += 1
        values = (every_integer(before) - before.zero_point).astype(np.float32)
        made = np.where(values < 0, values * lines.below, values * lines.above)
        bounded = np.clip(np.rint(made) + after.zero_point, low, high).astype(dtype)
        np.testing.assert_array_equal(bounded, bytes_of_onnxruntime(tmp_path, "LeakyRelu", before, after, alpha=alpha))
    assert found >= 15


def test_bounds_are_those_of_the_result() -> None:
    steps = Steps(np.float32(0.05), 128, "uint8")
    lines = lines_through(steps.dequantised(every_integer(steps)), steps, steps, (128, 200))
    assert lines is not None
    assert lines.above == pytest.approx(1)


@pytest.mark.parametrize(
    "function", [np.tanh, np.square, lambda x: x + np.float32(0.3)], ids=["tanh", "square", "moved"]
)
def test_what_is_no_line_through_zero_has_none(function: np.ufunc) -> None:
    before, after = Steps(np.float32(0.03), 100, "uint8"), Steps(np.float32(0.01), 90, "uint8")
    assert lines_through(function(before.dequantised(every_integer(before))), before, after, after.limits) is None


@pytest.mark.parametrize("function", [np.reciprocal, np.sqrt])
def test_a_function_that_is_not_finite_has_none(function: np.ufunc) -> None:
    steps = Steps(np.float32(0.05), 0, "int8")
    with np.errstate(divide="ignore", invalid="ignore"):
        reals = function(steps.dequantised(every_integer(steps)))
    assert lines_through(reals, steps, steps, steps.limits) is None
