"""The inputs that a network is tested with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgedeploy.runtime.arrays import fill

if TYPE_CHECKING:
    from edgedeploy.frontends.network import Network


def random_inputs(network: Network) -> dict[str, np.ndarray]:
    """The same random values each time, by input."""
    return {spec.name: fill(spec, "normal", seed) for seed, spec in enumerate(network.inputs)}
