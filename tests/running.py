"""Runs compiled networks in the process of the tests."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from edgedeploy.board import load_board
from edgedeploy.compile.linking import link
from edgedeploy.compile.pipeline import Compiled


def outputs_of(compiled: Compiled, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a network that was compiled for this machine, in its order."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "model.so"
        link(compiled.code, library, load_board("local"))
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    returned = machine["main"](*[tvm.runtime.tensor(array) for array in inputs.values()])
    return [returned.numpy()] if hasattr(returned, "numpy") else [array.numpy() for array in returned]
