"""Integers on each CPU: its instructions for bytes, functions that are straight lines, floats made bytes, layers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from arm_loops import look_at_tiles
from assembly import innermost_loops
from layers import Layer, quantised
from onnx import helper
from support.cpus import lacking, need_cpu, needs_mca
from support.layer_runs import Case, random_case, results, run_function, window
from support.networks import Quantised
from support.profiles import x86
from tvm import te, tirx
from tvm.s_tir import Schedule

from edgedeploy.compile.backends import host_of
from edgedeploy.compile.backends.cpu.configuration import Columns, Depthwise, Winograd
from edgedeploy.compile.backends.cpu.configuration import Steps as InSteps
from edgedeploy.compile.backends.cpu.integers import pixels
from edgedeploy.compile.backends.cpu.narrowing import narrow_by_instructions, reciprocal_for
from edgedeploy.compile.backends.cpu.steps import features_of, steps_for
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.integers.layers import CONVERTER_BITS, SMALL
from edgedeploy.compile.integers.operators import every_integer, lines_through
from edgedeploy.compile.integers.quantisation import Steps
from edgedeploy.compile.ir.types import LayerTypes
from edgedeploy.compile.layers import AnyAnchorOp, Convolution, Dense, DepthwiseConvolution, FirstConvolution
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.board import Board, load_board
from edgedeploy.target.triples import Architecture, architecture_of

BOARDS = {
    "cascadelake": x86("cascadelake", 512),
    "alderlake": x86("alderlake", 256),
    "skylake-avx512": x86("skylake-avx512", 512),
    "haswell": x86("haswell", 256),
    "x86-64": x86("x86-64", 128),
    **{name: load_board(name) for name in ("rpi5", "rpi4", "rpi3", "rpi-armhf", "visionfive2")},
}


def types(name: str, weights: str = "int8") -> LayerTypes:
    return LayerTypes(host_of(BOARDS[name]).activation_type, weights, "int32", "int32")


def best(name: str, weights: str = "int8") -> tuple[str, int] | None:
    steps = steps_for(types(name, weights), BOARDS[name])
    return next(((step.instruction, step.products) for step in steps), None)


def test_the_features_of_the_cpu_say_which() -> None:
    """The instruction for bytes, its products, and the instruction for wide weights."""
    found = {name: (*best(name), best(name, "int16")[0]) for name in BOARDS if name != "visionfive2"}
    assert found == {
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
    assert best("visionfive2") is best("visionfive2", "int16") is None


BYTES, WIDE = dict.fromkeys(BOARDS, "int8"), dict.fromkeys(BOARDS, "int16")


@pytest.mark.parametrize(
    ("weights", "types"),
    [
        ([-127, 127], BYTES),
        ([-128, 3], BYTES | dict.fromkeys(["rpi4", "rpi3", "rpi-armhf"], "int16")),
        ([-129, 0], WIDE),
        ([0, 128], WIDE),
        ([-256, 254], WIDE),
        # They are no sum of two bytes, which are multiplied there.
        ([0, 255], WIDE | {"rpi5": "int32"}),
        ([-257, 3], WIDE | {"rpi5": "int32"}),
    ],
    ids=str,
)
def test_weights_are_stored_wide_where_a_step_could_overflow(weights: list[int], types: dict[str, str]) -> None:
    assert {name: host_of(board).weight_type(np.array(weights)) for name, board in BOARDS.items()} == types


def test_x86_multiplies_unsigned_by_signed_bytes_and_others_signed_ones() -> None:
    found = {name: host_of(board).activation_type for name, board in BOARDS.items()}
    assert found == {name: "uint8" if board.is_x86 else "int8" for name, board in BOARDS.items()}


# Functions of quantised tensors that are straight lines: the same byte as the network's operators for every byte.


def bytes_of_onnxruntime(operator: str, before: Steps, after: Steps, **attributes: float) -> np.ndarray:
    """What onnxruntime makes of every byte: it is dequantised, the operator's, and quantised again."""
    graph = Quantised()
    data = graph.input("x", [256], helper.np_dtype_to_tensor_dtype(np.dtype(before.dtype)))
    first = [graph.weight(np.float32(before.scale)), graph.weight(np.array(before.zero_point, before.dtype))]
    made = graph.node(operator, graph.node("DequantizeLinear", data, *first), **attributes)
    model = graph.model(graph.quantised(made, after.scale, np.array(after.zero_point, after.dtype)))
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
    ("function", "before", "after"),
    [
        *((each, (0.03, 100, "uint8"), (0.01, 90, "uint8")) for each in (np.tanh, np.square, lambda x: x + 0.3)),
        *((each, (0.05, 0, "int8"), (0.05, 0, "int8")) for each in (np.reciprocal, np.sqrt)),
    ],
    ids=["tanh", "square", "moved", "not finite at zero", "not finite below zero"],
)
def test_what_is_no_line_through_zero_has_none(function: np.ufunc, before: tuple, after: tuple) -> None:
    one, other = (Steps(np.float32(scale), zero_point, dtype) for scale, zero_point, dtype in (before, after))
    with np.errstate(divide="ignore", invalid="ignore"):
        reals = function(one.dequantised(every_integer(one))).astype(np.float32)
    assert lines_through(reals, one, other, other.limits) is None


# Floats become bytes by the fewest instructions where that gives the same bytes.

ARCHITECTURES = [
    architecture_of(triple)
    for triple in ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "armv7a-unknown-linux-gnueabihf")
]
FUSING = {"fma", "vfp4", "fp-armv8"}


def as_byte(value: tirx.PrimExpr, low: float, high: float, added: float) -> tirx.PrimExpr:
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
    before = te.create_prim_func([data, te.compute((4,), lambda place: as_byte(data[place], low, high, added))])
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
    bytes_of = te.compute(data.shape, lambda *place: as_byte(data[place], low, high, moved), name="bytes")
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
        return as_byte(value, -128, 127, 128)

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


# Rounded quotients by constants are computed without divisions, and are the same.


SCALES = [0.0173, 1 / 3, 0.1, 0.22305499017238617, 1.0, 3.7e-4, 41.7, 1.9999999 / 512]
DIVIDING = {"local": load_board("local"), **{name: BOARDS[name] for name in ("rpi4", "rpi-armhf", "x86-64")}}


def numerators(scale: float, zero_point: int) -> np.ndarray:
    """Floats around all quotients that lie between two whole numbers, and far beyond; whole vectors of them."""
    halves = ((np.arange(-2, 257) + 0.5 - zero_point) * scale).astype(np.float32)
    around = (halves.view(np.int32)[:, np.newaxis] + np.arange(-6, 7, dtype=np.int32)).view(np.float32)
    beyond = np.array([np.inf, -np.inf, 3e38, -3e38, 0.0, -0.0, 1e-40, -1e-40], np.float32)
    found = np.concatenate([around.reshape(-1), beyond])
    return np.pad(found, (0, -len(found) % 16))


def by_onnx(values: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """As ONNX defines QuantizeLinear, in numpy's float32."""
    with np.errstate(over="ignore"):
        return np.clip(np.rint(values / np.float32(scale)) + zero_point, 0, 255).astype(np.uint8)


def quantiser(count: int, scale: float, zero_point: int, dtype: str = "uint8") -> tirx.PrimFunc:
    """The same as a vectorised function of so many values; of floats, the rounded ones without a zero point."""
    data = te.placeholder((count,), "float32", "data")
    low, high = (tirx.const(float(limit - zero_point), "float32") for limit in (0, 255))

    def value(place: tirx.Var) -> Any:
        quotient = tirx.div(data[place], tirx.const(scale, "float32"))
        rounded = tirx.nearbyint(tirx.min(tirx.max(quotient, low), high))
        if dtype == "float32":
            return rounded
        return (rounded + tirx.const(float(zero_point), "float32")).astype("uint8")

    schedule = Schedule(te.create_prim_func([data, te.compute((count,), value, name="quantised")]))
    [loop] = schedule.get_loops(schedule.get_sblock("quantised"))
    schedule.vectorize(schedule.split(loop, [None, 16])[1])
    return schedule.mod["main"]


@pytest.mark.parametrize("scale", SCALES)
def test_a_reciprocal_rounds_as_the_division_does(scale: float) -> None:
    """With float64 in the place of a fused multiply-add."""
    found = reciprocal_for(scale, -128, 127)
    values = np.random.default_rng(0).uniform(-140 * scale, 140 * scale, 1_000_000).astype(np.float32)
    small = (values * found.second).astype(np.float64)
    products = (values.astype(np.float64) * np.float64(found.first) + small).astype(np.float32)
    np.testing.assert_array_equal(np.rint(products), np.rint(values / np.float32(scale)))


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30, np.inf, np.nan, -1.0])
def test_there_is_no_reciprocal_of_what_is_no_ordinary_scale(scale: float) -> None:
    assert reciprocal_for(scale, 0, 255) is None


@pytest.mark.compiles
@pytest.mark.parametrize("name", DIVIDING)
@pytest.mark.parametrize(("scale", "zero_point"), [*zip(SCALES, [0, 3, 128, 131, 0, 255, 17, 128], strict=True)])
def test_values_near_integers_are_rounded_as_in_onnx(name: str, scale: float, zero_point: int, tmp_path: Path) -> None:
    values = numerators(scale, zero_point)
    function = quantiser(len(values), scale, zero_point)
    found, code = run_function(function, [values], np.zeros(values.shape, np.uint8), DIVIDING[name], tmp_path)
    np.testing.assert_array_equal(found, by_onnx(values, scale, zero_point))
    assert any(word in code for word in ("divps", "fdiv", "vdiv")) is (name == "x86-64" and scale != 1.0)


@pytest.mark.compiles
@pytest.mark.parametrize("name", DIVIDING)
def test_what_stays_in_float_is_rounded_too(name: str, tmp_path: Path) -> None:
    values = numerators(0.0173, 7)
    function = quantiser(len(values), 0.0173, 7, "float32")
    found, _ = run_function(function, [values], np.zeros(values.shape, np.float32), DIVIDING[name], tmp_path)
    np.testing.assert_array_equal(found, by_onnx(values, 0.0173, 7).astype(np.float32) - 7)


# Layers of integers by the inner steps of each CPU: exact, with the instruction that their names say.


def layers(board: Board, weights: str = "int8") -> Mapping[str, AnyAnchorOp]:
    dtype = host_of(board).activation_type
    zero = int(np.iinfo(dtype).min) + 131
    common: dict[str, Any] = {"types": LayerTypes(dtype, weights, "int32", "int32"), "constant": True}

    def conv(data: tuple, kernel: tuple, kind: Any = Convolution, zero_point: int = zero, **others: int) -> AnyAnchorOp:
        return kind(data=data, weights=kernel, window=window(kernel[0], zero_point, **others), **common)

    def depthwise(data: tuple, kernel: int, **others: int) -> AnyAnchorOp:
        return conv(data, (kernel, kernel, 1, data[3]), DepthwiseConvolution, **others)

    long = Window((3, 5), (1, 2), (1, 1), (1, 0, 1, 3), zero)
    return {
        "pointwise": conv((1, 7, 10, 32), (1, 1, 32, 48)),
        "padded": conv((1, 9, 11, 16), (3, 3, 16, 32)),
        "strided": conv((2, 9, 12, 8), (3, 3, 8, 16), stride=2),
        "dilated": conv((1, 11, 9, 16), (3, 3, 16, 16), dilation=2),
        "odd channels": conv((1, 5, 6, 19), (3, 3, 19, 21)),
        "groups": conv((1, 6, 7, 24), (3, 3, 8, 48)),
        "odd groups": conv((1, 5, 5, 15), (1, 1, 5, 21)),
        "first": conv((1, 3, 13, 18), (3, 3, 3, 16), FirstConvolution, stride=2),
        "first, wide": conv((2, 5, 6, 33), (5, 5, 5, 16), FirstConvolution, 0),
        "product": Dense(data=(5, 40), weights=(40, 24), **common),
        "product of one row": Dense(data=(1, 64), weights=(64, 33), **common),
        "product of stacked rows": Dense(data=(2, 3, 20), weights=(20, 16), **common),
        "depthwise": depthwise((1, 7, 9, 32), 3),
        "depthwise, strided": depthwise((1, 9, 11, 24), 5, stride=2),
        "depthwise, long": DepthwiseConvolution(data=(2, 6, 13, 16), weights=(3, 5, 1, 16), window=long, **common),
        "depthwise, dilated": depthwise((1, 9, 9, 8), 3, dilation=2),
        "depthwise, odd channels": depthwise((1, 5, 6, 12), 3),
        "depthwise, few channels": depthwise((1, 9, 11, 8), 3),
        "depthwise, no padding": depthwise((2, 12, 13, 16), 7, padding=0),
    }


def check(case: Case, board: Board, chosen: Configuration, folder: Path) -> str:
    found, code = results(case, board, chosen, folder)
    assert (found.dtype, found.shape) == (case.expected.dtype, case.expected.shape)
    assert np.array_equal(found, case.expected)
    return code


CPUS = [name for name in BOARDS if name != "visionfive2"]


# The instructions of depthwise layers of bytes, their multiples of eight channels.
DEPTHWISE = {
    "cascadelake": ["vpdpbusd"],
    "alderlake": ["vpdpbusd"],
    "rpi5": ["sdot", "zip1", "zip2", "sqxtn"],
    "rpi4": ["smull", "smlal", "saddw", "saddw2", "sqxtn"],
    "rpi3": ["smull", "smlal", "saddw", "saddw2", "sqxtn"],
    "rpi-armhf": ["vmull.s8", "vmlal.s8", "vaddw.s16"],
}
WIDE_DEPTHWISE = {"rpi5": ["sdot", "zip1", "zip2"], "rpi4": ["smull2", "smlal2"], "rpi3": ["smull2", "smlal2"]}


def depthwise_instructions(name: str, kind: str, weights: str, chosen: Configuration) -> list[str]:
    """Those that take several channels at a time; with bytes and at least eight channels, such a form is chosen."""
    if weights == "int16":
        return WIDE_DEPTHWISE.get(name, []) if kind == "depthwise, long" else []
    assert isinstance(chosen, Columns | Depthwise)
    several = isinstance(chosen, Columns) or chosen.vector > 1
    assert several or name not in DEPTHWISE or kind not in ("depthwise", "depthwise, long")
    return DEPTHWISE[name] if several else []


# A layer takes a second or two on each CPU.
@pytest.mark.compiles
@pytest.mark.quick(
    "int8-padded-*", "int8-odd channels-*", "int8-product-*", "int8-depthwise, long-*", "int16-*long-rpi[345]"
)
@pytest.mark.parametrize("name", CPUS)
@pytest.mark.parametrize("kind", layers(BOARDS["rpi4"]))
@pytest.mark.parametrize("weights", ["int8", "int16"])
def test_a_layer_and_its_requantisation_are_exact(tmp_path: Path, name: str, kind: str, weights: str) -> None:
    board = BOARDS[name]
    need_cpu(board)
    layer = layers(board, weights)[kind]
    case, strategy = random_case(layer, layer.types.data), host_of(board).strategy(layer)
    chosen = strategy.default()
    code = check(case, board, chosen, tmp_path)
    if isinstance(layer, DepthwiseConvolution):
        expected = depthwise_instructions(name, kind, weights, chosen)
        assert [each for each in expected if not re.search(rf"\b{re.escape(each)}\s", code)] == []
    elif isinstance(chosen, InSteps):
        *_, instruction, _ = strategy.described(chosen).split(", ")
        assert instruction in code


@pytest.mark.compiles
@pytest.mark.parametrize("name", CPUS)
@pytest.mark.parametrize(
    ("growth", "zero_point"),
    [pytest.param(1, 128, marks=pytest.mark.slow), (1000, 117), pytest.param(1000, 128, marks=pytest.mark.slow)],
)
def test_results_are_exact_within_16_bits_and_beyond(tmp_path: Path, name: str, growth: float, zero_point: int) -> None:
    board = BOARDS[name]
    need_cpu(board)
    layer = layers(board)["pointwise"]
    case = random_case(layer, layer.types.data, growth=growth, zero_point=zero_point)
    assert (case.tail.largest > 2**16) is (growth > 1)
    assert {case.tail.low, case.tail.high} <= {*map(int, case.expected.flat)}
    check(case, board, host_of(board).strategy(layer).default(), tmp_path)


@pytest.mark.compiles
def test_input_channels_are_repeated_before_the_loop_over_output_channels(tmp_path: Path) -> None:
    board = BOARDS["rpi4"]
    layer = layers(board)["pointwise"].model_copy(update={"data": (1, 14, 14, 64), "weights": (1, 1, 64, 96)})
    code = check(random_case(layer, layer.types.data), board, host_of(board).strategy(layer).default(), tmp_path)
    of_tiles = [loop.instructions for loop in innermost_loops(code) if loop.multiply_adds]
    assert of_tiles
    assert re.search(r"\btbl\s", code)
    assert not any(re.search(r"\btbl\s", line) for lines in of_tiles for line in lines)


@pytest.mark.compiles
@pytest.mark.parametrize("kind", ["pointwise", "odd channels", "product of one row"])
def test_sums_in_parts_are_exact_where_instructions_are_executed_in_order(tmp_path: Path, kind: str) -> None:
    board = BOARDS["rpi3"]
    layer = layers(board)[kind]
    strategy = host_of(board).strategy(layer)
    chosen = next(each for each in strategy.candidates() if isinstance(each, InSteps) and each.depth == 16)
    code = check(random_case(layer, layer.types.data), board, chosen, tmp_path)
    assert re.search(r"\baddp\s+v\d+\.4s", code)
    assert not re.search(r"\b(tbl|zip1)\s", code)  # nothing is repeated


@pytest.mark.compiles
@pytest.mark.parametrize("name", ["rpi3", "rpi5"])
def test_pixels_of_a_small_feature_map_lie_in_one_row_of_tiles(tmp_path: Path, name: str) -> None:
    board = BOARDS[name]
    layer = layers(board)["pointwise"].model_copy(update={"data": (1, 7, 7, 32)})
    assert pixels(layer, board) == (1, 49)
    assert pixels(layer.model_copy(update={"data": (2, 7, 7, 32)}), board) == (7, 7)
    assert pixels(layer, BOARDS["rpi-armhf"]) == (7, 7)
    strategy = host_of(board).strategy(layer)
    tiles = [each.tile for each in strategy.candidates() if isinstance(each, InSteps) and each.tile.columns > 1]
    assert {tile.rows for tile in tiles} == {1}
    chosen = next(each for each in strategy.candidates() if isinstance(each, InSteps) and each.tile.columns == 4)
    check(random_case(layer, layer.types.data), board, chosen, tmp_path)


@pytest.mark.compiles
@pytest.mark.parametrize("kind", ["depthwise", "padded", "first", "product"])
def test_weights_that_no_two_bytes_are_have_no_step_but_are_exact(tmp_path: Path, kind: str) -> None:
    board = BOARDS["rpi5"]
    layer = layers(board, "int32")[kind]
    case = random_case(layer, layer.types.data)
    case.weights[..., :2] = 255
    check(case, board, host_of(board).strategy(layer).default(), tmp_path)


# Layers of bytes that scripts predict: as networks have them, and what is said of their tiles.

POINTWISE = Layer(inputs=32, outputs=64, feature_map=(16, 16))


@pytest.mark.compiles
@pytest.mark.parametrize(
    "layer", [POINTWISE, Layer(inputs=3, outputs=16, feature_map=(12, 12), kernel=3), Layer(inputs=40, outputs=12)]
)
def test_a_layer_of_bytes_reads_and_gives_bytes(layer: Layer, tmp_path: Path) -> None:
    model = quantised(layer.model())
    onnx.checker.check_model(model, full_check=True)
    cpu_session(model.SerializeToString())
    onnx.save(model, tmp_path / "layer.onnx")
    compiled = compile_network(read_onnx(tmp_path / "layer.onnx"), load_board("rpi4"))
    [function] = (each for each in compiled.functions.values() if isinstance(each.configuration, InSteps))
    data, *_, result = (str(each.ty.dtype) for each in function.function.params)
    assert (data, result) == ("int8", "int8")


@pytest.mark.compiles
@needs_mca
@pytest.mark.parametrize(("board", "rate"), [("rpi4", 7.0), ("rpi3", 3.0)])
def test_short_sums_take_little_more_than_their_products(board: str, rate: float, tmp_path: Path) -> None:
    onnx.save(quantised(POINTWISE.model()), tmp_path / "layer.onnx")
    [tile] = look_at_tiles(board, [tmp_path / "layer.onnx"])
    assert tile.products_per_cycle > rate
    assert tile.stack_accesses < 0.02 * tile.cycles


# Layers of bytes whose products are summed up in float32: what they give, and when they are chosen.


def convolution(name: str, pixels: int, inputs: int, outputs: int, **others: Any) -> Convolution:
    fields: dict[str, Any] = {"types": types(name), "constant": True, "window": window(3, 3), **others}
    kernel = fields["window"].kernel
    return Convolution(data=(1, pixels, pixels, inputs), weights=(*kernel, inputs, outputs), **fields)


def depthwise(name: str, pixels: int, channels: int, *, kernel: int = 3, stride: int = 1) -> DepthwiseConvolution:
    shapes = {"data": (1, pixels, pixels, channels), "weights": (kernel, kernel, 1, channels)}
    around = window(kernel, 3, stride=stride)
    return DepthwiseConvolution(**shapes, types=types(name), constant=True, window=around)


def in_floats(layer: AnyAnchorOp, name: str) -> Any:
    """The quickest form with sums in float32."""
    return host_of(BOARDS[name]).strategy(layer).families[1].default()


def form(layer: AnyAnchorOp, name: str) -> str:
    """What a board computes a layer in by default: `steps`, `winograd`, or `depthwise` with its type of sums."""
    chosen = host_of(BOARDS[name]).strategy(layer).default()
    floats = " in floats" if isinstance(chosen, Depthwise) and chosen.floats else ""
    return chosen.form + floats


WITH_FLOATS = ["cascadelake", "skylake-avx512", "haswell", "x86-64", "rpi5", "rpi4", "rpi3"]


@pytest.mark.compiles
@pytest.mark.parametrize("name", WITH_FLOATS)
@pytest.mark.parametrize(
    ("kernel", "stride"),
    [(3, 1), pytest.param(3, 2, marks=pytest.mark.slow), pytest.param(5, 1, marks=pytest.mark.slow)],
)
def test_depthwise_sums_are_exact(tmp_path: Path, name: str, kernel: int, stride: int) -> None:
    need_cpu(BOARDS[name])
    layer = depthwise(name, 11, 32, kernel=kernel, stride=stride)
    check(random_case(layer, layer.types.data), BOARDS[name], in_floats(layer, name), tmp_path)


@pytest.mark.compiles
@pytest.mark.parametrize("name", WITH_FLOATS)
def test_winograds_sums_are_rounded_and_results_hardly_ever_another_byte(tmp_path: Path, name: str) -> None:
    need_cpu(BOARDS[name])
    layer = convolution(name, 14, 64, 32)
    case = random_case(layer, layer.types.data)
    found, _ = results(case, BOARDS[name], in_floats(layer, name), tmp_path)
    apart = np.abs(found.astype(int) - case.expected)
    assert found.dtype == case.expected.dtype
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= 1e-3 * apart.size


@pytest.mark.parametrize(
    ("size", "chosen", "names"),
    [
        ((28, 128, 128), "steps", ["cascadelake", "alderlake", "rpi5", "rpi-armhf"]),
        ((28, 128, 128), "winograd", ["skylake-avx512", "haswell", "rpi4", "rpi3"]),
        # Few channels are not worth transforms.
        ((10, 16, 8), "steps", ["skylake-avx512", "haswell", "rpi4", "rpi3"]),
    ],
)
def test_3x3_convolutions_take_the_form_with_the_least_estimate(
    size: tuple[int, int, int], chosen: str, names: list[str]
) -> None:
    assert {name: form(convolution(name, *size), name) for name in names} == dict.fromkeys(names, chosen)


@pytest.mark.parametrize("name", WITH_FLOATS)
@pytest.mark.parametrize(
    "others",
    [{"window": window(1, 0)}, {"window": window(3, 0, stride=2)}, {"types": None}],
    ids=["1x1", "strided", "wide weights"],
)
def test_other_convolutions_have_sums_of_integers_alone(name: str, others: dict[str, Any]) -> None:
    if "types" in others:
        others = {"types": types(name, "int16")}
    strategy = host_of(BOARDS[name]).strategy(convolution(name, 28, 128, 128, **others))
    assert {type(each) for each in strategy.candidates()} == {InSteps}


@pytest.mark.parametrize(
    ("stride", "chosen", "names"),
    [
        (1, "columns", ["cascadelake", "rpi5"]),
        (2, "columns", ["cascadelake"]),
        (1, "depthwise", ["skylake-avx512", "rpi4", "rpi3", "rpi-armhf"]),
        (1, "depthwise in floats", ["haswell"]),
        (2, "depthwise", ["haswell"]),  # four times as many bytes are copied for each result
    ],
)
def test_depthwise_convolutions_take_the_form_with_the_least_estimate(
    stride: int, chosen: str, names: list[str]
) -> None:
    found = {name: form(depthwise(name, 56, 128, stride=stride), name) for name in names}
    assert found == dict.fromkeys(names, chosen)


def test_kernels_whose_sums_float32_does_not_hold_are_left_to_integers() -> None:
    strategy = host_of(BOARDS["haswell"]).strategy(depthwise("haswell", 40, 32, kernel=23))
    assert not any(each.floats for each in strategy.candidates() if isinstance(each, Depthwise))


@pytest.mark.parametrize("name", [*BOARDS])
def test_the_default_is_one_of_the_configurations_and_all_of_them_fit(name: str) -> None:
    for layer in layers(BOARDS[name]).values():
        strategy = host_of(BOARDS[name]).strategy(layer)
        assert strategy.fits(strategy.default())
        assert all(map(strategy.fits, strategy.candidates()))


def test_tuning_may_try_both() -> None:
    wide, single = of_haswell()
    assert {type(each) for each in wide.candidates()} == {InSteps, Winograd}
    assert {each.floats for each in single.candidates()} == {False, True}


def of_haswell() -> list[Any]:
    """The strategies of a convolution and of a depthwise one."""
    layers = (convolution("haswell", 14, 64, 64), depthwise("haswell", 14, 32))
    return [host_of(BOARDS["haswell"]).strategy(layer) for layer in layers]


def test_each_form_says_how_exact_it_is() -> None:
    rounding = [[each.rounding(choice) > 0 for choice in each.alternatives()] for each in of_haswell()]
    # Steps, then F(2x2) and F(4x4); integers, then floats.
    assert rounding == [[False, True, True], [False, False]]
