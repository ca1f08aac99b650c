"""Memory is planned when a network is built; running it takes no more of it, however often."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest
from conftest import Command
from support.commands import output_of
from support.networks import Graph

from edgedeploy.compile.pipeline import Compiled, compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.package.archive import read_manifest
from edgedeploy.runtime.session import Session
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles


def compiled(path: Path, graph: Graph, *outputs: str) -> Compiled:
    return compile_network(read_onnx(graph.save(path / "net.onnx", *outputs)), load_board("local"))


def chain(graph: Graph, length: int, size: int = 32) -> str:
    """As many convolutions, each to 16 channels of the same feature map."""
    data = graph.input("data", [1, 16, size, size])
    for _ in range(length):
        data = graph.conv(data, 16, 16, 3, bias=False, pads=[1, 1, 1, 1])
    return data


def test_a_long_chain_of_layers_shares_two_tensors(tmp_path: Path) -> None:
    image = 16 * 32 * 32 * 4
    for length in (2, 7):
        graph = Graph()
        planned = compiled(tmp_path, graph, chain(graph, length)).code.memory
        # Two feature maps between layers, of which each reads one and writes the other, and the output.
        assert planned.workspace_bytes <= 3 * image


def test_constants_are_the_weights(tmp_path: Path) -> None:
    graph = Graph()
    planned = compiled(tmp_path, graph, chain(graph, 3)).code.memory
    assert planned.constants_bytes >= 3 * 16 * 16 * 9 * 4


def test_scratch_holds_a_padded_block_of_rows_but_no_whole_feature_map(tmp_path: Path) -> None:
    graph = Graph()
    layer = graph.conv(graph.input("data", [1, 16, 64, 64]), 16, 16, 5, pads=[2, 2, 2, 2])
    planned = compiled(tmp_path, graph, graph.conv(layer, 16, 16, 5, pads=[2, 2, 2, 2])).code.memory
    assert 0 < planned.scratch_bytes < 16 * 68 * 68 * 4


def test_a_network_without_work_needs_only_its_output(tmp_path: Path) -> None:
    graph = Graph()
    planned = compiled(tmp_path, graph, graph.node("Abs", graph.input("data", [1, 100]))).code.memory
    assert (planned.workspace_bytes, planned.scratch_bytes, planned.constants_bytes) == (400, 0, 0)


def test_the_manifest_and_the_command_tell_it(command: Command, tmp_path: Path) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "net.onnx", chain(graph, 2))
    [built] = json.loads(output_of(command, "build", path, "--json"))
    assert built["memory"] == read_manifest(Path(built["package"])).memory.model_dump()
    assert f"{built['memory']['workspace_bytes']:,} bytes of workspace" in output_of(command, "build", path)


class _Mallinfo(ctypes.Structure):
    """glibc's `struct mallinfo2`: ten numbers, of which the fifth and the eighth count bytes in use."""

    _fields_ = (("numbers", ctypes.c_size_t * 10),)


def allocated() -> int:
    """Bytes that this process has from malloc."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("this system's C library has no mallinfo2")
    libc.mallinfo2.restype = _Mallinfo
    numbers = libc.mallinfo2().numbers
    return int(numbers[4] + numbers[7])


def test_no_memory_is_taken_by_later_inferences(command: Command, tmp_path: Path) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "net.onnx", graph.node("GlobalAveragePool", chain(graph, 4, size=64)))
    session = Session.open(Path(json.loads(output_of(command, "build", path, "--json"))[0]["package"]))
    tensors = {"data": np.ones((1, 16, 64, 64), np.float32)}
    for _ in range(20):
        session.run(tensors)
    before = allocated()
    for _ in range(300):
        session.run(tensors)
    # Less than one tensor between two layers.
    assert allocated() - before < 16 * 64 * 64 * 4
