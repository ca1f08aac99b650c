"""What every way of running a network offers: in this process, and on a board."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from edgedeploy.runtime.timing import Timing
from edgedeploy.tensors import Tensors, TensorSpec


class Runner(Protocol):
    """A network that is ready to run.

    Attributes:
        inputs, outputs: what it takes and gives, in the network's order.
        threads: how many threads it runs with.
    """

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    threads: int

    def fitting(self, tensors: Tensors) -> Runner:
        """The same network for the shapes of these arrays, if it was built for several; `run` finds it by itself.

        Raises:
            InputError: there are several, and none of them is for these shapes.
        """
        ...

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """One inference: arrays by input name, to arrays by output name."""
        ...

    def measure(self, tensors: Tensors, *, repeat: int = 1, number: int = 1, warmup: int = 0) -> Timing:
        """Run `warmup` times, then time `repeat` groups of `number` inferences; one time per group."""
        ...

    def function_times(self, tensors: Tensors, *, repeat: int = 1, warmup: int = 0) -> dict[str, list[float]]:
        """By name of each function of the network, the time of its calls in each of `repeat` inferences, in ms."""
        ...
