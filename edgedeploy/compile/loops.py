"""What a scheduled function's loops are: vectors or single values, on all threads or on one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import sym
from tvm.tirx import ForKind

_SIDE_BY_SIDE = {ForKind.PARALLEL, ForKind.THREAD_BINDING}


@dataclass(frozen=True)
class Stores:
    """How many values one call of a function stores, sorted by the loops around the store.

    A sum stores once for each of its terms.

    Attributes:
        total: all of them.
        scalar: those stored one by one, in no vectorised loop.
        serial_scalar: those of `scalar` that are stored by one thread; work-items of a device are several.
    """

    total: int
    scalar: int
    serial_scalar: int


def stores_of(function: tvm.tirx.PrimFunc) -> Stores:
    """Count the stores of a function; of loops whose lengths depend on others, the longest."""
    found = list(_stores(function.body, ()))
    counted = [(math.prod(_lengths(loops)), {loop.kind for loop in loops}) for loops in found]
    scalar = [(count, kinds) for count, kinds in counted if ForKind.VECTORIZED not in kinds]
    return Stores(
        total=sum(count for count, _ in counted),
        scalar=sum(count for count, _ in scalar),
        serial_scalar=sum(count for count, kinds in scalar if not kinds & _SIDE_BY_SIDE),
    )


def _lengths(loops: tuple[tvm.tirx.For, ...]) -> Iterator[int]:
    """How often each of nested loops runs at most."""
    bounds = sym.Analyzer()
    for loop in loops:
        yield int(bounds.const_int_bound(loop.extent).max_value)
        bounds.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))


def _stores(statement: Any, loops: tuple[tvm.tirx.For, ...]) -> Iterator[tuple[tvm.tirx.For, ...]]:
    """The loops around each store."""
    if isinstance(statement, tvm.tirx.BufferStore):
        yield loops
    if isinstance(statement, tvm.tirx.For):
        loops = (*loops, statement)
    for part in ("block", "init", "body", "then_case", "else_case"):
        inner = getattr(statement, part, None)
        if inner is not None:
            yield from _stores(inner, loops)
    for inner in getattr(statement, "seq", ()):
        yield from _stores(inner, loops)
