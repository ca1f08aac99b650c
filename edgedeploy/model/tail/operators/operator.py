"""What an operator of a tail is: a function of arrays and attributes, as ONNX's Operators.md defines it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Inputs = Sequence[Any]  # arrays; None for an optional one that is left out
Attributes = Mapping[str, Any]
Operator = Callable[[Inputs, Attributes], "np.ndarray | Sequence[np.ndarray]"]

# Elements of an array whose size values decide: beyond that a package is damaged.
_MOST = 1 << 28


def optional(inputs: Inputs, place: int) -> Any:
    """An input that may be left out."""
    return inputs[place] if place < len(inputs) else None


def integers(inputs: Inputs, place: int, attributes: Attributes, name: str) -> list[int] | None:
    """A list of integers that is an input in newer opsets and an attribute in older ones."""
    given = optional(inputs, place)
    if given is not None:
        return [int(value) for value in np.asarray(given).reshape(-1)]
    stated = attributes.get(name)
    if stated is None:
        return None
    return [int(value) for value in (stated if isinstance(stated, list) else [stated])]


def sized(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that data gave, checked before an array of it is made."""
    sizes = tuple(int(size) for size in shape)
    if min(sizes, default=0) < 0 or len(sizes) > 32 or np.prod(np.array(sizes, np.float64)) > _MOST:
        raise ValueError(f"no array of shape {list(sizes)} can be made")
    return sizes
