"""What instructions of 64-bit ARM multiply, read from assembly as LLVM prints it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

# How many products one instruction adds to sums (or begins them with), by the type that is multiplied: multiply-adds of
# floats; of bytes four for each of four sums, one for each of eight, or one after both became 16 bits.
_FLOATS = {
    re.compile(r"fml[as] v\d+\.8h"): 8,
    re.compile(r"fml[as] v\d+\.4[sh]"): 4,
    re.compile(r"fml[as] v\d+\.2[sd]"): 2,
    re.compile(r"(fn?m(add|sub)|fml[as]) [hsd]\d+"): 1,
}
_BYTES = {
    re.compile(r"[su]dot v\d+\.4s"): 16,
    re.compile(r"[su]dot v\d+\.2s"): 8,
    re.compile(r"[su](mull|ml[as]l)2? v\d+\.8h"): 8,
    re.compile(r"[su](mull|ml[as]l)2? v\d+\.4s"): 4,
    re.compile(r"ml[as] v\d+\.8h"): 8,
    re.compile(r"ml[as] v\d+\.4[sh]"): 4,
}


@dataclass(frozen=True)
class Products:
    """How many products of floats and of integers of at most 16 bits there are."""

    floats: int = 0
    integers: int = 0


@cache
def products(instruction: str) -> Products:
    """Those of one instruction: mnemonic, one blank, operands."""
    return Products(_count(instruction, _FLOATS), _count(instruction, _BYTES))


def _count(instruction: str, table: dict[re.Pattern[str], int]) -> int:
    return next((count for pattern, count in table.items() if pattern.match(instruction)), 0)
