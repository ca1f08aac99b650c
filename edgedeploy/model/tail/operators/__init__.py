"""The operators of tails: functions of arrays and attributes, as ONNX's Operators.md or an engine defines them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

# Takes inputs by position, None for an optional one that is left out, and attributes by name; one parameter stands for
# what is an input in newer opsets and an attribute in older ones. Returns an array, or a sequence of them.
Operator = Callable[..., Any]

_MOST = 1 << 28  # elements of an array whose size values decide: beyond that a package is damaged


def computed(operator: Operator, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
    """The outputs of an operator; attributes that it has no parameter for are ignored."""
    outputs = operator(*inputs, **{name: value for name, value in attributes.items() if _takes(operator, name)})
    return [outputs] if isinstance(outputs, np.ndarray | np.generic) else outputs


@cache
def _takes(operator: Operator, name: str) -> bool:
    parameters = inspect.signature(operator).parameters
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def integers(given: Any) -> list[int] | None:
    """A list of integers from an array, a list or a number; None stays None."""
    return None if given is None else [int(value) for value in np.reshape(given, -1)]


def number(given: Any) -> Any:
    """The number in an array of one value, of its dtype."""
    return np.reshape(given, -1)[0]


def sized(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that data gave, checked before an array of it is allocated."""
    sizes = tuple(int(size) for size in shape)
    if min(sizes, default=0) < 0 or len(sizes) > 32 or np.prod(np.array(sizes, np.float64)) > _MOST:
        raise ValueError(f"no array of shape {list(sizes)} can be allocated")
    return sizes
