"""Every float ONNX network of the development material gives onnxruntime's outputs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from conftest import SHARED
from support.running import outputs_of
from support.shared_networks import FILES, SHAPES

from edgedeploy.board import load_board
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.selftest.tolerance import QUANTISED_TOLERANCE, TOLERANCE


@pytest.mark.skipif(not FILES and "CI" not in os.environ, reason=f"there are no networks in {SHARED / 'models'}")
def test_there_are_networks_to_compare() -> None:
    assert len(FILES) >= 18


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_outputs_agree(path: Path) -> None:
    network = read_onnx(path, SHAPES.get(path.name))
    compiled = compile_network(network, load_board("local"))
    random = np.random.default_rng(0)
    inputs = {spec.name: random.standard_normal(spec.shape).astype(spec.dtype) for spec in network.inputs}
    found = outputs_of(compiled, inputs)
    expected = network.reference(inputs)
    relative, absolute = QUANTISED_TOLERANCE if network.quantised else TOLERANCE
    assert [spec.name for spec in network.outputs] == list(expected)
    for array, wanted in zip(found, expected.values(), strict=True):
        assert np.abs(array - wanted).max() <= relative * np.abs(wanted).max() + absolute
