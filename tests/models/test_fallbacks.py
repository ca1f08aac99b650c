"""No network of the development material falls back to serial scalar loops on ARM's narrow vectors."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.shared_networks import NETWORKS, SHAPES, serial_functions

from edgedeploy.compile.pipeline import lower_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.target.board import load_board


@pytest.mark.quick("mobilenet_v1_0.25_224_qdq", "retinaface_mnet25_dyn")
@pytest.mark.parametrize("path", NETWORKS)
def test_no_function_computes_value_by_value_on_one_thread(path: Path) -> None:
    network = read_onnx(path, SHAPES.get(path.name))
    assert serial_functions(lower_network(network, load_board("rpi4"))) == {}
