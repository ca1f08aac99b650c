"""The ONNX networks of the development material, which tests compile."""

from pathlib import Path

import onnx
import pytest
from conftest import SHARED

from edgedeploy.compile.output.explain import FEW_STORES, stores_of
from edgedeploy.compile.pipeline import Lowered

FILES = sorted((SHARED / "models").rglob("*.onnx"))

# Networks with a smaller one of the same layers among the files.
_LARGER = {
    "mobilenet_v1_1.0_224_float",
    "mobilenet_v1_1.0_224_qdq",
    "mobilenet_v2_1.0_224_qdq",
    "retinaface_pytorch_mobilenet0.25_640x640",
}

# The files as parameters of tests that compile them.
NETWORKS = [pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem in _LARGER else ()) for path in FILES]

# Shapes of inputs for networks that leave them open, by file name.
SHAPES = {"retinaface_mnet25_dyn.onnx": {"data": [1, 3, 240, 320]}}


def is_quantised(path: Path) -> bool:
    return any("QuantizeLinear" in node.op_type for node in onnx.load(path, load_external_data=False).graph.node)


def serial_functions(network: Lowered) -> dict[str, int]:
    """The functions that compute value by value on one thread, with their stores; few stores are no loss."""
    stores = {name: stores_of(entry.function).serial_scalar for name, entry in network.functions.items()}
    return {name: count for name, count in stores.items() if count > FEW_STORES}
