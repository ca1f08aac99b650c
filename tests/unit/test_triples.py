"""What depends on an architecture is a row of data."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.agreement import outputs_of, run_onnx
from support.networks import Graph

from edgedeploy.agent.build import built_agent
from edgedeploy.base.catalog import builtin_folder
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.errors import ToolchainError, VirtualBoardError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.target.board import BOARDS, Vector, load_board
from edgedeploy.target.triples import architecture_of, architecture_of_elf, architectures, multiarch
from edgedeploy.virtual.emulation import emulation_of


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("aarch64-unknown-linux-gnu", "aarch64"),
        ("arm64", "aarch64"),
        ("armv7a-unknown-linux-gnueabihf", "arm"),
        ("armv7l", "arm"),
        ("arm", "arm"),
        ("amd64", "x86_64"),
        ("i386", "i686"),
        ("riscv64", "riscv64"),
        ("loongarch64-unknown-linux-gnu", "loongarch64"),
    ],
)
def test_an_architecture_has_one_name_for_what_different_tools_call_it(name: str, row: str) -> None:
    assert architecture_of(name).name == row


def test_no_two_rows_are_the_same_architecture_and_every_board_is_of_one_of_them() -> None:
    machines = [row.elf_machine for row in architectures()]
    assert len({*machines}) == len(machines)
    for row in architectures():
        assert architecture_of(row.name) == architecture_of_elf(str(row.elf_machine)) == row
    for path in (builtin_folder() / "boards").glob("*.yaml"):
        assert architecture_of(BOARDS.load(path.stem).triple).elf_machine, path


def test_debian_names_folders_of_libraries_by_triples_of_three_parts() -> None:
    assert multiarch(load_board("rpi-armhf").triple) == "arm-linux-gnueabihf"
    assert multiarch(load_board("visionfive2").triple) == "riscv64-linux-gnu"


def test_an_architecture_that_the_table_lacks_has_no_agent_and_no_virtual_board() -> None:
    unknown = load_board("visionfive2").model_copy(update={"triple": "loongarch64-unknown-linux-gnu"})
    with pytest.raises(ToolchainError, match="no agent can be built for the architecture loongarch64"):
        built_agent(unknown)
    with pytest.raises(VirtualBoardError, match="those of aarch64, arm, riscv64, x86_64"):
        emulation_of(unknown)


DATA = (1, 8, 12, 12)


@pytest.mark.parametrize(
    "network",
    [
        lambda graph, data: graph.node("Conv", data, graph.normal(12, 8, 3, 3), pads=[1, 1, 1, 1]),
        lambda graph, data: graph.node("Conv", data, graph.normal(5, 8, 1, 1), strides=[2, 2]),
        lambda graph, data: graph.node("Conv", data, graph.normal(8, 1, 3, 3), group=8, pads=[1, 1, 1, 1]),
        lambda graph, data: graph.node("MatMul", graph.node("Flatten", data), graph.normal(8 * 144, 7)),
        lambda graph, data: graph.node("Softmax", data, axis=1),
        lambda graph, data: graph.node("ReduceMean", data, axes=[2, 3], keepdims=0),
        lambda graph, data: graph.node("MaxPool", data, kernel_shape=[2, 2], strides=[2, 2]),
        lambda graph, data: graph.node("Tanh", graph.node("Transpose", data, perm=[0, 2, 3, 1])),
    ],
    ids=["3 x 3", "1 x 1", "depthwise", "product", "softmax", "mean along memory", "pooling", "activation"],
)
@pytest.mark.compiles
def test_the_templates_serve_machines_without_vector_unit(tmp_path: Path, network: Callable[[Graph, str], str]) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "net.onnx", network(graph, graph.input("x", list(DATA))))
    board = load_board("local").model_copy(update={"vector": Vector(bits=32, registers=32)})
    data = np.random.default_rng(4).standard_normal(DATA, dtype=np.float32)
    [wanted] = run_onnx(path, data).values()
    [found] = outputs_of(compile_network(read_onnx(path), board), {"x": data})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert found.dtype == wanted.dtype
