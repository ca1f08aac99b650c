"""The float TensorFlow Lite networks of the development material give LiteRT's values, by fast code."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from support.running import outputs_of

from edgedeploy.board import load_board
from edgedeploy.compile.explain import explain
from edgedeploy.compile.pipeline import compile_network, lower_network
from edgedeploy.errors import ModelError
from edgedeploy.frontends.formats import describing

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("tflite", "ai_edge_litert")),
    reason="packages of TensorFlow Lite are not installed: pip install 'edgedeploy[tflite]'",
)

FLOAT = [
    "mlperf_tiny/resnet8_cifar10_fp32.tflite",
    "mlperf_tiny/vww_mobilenet_v1_025_96_fp32.tflite",
    "mobilenet_v1/mobilenet_v1_0.25_224_float.tflite",
]
INTEGER = ["mlperf_tiny/resnet8_cifar10_int8.tflite", "mobilenet_v2/mobilenet_v2_1.0_224_quant.tflite"]


@pytest.mark.parametrize("name", FLOAT)
def test_values_are_litert_s(shared: Path, name: str) -> None:
    path = shared / "models" / name
    network = describing(path)[0].read([path], {})
    random = np.random.default_rng(0)
    inputs = {spec.name: random.standard_normal(spec.shape).astype(spec.dtype) for spec in network.inputs}
    found = outputs_of(compile_network(network, load_board("local")), inputs)
    wanted = network.reference(inputs)
    assert [spec.name for spec in network.outputs] == list(wanted)
    for array, expected in zip(found, wanted.values(), strict=True):
        assert np.abs(array - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("board", ["local", "rpi4"])
@pytest.mark.parametrize("name", FLOAT)
def test_every_function_has_a_template_and_nothing_is_transposed(shared: Path, name: str, board: str) -> None:
    path = shared / "models" / name
    report = explain(lower_network(describing(path)[0].read([path], {}), load_board(board)))
    assert [record["function"] for record in report["functions"] if record["fallback"]] == []
    assert report["transposes"] == {"edges": 0, "inside": 0}


@pytest.mark.parametrize("name", INTEGER)
def test_integer_networks_are_refused(shared: Path, name: str) -> None:
    path = shared / "models" / name
    with pytest.raises(ModelError, match="quantised networks"):
        describing(path)[0].read([path], {})
