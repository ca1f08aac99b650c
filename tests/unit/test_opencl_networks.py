"""Networks that are built for an OpenCL device run there, and give onnxruntime's outputs, whatever their layers."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Command
from support.agents import packaged
from support.agreement import assert_always_agrees
from support.commands import output_of
from support.networks import Graph, begun
from support.opencl_devices import ONE_THREAD

from edgedeploy.building import Built
from edgedeploy.compile.backends.opencl.strategy import group_parts, group_size
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.errors import KernelBuildError, NoOpenCLError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.package.archive import read_package
from edgedeploy.package.manifest import LIBRARY_NAME
from edgedeploy.runtime.session import Session
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles

BOARD = "local-opencl"


def save(path: Path) -> Path:
    """A network with a layer of each kind: convolution, depthwise, pool, sum, product, softmax, a reshape."""
    graph = Graph()
    first = graph.node("Relu", graph.conv(graph.input("data", [1, 3, 16, 16]), 3, 8, 3, pads=[1, 1, 1, 1]))
    second = graph.conv(first, 8, 8, 3, group=8, pads=[1, 1, 1, 1])
    pooled = graph.node("GlobalAveragePool", graph.node("Add", first, second))
    flat = graph.node("Flatten", pooled)
    return graph.save(path, graph.node("Softmax", graph.conv(pooled, 8, 5, 1), axis=1), flat)


@pytest.fixture
def built(opencl: Any, tmp_path: Path) -> Built:
    return packaged(save(tmp_path / "net.onnx"), BOARD)


def test_a_build_for_this_machines_device_is_compared_with_onnxruntime(built: Built) -> None:
    assert built.error <= 1
    assert built.manifest.device == ""
    assert built.manifest.target["kind"] == "opencl"
    on_device = built.compiled.functions.keys() - built.compiled.on_cpu.keys()
    assert {built.compiled.templates[name] for name in on_device} == {"gpu convolution", "gpu depthwise convolution"}


def assert_all_on_device(network: Path) -> None:
    built = packaged(network, BOARD)
    assert built.compiled.on_cpu == {}
    assert built.error <= 1


@pytest.mark.quick("Acosh", "Erf", "Tan")
@pytest.mark.parametrize(
    "name", ["Acos", "Acosh", "Asin", "Asinh", "Atan", "Cos", "Cosh", "Erf", "Sinh", "Tan", "Tanh"]
)
def test_elementary_functions_are_those_of_the_device(opencl: Any, tmp_path: Path, name: str) -> None:
    graph = Graph()
    value = graph.node("Tanh", graph.input("data", [1, 16, 64, 64]))  # where each of them is steep nowhere
    value = graph.node("Mul", value, graph.weight(np.float32(0.9)))
    value = graph.node("Add", value, graph.weight(np.float32(2))) if name == "Acosh" else value
    assert_all_on_device(graph.save(tmp_path / "net.onnx", graph.node(name, value)))


@pytest.mark.parametrize("network", ["of elements", "of a channel", "reduced"])
def test_conditions_are_one_and_zero_and_choose_whole_vectors(opencl: Any, tmp_path: Path, network: str) -> None:
    graph, data = begun(1, 16, 64, 64)
    if network == "of a channel":  # the same for all values of a vector
        chosen = graph.node("Greater", graph.input("channel", [1, 16, 1, 1]), graph.weight(np.float32(0)))
        value = graph.node("Where", chosen, data, graph.node("Neg", data))
    else:
        compared = (graph.node(each, data, graph.weight(np.float32(0.5))) for each in ("Greater", "Less"))
        value = graph.node("Cast", graph.node("Not", graph.node("And", *compared)), to=1)
    value = graph.node("ReduceMean", value, axes=[2], keepdims=0) if network == "reduced" else value
    assert_all_on_device(graph.save(tmp_path / "net.onnx", value))


def test_what_one_inference_leaves_on_the_device_does_not_change_the_next(built: Built, tmp_path: Path) -> None:
    assert_always_agrees(built, read_onnx(tmp_path / "net.onnx"))


def test_times_are_measured_on_the_device(built: Built) -> None:
    session = Session.open(built.path)
    data = {"data": np.zeros((1, 3, 16, 16), "float32")}
    assert len(session.measure(data, repeat=3, number=2).as_dict()) >= 3
    assert session.measure(data, repeat=3).min_ms > 0
    assert all(times[0] > 0 for times in session.function_times(data).values())


def test_a_package_for_a_device_that_is_not_here_is_refused_with_those_that_are(built: Built) -> None:
    manifest, contents = read_package(built.path)
    with pytest.raises(NoOpenCLError, match=rf"'Mali'.*there is {ONE_THREAD}"):
        Session(manifest.model_copy(update={"device": "Mali"}), contents[LIBRARY_NAME])


def test_kernels_that_the_driver_refuses_are_shown_with_its_log(built: Built) -> None:
    manifest, contents = read_package(built.path)
    library = contents[LIBRARY_NAME]
    assert b"get_group_id" in library
    session = Session(manifest, library.replace(b"get_group_id", b"no_such_name"))
    with pytest.raises(KernelBuildError) as caught:
        session.run({"data": np.zeros((1, 3, 16, 16), "float32")})
    assert "no_such_name" in str(caught.value.why)


def test_code_for_a_board_elsewhere_holds_its_kernels(tmp_path: Path) -> None:
    compiled = compile_network(read_onnx(save(tmp_path / "net.onnx")), load_board("nuc-opencl"))
    assert {each.kind for each in compiled.code.libraries} == {"llvm"}
    [kernels] = [each for library in compiled.code.libraries for each in library.imports]
    assert kernels.kind == "opencl"
    assert "__kernel void" in kernels.inspect_source()


def test_the_command_line_builds_and_runs_for_the_device(opencl: Any, command: Command, tmp_path: Path) -> None:
    assert "equal to onnxruntime" in output_of(command, "build", save(tmp_path / "net.onnx"), "--board", BOARD)
    out = output_of(command, "run", "dist/local-opencl/net.tar.gz", "--print-time", "--print-top", 1)
    assert "time of one inference in ms" in out


def test_a_demo_sees_what_it_sees_on_the_cpu(opencl: Any, command: Command) -> None:
    def seen(board: str) -> list[str]:
        out = output_of(command, "demo", "digits", "--board", board)
        return [line for line in out.splitlines() if re.fullmatch(r"\d\.\d+, \d", line)]

    found = seen(BOARD)
    assert len(found) == 5
    assert found == seen("local")


# The schedules for OpenCL devices give onnxruntime's outputs, whatever the layers' shapes and the device's sizes.

PROFILE = (Path(__file__).parents[2] / "boards" / "local-opencl.yaml").read_text()


def convolutions(graph: Graph) -> list[str]:
    def layer(name: str, inputs: int, size: tuple[int, int], outputs: int, kernel: int, **attributes: Any) -> str:
        return graph.conv(graph.input(name, [1, inputs, *size]), inputs, outputs, kernel, **attributes)

    return [
        layer("pointwise", 32, (14, 14), 64, 1),
        layer("padded", 16, (13, 11), 32, 3, pads=[1, 1, 1, 1]),
        layer("strided", 3, (33, 17), 16, 3, strides=[2, 2], pads=[0, 0, 1, 1]),
        layer("dilated", 8, (12, 12), 16, 3, dilations=[2, 2], pads=[2, 2, 2, 2]),
        layer("grouped", 32, (9, 9), 64, 3, group=4, pads=[1, 1, 1, 1]),
        layer("odd", 5, (9, 11), 7, 3, pads=[1, 1, 1, 1]),
        layer("single", 32, (1, 1), 10, 1),
        layer("depthwise", 24, (15, 12), 24, 3, group=24, strides=[2, 2], pads=[1, 0, 0, 1]),
        layer("wide", 7, (10, 10), 7, 5, group=7, pads=[2, 2, 2, 2]),
    ]


def others(graph: Graph) -> list[str]:
    image, row = graph.input("image", [1, 6, 10, 9]), graph.input("row", [3, 20])
    other = graph.node("Sigmoid", image)
    return [
        graph.node("MaxPool", image, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        graph.node("AveragePool", image, kernel_shape=[2, 2], strides=[2, 2]),
        graph.node("ReduceMean", image, axes=[2, 3], keepdims=1),
        graph.node("Softmax", row, axis=1),
        graph.node("Concat", image, other, axis=1),
        graph.node("Transpose", image, perm=[0, 3, 1, 2]),
        graph.doubled(image),
        graph.node("MatMul", row, graph.normal(20, 12)),
        graph.node("MatMul", row, graph.node("Transpose", row, perm=[1, 0])),
        graph.node("Flatten", graph.node("Add", image, other)),
    ]


@pytest.mark.parametrize(
    "sizes",
    [
        "vector: 4",
        pytest.param("vector: 16, sums: 28, tile_group: 1, units: 2, items: 4", marks=pytest.mark.slow),
        pytest.param("vector: 1, sums: 3, work_group: 256, units: 1, items: 1", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("layers", [convolutions, others])
def test_layers_agree(opencl: Any, layers: Any, sizes: str, tmp_path: Path) -> None:
    graph = Graph(opset=16)
    path = graph.save(tmp_path / "net.onnx", *layers(graph))
    board = tmp_path / "device.yaml"
    board.write_text(PROFILE.replace("kind: generic", f"kind: generic, little_work: 0, {sizes}"))
    built = packaged(path, str(board))
    assert built.error <= 1
    assert {template.split()[0] for template in built.compiled.templates.values()} == {"gpu"}


def test_a_work_group_is_whole_inner_loops_and_a_part_of_the_next() -> None:
    assert group_parts([1, 56, 14, 32], group_size(56 * 14 * 32, 64, 16)) == [1, 1, 2, 32]
    # Seven groups for each unit at least.
    assert group_parts([1, 7, 1, 16], group_size(7 * 16, 64, 16)) == [1, 1, 1, 4]
    assert group_parts([3], group_size(3, 64, 16)) == [1]
