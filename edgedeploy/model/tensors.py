"""Tensors by name, and the specifications of a network's inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field, field_validator, model_validator

from edgedeploy.base.documents import Listed, Record

Tensors = Mapping[str, np.ndarray]

# Types of tensors in packages, which the agent supports as well.
_INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
DTYPES = ("float32", "float64", "float16", "bool", *_INTEGERS)

_FLOAT32 = np.finfo(np.float32)
_QUANTISED = ("int8", "uint8", "int16")


class Steps(Record):
    """The quantisation of a tensor: integers stand for `(integer - zero_point) * scale`."""

    scale: Annotated[float, Field(ge=float(_FLOAT32.smallest_subnormal), le=float(_FLOAT32.max))]  # positive in float32
    zero_point: int  # an integer of the tensor's type

    def integers(self, values: np.ndarray, dtype: str) -> np.ndarray:
        """Quantise real numbers, float32: rounded, halves to even, and saturated to the dtype."""
        limits = np.iinfo(dtype)
        steps = np.rint(values / np.float32(self.scale)) + self.zero_point
        return np.clip(steps, limits.min, limits.max).astype(dtype)

    def values(self, integers: np.ndarray) -> np.ndarray:
        """Dequantise integers to float32."""
        centred = integers.astype(np.int32) - self.zero_point
        return np.asarray(centred.astype(np.float32) * np.float32(self.scale))


class TensorSpec(Record):
    """An input or output."""

    name: str
    shape: Listed[int]  # empty for a scalar; in outputs of a tail, -1 for sizes that depend on data
    dtype: str  # numpy's name
    # For inputs that are indices, their exclusive upper bound; None for all others.
    below: Annotated[int, Field(gt=0)] | None = None
    steps: Steps | None = None  # the quantisation; None for unquantised tensors

    @field_validator("dtype")
    @classmethod
    def _numpy_knows_it(cls, value: str) -> str:
        try:
            np.dtype(value)
        except TypeError as error:
            raise ValueError(str(error)) from error
        return value

    @model_validator(mode="after")
    def _steps_are_of_its_type(self) -> TensorSpec:
        if self.steps is None:
            return self
        if self.dtype not in _QUANTISED:
            raise ValueError(f"a quantised tensor is of {', '.join(_QUANTISED)}, not of {self.dtype}")
        limits = np.iinfo(self.dtype)
        if not limits.min <= self.steps.zero_point <= limits.max:
            raise ValueError(f"its zero point is not a valid {self.dtype}")
        return self

    def misfit(self, array: np.ndarray) -> str | None:
        """How an array's shape or dtype differs, for messages; None if both fit."""
        fits = len(self.shape) == array.ndim and all(a in (b, -1) for a, b in zip(self.shape, array.shape, strict=True))
        if fits and array.dtype == np.dtype(self.dtype):
            return None
        return f"it is {shown(array.shape)} of {array.dtype}, not {shown(self.shape)} of {self.dtype}"


def shown(shape: Sequence[int]) -> str:
    """A shape for people."""
    return "x".join("?" if size < 0 else str(size) for size in shape) or "a scalar"


def quotient_of_integers(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The quotient of integers, truncated as in C, of their type; a ZeroDivisionError if a divisor is zero."""
    refuse_zeros(b)
    quotient = np.asarray(a // b)
    return quotient + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(quotient.dtype)


def refuse_zeros(divisors: np.ndarray) -> None:
    """Raise a ZeroDivisionError for zero divisors, for which numpy would only warn."""
    if not divisors.all():
        raise ZeroDivisionError("integer division by zero")
