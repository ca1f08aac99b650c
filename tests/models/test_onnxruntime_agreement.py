"""Every ONNX network of the development material gives onnxruntime's outputs, quantised ones exactly, without falling
back to serial scalar loops.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from conftest import SHARED
from support.agreement import FILES, NETWORKS, SHAPES, random_inputs, results_of, serial_functions

from edgedeploy.compile.pipeline import Compiled, compile_network, lower_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.network import Network
from edgedeploy.selftest.tolerance import EXACT, TOLERANCE
from edgedeploy.target.board import load_board


@pytest.mark.skipif(not FILES and "CI" not in os.environ, reason=f"there are no networks in {SHARED / 'models'}")
def test_there_are_networks_to_compare() -> None:
    assert len(FILES) >= 18


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Network:
    path: Path = request.param
    return read_onnx(path, SHAPES.get(path.name))


@pytest.fixture(scope="module")
def compiled(network: Network) -> Compiled:
    return compile_network(network, load_board("local"))


@pytest.mark.quick("mobilenetv2_int8_static", "retinaface_mnet25_316x474", "yolo-fastest-1.1_320")
def test_outputs_agree(network: Network, compiled: Compiled) -> None:
    relative, absolute = EXACT if network.quantised else TOLERANCE
    for array, wanted in results_of(compiled, network, random_inputs(network, 0)):
        assert np.abs(array - wanted).max() <= relative * np.abs(wanted).max() + absolute


def test_no_function_computes_value_by_value_on_one_thread(compiled: Compiled) -> None:
    assert serial_functions(compiled) == {}


@pytest.mark.quick("mobilenet_v1_0.25_224_qdq", "retinaface_mnet25_dyn")
@pytest.mark.parametrize("path", NETWORKS)
def test_no_function_computes_value_by_value_on_arm(path: Path) -> None:
    network = read_onnx(path, SHAPES.get(path.name))
    assert serial_functions(lower_network(network, load_board("rpi4"))) == {}
