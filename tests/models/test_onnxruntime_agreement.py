"""Every ONNX network of the development material gives onnxruntime's outputs; quantised ones give them exactly."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from conftest import SHARED
from support.agreement import random_inputs, results_of
from support.shared_networks import FILES, SHAPES

from edgedeploy.board import load_board
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.selftest.tolerance import EXACT, TOLERANCE


@pytest.mark.skipif(not FILES and "CI" not in os.environ, reason=f"there are no networks in {SHARED / 'models'}")
def test_there_are_networks_to_compare() -> None:
    assert len(FILES) >= 18


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_outputs_agree(path: Path) -> None:
    network = read_onnx(path, SHAPES.get(path.name))
    compiled, inputs = compile_network(network, load_board("local")), random_inputs(network, 0)
    relative, absolute = EXACT if network.quantised else TOLERANCE
    for array, wanted in results_of(compiled, network, inputs):
        assert np.abs(array - wanted).max() <= relative * np.abs(wanted).max() + absolute
