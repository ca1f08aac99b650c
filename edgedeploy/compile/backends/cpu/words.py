"""Words of 32 bits that hold the values which one step of a sum of products reads."""

from __future__ import annotations

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


def as_part_of_word(value: Any, place: int, dtype: str) -> Any:
    """A word that holds a value of a type at a place, and zero elsewhere."""
    bits = bits_of(dtype)
    return tirx.reinterpret(f"uint{bits}", value).astype(WORD) << tirx.const(bits * place, WORD)
