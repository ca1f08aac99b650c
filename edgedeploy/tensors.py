"""Tensors by name, and what a network says of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field, field_validator, model_validator

from edgedeploy.documents import Listed, Record

Tensors = Mapping[str, np.ndarray]


class Steps(Record):
    """What the integers of a quantised tensor stand for: `(integer - zero_point) * scale`.

    Attributes:
        scale: positive in float32.
        zero_point: an integer of at most 16 bits.
    """

    scale: Annotated[float, Field(ge=2.0**-149, lt=2.0**128)]
    zero_point: Annotated[int, Field(ge=-(1 << 15), lt=1 << 16)]

    def integers(self, values: np.ndarray, dtype: str) -> np.ndarray:
        """Real numbers, float32, as integers of a dtype: rounded, halves to even, and saturated."""
        limits = np.iinfo(dtype)
        steps = np.rint(values / np.float32(self.scale)) + self.zero_point
        return np.clip(steps, limits.min, limits.max).astype(dtype)

    def values(self, integers: np.ndarray) -> np.ndarray:
        """The real numbers of integers, float32."""
        centred = integers.astype(np.int32) - self.zero_point
        return np.asarray(centred.astype(np.float32) * np.float32(self.scale))


class TensorSpec(Record):
    """An input or output.

    Attributes:
        name: of the network's.
        shape: empty for a scalar; of an output of a tail, -1 where the data decide.
        dtype: as numpy names it.
        below: for inputs that are indices, what all of them are less than; None for all others.
        steps: what the integers of a quantised one stand for; None for all others.
    """

    name: str
    shape: Listed[int]
    dtype: str
    below: Annotated[int, Field(gt=0)] | None = None
    steps: Steps | None = None

    @field_validator("dtype")
    @classmethod
    def _numpy_knows_it(cls, value: str) -> str:
        try:
            np.dtype(value)
        except TypeError as error:
            raise ValueError(str(error)) from error
        return value

    @model_validator(mode="after")
    def _steps_are_of_integers(self) -> TensorSpec:
        if self.steps and np.dtype(self.dtype).kind not in "iu":
            raise ValueError(f"steps are of integers, not of {self.dtype}")
        return self

    def misfit(self, array: np.ndarray) -> str | None:
        """What an array has instead of this shape and dtype, for messages; None if it has both."""
        fits = len(self.shape) == array.ndim and all(a in (b, -1) for a, b in zip(self.shape, array.shape, strict=True))
        if fits and array.dtype == np.dtype(self.dtype):
            return None
        return f"it is {shown(array.shape)} of {array.dtype}, not {shown(self.shape)} of {self.dtype}"


def shown(shape: Sequence[int]) -> str:
    """A shape for people."""
    return "x".join("?" if size < 0 else str(size) for size in shape) or "a scalar"
