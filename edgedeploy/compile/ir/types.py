"""The element types of a layer, by the names of numpy and TVM: their bits, lanes, and rounding."""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from edgedeploy.target.board import Board

# Bits of the significand, the implicit one among them: IEEE 754-2019, table 3.5; bfloat16 is the upper half of float32.
_PRECISION = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}

_WITH_BITS = re.compile(r"(?:float|bfloat|int|uint)(8|16|32|64)")


def bits_of(dtype: str) -> int:
    """The bits of a value in memory."""
    if dtype == "bool":
        return 8
    if not (match := _WITH_BITS.fullmatch(dtype)):
        raise ValueError(f"invalid element type {dtype!r}")
    return int(match[1])


def bytes_of(dtype: str) -> int:
    """The bytes of a value in memory."""
    return bits_of(dtype) // 8


def lanes_for(board: Board, dtype: str) -> int:
    """How many values of a type a vector register of the board holds; 1 if the CPU has narrower ones or none."""
    return max(1, board.vector.bits // bits_of(dtype))


def limits_of(dtype: str) -> tuple[int, int]:
    """The least and the greatest value of a type of integers."""
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def is_floating(dtype: str) -> bool:
    """Whether values of a type are floating-point numbers."""
    return dtype in _PRECISION


def unit_roundoff(dtype: str) -> float:
    """The largest relative error of one rounding to nearest, half of the machine epsilon; 0 for integers."""
    if dtype in _PRECISION:
        return 2.0 ** -_PRECISION[dtype]
    if "float" in dtype:
        raise ValueError(f"unknown rounding of {dtype!r}")
    bits_of(dtype)
    return 0.0


@dataclass(frozen=True)
class LayerTypes:
    """The types of a layer: of its feature map, of packed weights, of sums of products, and of stored results.

    Data and weights are widened to the accumulator's type.
    """

    data: str
    weights: str
    accumulator: str
    result: str

    def __post_init__(self) -> None:
        for dtype in astuple(self):
            bits_of(dtype)

    @classmethod
    def uniform(cls, dtype: str) -> LayerTypes:
        """One type for everything."""
        return cls(dtype, dtype, dtype, dtype)

    def product(self, value: Any, weight: Any) -> Any:
        """The product of two of TVM's expressions, widened to the type of the sums."""
        return value.astype(self.accumulator) * weight.astype(self.accumulator)


FLOAT32 = LayerTypes.uniform("float32")  # templates are measured for it
