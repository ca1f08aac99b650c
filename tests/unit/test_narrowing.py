"""Floats become bytes by the fewest instructions where that gives the same bytes."""

from __future__ import annotations

import pytest
import tvm_ffi
from tvm import te, tirx

from edgedeploy.compile.backends.cpu.narrowing import narrow_by_instructions
from edgedeploy.triples import architecture_of


def function(low: float, high: float, added: float) -> tirx.PrimFunc:
    data = te.placeholder((4,), "float32", "data")

    def value(place: tirx.Var) -> tirx.PrimExpr:
        bounds = (tirx.const(each, "float32") for each in (low, high))
        bounded = tirx.min(tirx.max(data[place], next(bounds)), next(bounds))
        return (tirx.nearbyint(bounded) + tirx.const(added, "float32")).astype("uint8")

    return te.create_prim_func([data, te.compute((4,), value)])


@pytest.mark.parametrize(
    "triple", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"]
)
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
    triple: str, low: float, high: float, added: float, narrowed: bool
) -> None:
    before = function(low, high, added)
    assert tvm_ffi.structural_equal(narrow_by_instructions(before, architecture_of(triple)), before) is not narrowed
