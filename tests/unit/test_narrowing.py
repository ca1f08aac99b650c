"""Floats become bytes by the fewest instructions where that gives the same bytes."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from support.cpus import lacking
from tvm import te, tirx

from edgedeploy.compile.backends.cpu.narrowing import narrow_by_instructions
from edgedeploy.compile.backends.cpu.steps import features_of
from edgedeploy.compile.integers.layers import CONVERTER_BITS, SMALL
from edgedeploy.target.triples import Architecture, architecture_of

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
