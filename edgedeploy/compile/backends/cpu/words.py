"""Words of 32 bits that hold the values which one step of a sum of products reads."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

from tvm import tirx

from edgedeploy.compile.types import bits_of

# The type of one.
WORD = "uint32"


def fill_word(dtype: str, count: int) -> bool:
    """Whether so many values of a type are a word."""
    return count * bits_of(dtype) == bits_of(WORD)


def part_of_word(word: Any, place: Any, dtype: str) -> Any:
    """The value of a type at a place in a word, counted from its lowest bits."""
    return (word >> (place * bits_of(dtype)).astype(WORD)).astype(dtype)


def word_of(values: Sequence[Any], dtype: str) -> Any:
    """Values of a type as a word, the first in its lowest bits; those that it lacks are zero."""
    bits = bits_of(dtype)

    def part(value: Any) -> Any:
        if isinstance(value, tirx.IntImm):  # TVM takes a zero of another type for a pointer
            return tirx.const(value.value % 2**bits, WORD)
        return tirx.reinterpret(f"uint{bits}", value).astype(WORD)

    return reduce(operator.or_, (part(value) << tirx.const(bits * place, WORD) for place, value in enumerate(values)))
