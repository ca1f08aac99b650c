"""The interface of every way to run a network: in this process, and on a board."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.runtime.timing import Timing


class Runner(Protocol):
    """A network that is ready to run; inputs and outputs are in the network's order."""

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    threads: int

    def fitting(self, tensors: Tensors) -> Runner:
        """The network for the shapes of these arrays if it was built for several shapes; `run` does this itself."""
        ...

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """One inference: arrays by input name, to arrays by output name."""
        ...

    def measure(self, tensors: Tensors, *, repeat: int = 1, number: int = 1, warmup: int = 0) -> Timing:
        """Run `warmup` times, then time `repeat` groups of `number` inferences; one time per group."""
        ...

    def function_times(self, tensors: Tensors, *, repeat: int = 1, warmup: int = 0) -> dict[str, list[float]]:
        """For each function of the network, by name, the time of its calls in each of `repeat` inferences, in ms."""
        ...
