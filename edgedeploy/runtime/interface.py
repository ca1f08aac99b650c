"""What every way of running a network offers: in this process, and on a board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol

import numpy as np
from pydantic import Field, field_validator

from edgedeploy.documents import Record
from edgedeploy.runtime.timing import Timing

Tensors = Mapping[str, np.ndarray]


class TensorSpec(Record):
    """An input or output.

    Attributes:
        name: of the network's.
        shape: empty for a scalar.
        dtype: as numpy names it.
        below: for inputs that are indices, what all of them are less than; None for all others.
    """

    name: str
    shape: list[int]
    dtype: str
    below: Annotated[int, Field(gt=0)] | None = None

    @field_validator("dtype")
    @classmethod
    def _numpy_knows_it(cls, value: str) -> str:
        try:
            np.dtype(value)
        except TypeError as error:
            raise ValueError(str(error)) from error
        return value

    def misfit(self, array: np.ndarray) -> str | None:
        """What an array has instead of this shape and dtype, for messages; None if it has both."""
        if list(array.shape) == self.shape and array.dtype == np.dtype(self.dtype):
            return None
        return f"it is {shown(array.shape)} of {array.dtype}, not {shown(self.shape)} of {self.dtype}"


def shown(shape: Sequence[int]) -> str:
    """A shape for people."""
    return "x".join(map(str, shape)) or "a scalar"


class Runner(Protocol):
    """A network that is ready to run.

    Attributes:
        inputs, outputs: what it takes and gives, in the network's order.
        threads: how many threads it runs with.
    """

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    threads: int

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """One inference: arrays by input name, to arrays by output name."""
        ...

    def measure(self, tensors: Tensors, *, repeat: int = 1, number: int = 1, warmup: int = 0) -> Timing:
        """Run `warmup` times, then time `repeat` groups of `number` inferences; one time per group."""
        ...

    def function_times(self, tensors: Tensors, *, repeat: int = 1, warmup: int = 0) -> dict[str, list[float]]:
        """By name of each function of the network, the time of its calls in each of `repeat` inferences, in ms."""
        ...
