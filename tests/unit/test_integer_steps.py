"""The instructions for bytes: sums of products, functions that are straight lines, and floats made bytes."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from onnx import TensorProto
from support.cpus import lacking
from support.networks import Graph
from support.profiles import x86
from tvm import te, tirx

from edgedeploy.compile.backends import host_of
from edgedeploy.compile.backends.cpu.narrowing import narrow_by_instructions
from edgedeploy.compile.backends.cpu.steps import features_of, steps_for
from edgedeploy.compile.integers.layers import CONVERTER_BITS, SMALL
from edgedeploy.compile.integers.operators import every_integer, lines_through
from edgedeploy.compile.integers.quantisation import Steps
from edgedeploy.compile.ir.types import LayerTypes
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.board import load_board
from edgedeploy.target.triples import Architecture, architecture_of

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


def bytes_of_onnxruntime(operator: str, before: Steps, after: Steps, **attributes: float) -> np.ndarray:
    """What onnxruntime makes of every byte: it is dequantised, the operator's, and quantised again."""
    graph, types = Graph(), {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
    data = graph.input("x", [256], types[before.dtype])
    first, last = (
        [graph.weight(np.float32(each.scale)), graph.weight(np.array(each.zero_point, each.dtype))]
        for each in (before, after)
    )
    made = graph.node(operator, graph.node("DequantizeLinear", data, *first), **attributes)
    model = graph.model(graph.node("QuantizeLinear", made, *last))
    model.graph.output[0].type.tensor_type.elem_type = types[after.dtype]
    session = cpu_session(model.SerializeToString(), optimised=False)
    return np.asarray(session.run(None, {"x": every_integer(before).astype(before.dtype)})[0])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.25, 1.0, 1.5])
def test_lines_of_leaky_relus_give_every_byte_of_onnxruntime(dtype: str, alpha: float) -> None:
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
        np.testing.assert_array_equal(bounded, bytes_of_onnxruntime("LeakyRelu", before, after, alpha=alpha))
    assert found >= 15


def test_bounds_are_those_of_the_result() -> None:
    steps = Steps(np.float32(0.05), 128, "uint8")
    lines = lines_through(steps.dequantised(every_integer(steps)), steps, steps, (128, 200))
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


# Floats become bytes by the fewest instructions where that gives the same bytes.

ARCHITECTURES = [
    architecture_of(triple)
    for triple in ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "armv7a-unknown-linux-gnueabihf")
]
FUSING = {"fma", "vfp4", "fp-armv8"}


def quantised(value: tirx.PrimExpr, low: float, high: float, added: float) -> tirx.PrimExpr:
    bounded = tirx.min(tirx.max(value, tirx.const(low, "float32")), tirx.const(high, "float32"))
    return (tirx.nearbyint(bounded) + tirx.const(added, "float32")).astype("uint8")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("low", "high", "added", "narrowed"),
    [
        (-3, 252, 3, True),
        (0.5, 10.5, 0.5, False),  # no zero point: half a step more
        (-(2.0**23), 255 - 2.0**23, 2.0**23, False),  # more than what rounds by an addition holds
        (-3, 253, 3, False),  # beyond the largest byte
    ],
)
def test_what_is_a_zero_point_between_bounds_is_known(
    architecture: Architecture, low: float, high: float, added: float, narrowed: bool
) -> None:
    data = te.placeholder((4,), "float32", "data")
    before = te.create_prim_func([data, te.compute((4,), lambda place: quantised(data[place], low, high, added))])
    found = narrow_by_instructions(before, architecture, FUSING).script()
    assert (("llvm.lrint" if architecture.memory_operands else "llvm.ssub.sat") in found) is narrowed


@pytest.mark.compiles
@pytest.mark.quick("4--128-127-3-*", "16--100-90--11-*")
@pytest.mark.parametrize("features", [frozenset(), frozenset({"avx512f"}), frozenset({"dotprod"})])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("low", "high", "moved"), [(-128, 127, 0), (-128, 127, -128), (-128, 127, 3), (-100, 90, -11), (-20, 20, 20)]
)
@pytest.mark.parametrize("lanes", [4, 16])
def test_what_16_bits_hold_is_bounded_there(
    architecture: Architecture, features: frozenset[str], low: int, high: int, moved: int, lanes: int
) -> None:
    values = np.concatenate([np.arange(-160, 160, 0.25), [-32000, 32000, 30000.5, -1e-30]]).astype(np.float32)
    values = np.resize(values, (82, 16)).reshape(-1, lanes)
    data = te.placeholder(values.shape, "float32", "data")

    def written(*place: tirx.Var) -> tirx.PrimExpr:
        short = tirx.nearbyint(data[place]).astype("int16") + tirx.const(moved, "int16")
        return tirx.min(tirx.max(short, tirx.const(low, "int16")), tirx.const(high, "int16")).astype("int8")

    schedule = tvm.s_tir.Schedule(te.create_prim_func([data, te.compute(data.shape, written, name="bytes")]))
    schedule.vectorize(schedule.get_loops(schedule.get_sblock("bytes"))[-1])
    narrowed = narrow_by_instructions(schedule.mod["main"], architecture, features)
    is_longer = architecture.name == "aarch64" and moved % 2 and "dotprod" not in features
    assert ("ssub.sat" in narrowed.script()) is bool(is_longer)
    assert not re.search(r"nearbyint|float32\((?!12582)", narrowed.script())  # no bounds of floats
    found = tvm.runtime.empty(values.shape, "int8")
    tvm.compile(narrowed, target="llvm")(tvm.runtime.tensor(values), found)
    np.testing.assert_array_equal(found.numpy(), np.clip(np.rint(values) + moved, low, high).astype(np.int8))


@pytest.mark.compiles
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sums_to_which_a_float_was_added_are_floats_without_a_conversion(architecture: Architecture) -> None:
    sums = te.placeholder((8,), "int32", "sums")
    before = te.create_prim_func(
        [sums, te.compute((8,), lambda place: (sums[place] - CONVERTER_BITS).astype("float32"), name="floats")]
    )
    narrowed = narrow_by_instructions(before, architecture, FUSING)
    assert 'T.Cast("float32"' not in narrowed.script()
    values = np.array([0, 1, -1, 7, SMALL - 1, 1 - SMALL, 123456, -4000001], np.int32)
    found = tvm.runtime.empty((8,), "float32")
    tvm.compile(narrowed, target="llvm")(tvm.runtime.tensor(values + np.int32(CONVERTER_BITS)), found)
    np.testing.assert_array_equal(found.numpy(), values.astype(np.float32))


@pytest.mark.compiles
@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize(("low", "high", "moved"), [(0, 255, 0), (-128, 127, 128), (-3, 252, 3), (-20, 40, 90)])
def test_saturating_packs_keep_bounds(lanes: int, low: int, high: int, moved: int) -> None:
    if reason := lacking("x86-64-v3"):
        pytest.skip(reason)
    values = np.concatenate(
        [np.arange(-300, 300, 0.5), [-np.inf, np.inf, -3e38, 3e38, 2.0**31, -(2.0**31), 2.0**31 + 512, 65536]]
    ).astype(np.float32)
    data = te.placeholder((len(values) // lanes, lanes), "float32", "data")
    bytes_of = te.compute(data.shape, lambda *place: quantised(data[place], low, high, moved), name="bytes")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([data, bytes_of]))
    schedule.vectorize(schedule.get_loops(schedule.get_sblock("bytes"))[-1])
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})
    narrowed = narrow_by_instructions(schedule.mod["main"], ARCHITECTURES[0], features_of(target))
    library = tvm.compile(narrowed, target=target)
    assert {"vpackssdw", "vpackuswb"} <= set(re.findall(r"\w+", library.mod.inspect_source("asm")))
    given = values[: len(values) // lanes * lanes].reshape(-1, lanes)
    found = tvm.runtime.empty(given.shape, "uint8")
    library(tvm.runtime.tensor(given), found)
    np.testing.assert_array_equal(found.numpy(), (np.rint(np.clip(given, low, high)) + moved).astype(np.uint8))


def chain(bound: int) -> tirx.PrimFunc:
    """Bytes that are bounded, and others that are computed from them."""
    data = te.placeholder((16,), "float32", "data")

    def whole(value: tirx.PrimExpr) -> tirx.PrimExpr:
        return quantised(value, -128, 127, 128)

    def value(place: tirx.Var) -> tirx.PrimExpr:
        first = tirx.max(whole(data[place]), tirx.const(bound, "uint8"))
        real = first.astype("float32") + tirx.const(-128, "float32")
        return tirx.max(whole(real * tirx.const(0.75, "float32")), tirx.const(100, "uint8"))

    return te.create_prim_func([data, te.compute((16,), value)])


@pytest.mark.compiles
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_becomes_bytes_and_floats_again_stays_in_float(architecture: Architecture) -> None:
    narrowed = narrow_by_instructions(chain(120), architecture, FUSING)
    assert "T.float32(128.0)" not in narrowed.script()
    assert narrowed.script().count('T.Cast("uint8"') == 1
    assert 'T.Cast("float32"' not in narrowed.script()
    values = np.linspace(-140, 140, 16).astype(np.float32)
    found = tvm.runtime.empty((16,), "uint8")
    tvm.compile(narrowed, target="llvm")(tvm.runtime.tensor(values), found)
    first = np.maximum(np.rint(np.clip(values, -128, 127)) + 128, 120) - 128
    np.testing.assert_array_equal(found.numpy(), np.maximum(np.rint(first * np.float32(0.75)) + 128, 100))
