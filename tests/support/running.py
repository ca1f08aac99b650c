"""Runs compiled networks in the process of the tests."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.output.codegen import link
from edgedeploy.compile.pipeline import Compiled, compile_network
from edgedeploy.model.network import Network
from edgedeploy.target.board import load_board


def outputs_of(compiled: Compiled, inputs: Mapping[str, np.ndarray], device: Any = None) -> list[np.ndarray]:
    """The outputs of a network that was compiled for this machine, or for an OpenCL device of it, in its order."""
    device = device or tvm.cpu()
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "model.so"
        link(compiled.code, library, load_board("local"))
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), device)
    returned = machine["main"](*[tvm.runtime.tensor(array, device=device) for array in inputs.values()])
    return [returned.numpy()] if hasattr(returned, "numpy") else [array.numpy() for array in returned]


def computed(network: Network, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return outputs_of(compile_network(network, load_board("local")), inputs)
