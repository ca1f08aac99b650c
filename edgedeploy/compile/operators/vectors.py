"""Loops over vectors, where functions are written instruction by instruction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm.script.ir_builder import tirx as T  # noqa: N812

# A vector of a tile: where it begins, and how many values it has.
Vector = tuple[int, int]


def vectors(width: int, lanes: int) -> list[Vector]:
    """A tile in whole vectors, and in shorter ones of powers of two for what they leave over."""
    found, first = [], 0
    while first < width:
        length = min(lanes, 1 << (width - first).bit_length() - 1)
        found.append((first, length))
        first += length
    return found


@contextmanager
def lanes_of(length: int) -> Iterator[Any]:
    """A loop over a vector's values."""
    with (T.vectorized if length > 1 else T.serial)(length) as lane:
        yield lane
