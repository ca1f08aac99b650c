"""Networks of one layer, or of a layer behind a first one, with what is fused to it."""

from pathlib import Path
from typing import Any

import tvm

from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.layers import AnyAnchorOp
from edgedeploy.compile.pipeline import compile_network, optimise
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.network import Network
from edgedeploy.target.board import Board
from support.agreement import assert_agrees
from support.networks import Graph


def convolution(path: Path, size: int, inputs: int, outputs: int, kernel: int, **attributes: object) -> Network:
    """Two convolutions: the first one reads NCHW, the second is the one that is asked for."""
    graph = Graph()
    data = graph.input("data", [1, 3, size, size])
    first = graph.node("Relu", graph.conv(data, 3, inputs, 3, pads=[1, 1, 1, 1]))
    second = graph.node("Relu", graph.conv(first, inputs, outputs, kernel, **attributes))
    return read_onnx(graph.save(path / "net.onnx", second))


def dense(path: Path, rows: int, terms: int, columns: int) -> Network:
    graph = Graph()
    product = graph.node("MatMul", graph.input("data", [rows, terms]), graph.normal(terms, columns))
    return read_onnx(graph.save(path / "net.onnx", graph.node("Add", product, graph.normal(columns))))


NETWORKS = {
    "3x3": lambda path: convolution(path, 14, 16, 32, 3, pads=[1, 1, 1, 1]),
    "3x3 of a small image": lambda path: convolution(path, 7, 64, 64, 3, pads=[1, 1, 1, 1]),
    "1x1": lambda path: convolution(path, 9, 32, 48, 1),
    "strided": lambda path: convolution(path, 15, 8, 24, 3, strides=[2, 2], pads=[1, 1, 0, 0]),
    "grouped": lambda path: convolution(path, 8, 16, 32, 3, group=4),
    "depthwise": lambda path: convolution(path, 13, 32, 32, 3, group=32, pads=[1, 1, 1, 1]),
    "dense": lambda path: dense(path, 4, 64, 90),
    "one row": lambda path: dense(path, 1, 128, 1000),
}


def is_of_layer(workload: tvm.IRModule, layer: AnyAnchorOp) -> bool:
    """Whether a workload is a layer's: both have the same tensors."""
    shapes = [tuple(map(int, parameter.ty.shape)) for parameter in workload["main"].params]
    return shapes[:2] == [layer.data, layer.weights]


def last_layer(network: Network, board: Board) -> AnyAnchorOp:
    return list(optimise(network, board).groups.values())[-1].layer


def assert_takes(
    network: Network, board: Board, chosen: Configuration, tolerance: float = 1e-4, device: Any = None
) -> None:
    """A network with its last layer in a configuration gives the reference's outputs."""
    layer = last_layer(network, board)
    compiled = compile_network(network, board, tuned=lambda workload: chosen if is_of_layer(workload, layer) else None)
    assert chosen in [entry.configuration for entry in compiled.functions.values() if entry.tuned]
    assert_agrees(compiled, network, tolerance, device)
