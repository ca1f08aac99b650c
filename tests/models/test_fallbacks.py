"""No network of the development material falls back to serial scalar loops, on boards of any vector width."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.shared_networks import FILES, SHAPES

from edgedeploy.board import load_board
from edgedeploy.compile.explain import FEW_STORES
from edgedeploy.compile.loops import stores_of
from edgedeploy.compile.pipeline import lower_network
from edgedeploy.frontends.onnx import read_onnx


@pytest.mark.parametrize("board", ["local", "rpi4"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_function_computes_value_by_value_on_one_thread(path: Path, board: str) -> None:
    network = lower_network(read_onnx(path, SHAPES.get(path.name)), load_board(board))
    stores = {name: stores_of(entry.function).serial_scalar for name, entry in network.functions.items()}
    assert {name: count for name, count in stores.items() if count > FEW_STORES} == {}
