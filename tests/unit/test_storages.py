"""Tensors of several types take turns in memory, and nobody writes what somebody reads yet."""

from pathlib import Path

import numpy as np
import pytest
from support.networks import Graph
from support.running import outputs_of
from unit.test_compiler_integers import Quantised, reference

from edgedeploy.compile.output import codegen
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles

LOCAL = load_board("local")


def quantised(folder: Path) -> Path:
    """A network of bytes that become fewer and fewer, and then of floats, of which the first ones are read last."""
    graph = Quantised()
    data = graph.pair(graph.input("data", [1, 3, 32, 32]), 0.02, np.uint8(120))
    first = graph.pair(graph.convolution(data, 3, 16), 0.05, np.uint8(100))
    pooled = graph.pair(graph.node("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2]), 0.05, np.uint8(100))
    floats = graph.convolution(pooled, 16, 5)
    gate = graph.node("Softmax", floats, axis=1)
    return graph.save(folder / "net.onnx", graph.node("Mul", graph.node("Softmax", gate, axis=3), floats))


def in_float(folder: Path) -> Path:
    graph = Graph()
    data = graph.input("data", [1, 3, 32, 32])
    first = graph.node("MaxPool", graph.conv(data, 3, 16, 3, pads=[1] * 4), kernel_shape=[2, 2], strides=[2, 2])
    return graph.save(folder / "net.onnx", graph.conv(first, 16, 5, 3))


def test_floats_lie_where_bytes_lay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = quantised(tmp_path)
    given = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float32)
    [found], [wanted] = (
        outputs_of(shared := compile_network(read_onnx(path), LOCAL), {"data": given}),
        reference(path, given),
    )
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(codegen, "share_storages", lambda module: module)
    assert shared.code.memory.workspace_bytes < compile_network(read_onnx(path), LOCAL).code.memory.workspace_bytes


def test_networks_of_one_type_stay_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = in_float(tmp_path)
    before = compile_network(read_onnx(path), LOCAL).code.executable.as_text()
    monkeypatch.setattr(codegen, "share_storages", lambda module: module)
    assert before == compile_network(read_onnx(path), LOCAL).code.executable.as_text()
