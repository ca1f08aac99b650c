"""Layers of bytes that scripts predict: as networks have them, and what is said of their tiles."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from arm_loops import look_at_tiles
from layers import Layer, quantised
from support.predictions import needs_mca

from edgedeploy.compile.backends.cpu.configuration import Steps
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles

POINTWISE = Layer(inputs=32, outputs=64, feature_map=(16, 16))


@pytest.mark.parametrize(
    "layer", [POINTWISE, Layer(inputs=3, outputs=16, feature_map=(12, 12), kernel=3), Layer(inputs=40, outputs=12)]
)
def test_a_layer_of_bytes_reads_and_gives_bytes(layer: Layer, tmp_path: Path) -> None:
    model = quantised(layer.model())
    onnx.checker.check_model(model, full_check=True)
    cpu_session(model.SerializeToString())
    onnx.save(model, tmp_path / "layer.onnx")
    compiled = compile_network(read_onnx(tmp_path / "layer.onnx"), load_board("rpi4"))
    [function] = (each for each in compiled.functions.values() if isinstance(each.configuration, Steps))
    data, *_, result = (str(each.ty.dtype) for each in function.function.params)
    assert (data, result) == ("int8", "int8")


@needs_mca
@pytest.mark.parametrize(("board", "rate"), [("rpi4", 7.0), ("rpi3", 3.0)])
def test_short_sums_take_little_more_than_their_products(board: str, rate: float, tmp_path: Path) -> None:
    onnx.save(quantised(POINTWISE.model()), tmp_path / "layer.onnx")
    [tile] = look_at_tiles(board, [tmp_path / "layer.onnx"])
    assert tile.products_per_cycle > rate
    assert tile.stack_accesses < 0.02 * tile.cycles
