"""Floats become bytes by the fewest instructions where that gives the same bytes."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from edgedeploy.compile.backends.cpu.narrowing import narrow_by_instructions


def function(low: float, high: float, added: float) -> tirx.PrimFunc:
    data = te.placeholder((4,), "float32", "data")

    return te.create_prim_func([data, te.compute((4,), lambda place: quantised(data[place], low, high, added))])


def quantised(value: tirx.PrimExpr, low: float, high: float, added: float) -> tirx.PrimExpr:
    bounded = tirx.min(tirx.max(value, tirx.const(low, "float32")), tirx.const(high, "float32"))
    return (tirx.nearbyint(bounded) + tirx.const(added, "float32")).astype("uint8")


@pytest.mark.parametrize("x86", [True, False])
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
    x86: bool, low: float, high: float, added: float, narrowed: bool
) -> None:
    found = narrow_by_instructions(function(low, high, added), x86=x86, fuses=True).script()
    assert ("llvm.lrint" in found if x86 else "llvm.ssub.sat" in found) is narrowed


@pytest.mark.parametrize("x86", [True, False])
def test_bytes_that_a_function_goes_on_with_in_float_are_not_made(x86: bool) -> None:
    """A leaky ReLU of quantised values: its bytes less their zero point are floats that were rounded before."""
    data = te.placeholder((4,), "float32", "data")

    def value(place: tirx.Var) -> tirx.PrimExpr:
        centred = quantised(data[place], -3, 252, 3).astype("float32") + tirx.const(-3.0, "float32")
        return quantised(tirx.max(centred, centred * tirx.const(0.1, "float32")), -3, 252, 3)

    narrowed = narrow_by_instructions(
        te.create_prim_func([data, te.compute((4,), value)]), x86=x86, fuses=True
    ).script()
    assert narrowed.count("T.Cast") == (1 if x86 else 2)
    assert "T.float32(3.0)" not in narrowed
