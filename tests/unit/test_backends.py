"""Backends: networks for OpenCL devices, what runs on the CPU beside them, and a third backend."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import toy_backend
from conftest import Command
from support.agents import packaged
from support.agreement import assert_always_agrees
from support.commands import json_of, output_of, put
from support.networks import Graph, begun
from support.opencl_devices import ONE_THREAD
from support.profiles import write_profile

from edgedeploy.building import Built
from edgedeploy.compile.backends import known_configuration
from edgedeploy.compile.backends.opencl.strategy import group_parts, group_size
from edgedeploy.compile.ir.expressions import bindings_of, calls_of, is_call
from edgedeploy.compile.output.explain import explain
from edgedeploy.compile.output.placement import LITTLE_WORK, NO_SCHEDULE
from edgedeploy.compile.pipeline import Lowered, compile_network, lower_network
from edgedeploy.errors import ConfigurationError, InputError, KernelBuildError, NoOpenCLError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.package.archive import read_package
from edgedeploy.package.manifest import LIBRARY_NAME
from edgedeploy.runtime.session import Session
from edgedeploy.target import devices
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.tuning.building import Builder
from edgedeploy.tuning.task import tasks_of

pytestmark = pytest.mark.compiles

BOARD = "local-opencl"


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A board with the toy, whose kind is known."""
    for name, kind in toy_backend.KIND.items():
        monkeypatch.setitem(devices.KINDS, name, kind)
    return write_profile(tmp_path, "local", devices=[{"backend": "toy"}])


@pytest.fixture
def network(tmp_path: Path) -> Path:
    graph, data = begun(1, 3, 16, 16)
    layer = graph.conv(data, 3, 8, 3)
    layer = graph.node("Relu", graph.node("Conv", layer, graph.normal(8, 1, 3, 3), group=8))
    pooled = graph.node("Flatten", graph.node("GlobalAveragePool", layer))
    return graph.save(tmp_path / "net.onnx", graph.node("Softmax", graph.node("Gemm", pooled, graph.normal(8, 4))))


def test_a_network_runs_on_a_third_backend_and_what_it_has_no_template_for_on_the_cpu(
    board: str, network: Path, command: Command, tmp_path: Path
) -> None:
    package = tmp_path / "built" / "net.tar.gz"
    [built] = json_of(command, "build", network, "--board", board, "-o", package.parent, "--explain")
    functions = built["functions"]
    assert sum(each["template"] == "toy" for each in functions) == 3
    [softmax] = [each for each in functions if "softmax" in each["function"]]
    assert softmax["template"] == "general"
    assert "no schedule" in softmax["cpu"]
    session, known = Session.open(package), read_onnx(network)
    assert session.device_name is None
    data = {"data": np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)}
    [found], [wanted] = session.run(data).values(), known.reference(data).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_candidates_of_a_third_backend_are_built_and_read_again(board: str, network: Path, tmp_path: Path) -> None:
    resolved = resolve(board, {"device": {"unroll": True}}).profile
    with Builder(resolved, workers=1) as builder:
        for task in tasks_of(read_onnx(network), resolved):
            assert [each.unroll for each in task.candidates] == [True, False]
            assert all(known_configuration(each.model_dump()) == each for each in task.candidates)
            batch = builder.build(map(task.scheduled, task.candidates))
            assert [entry.error for entry in batch.entries] == [None, None]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"devices": [{"backend": "npu"}]}, "devices.0: backend: npu is none of: opencl"),
        ({"devices": [{"backend": "opencl", "vector": 3}]}, "devices.0: vector: must be 1, 2, 4, 8 or 16"),
        ({"opencl": {"device": "Intel"}}, r"is written `devices: \[\{backend: opencl, name: NAME"),
    ],
    ids=["an unknown kind", "a wrong field", "the old form"],
)
def test_a_wrong_device_in_a_profile_is_refused(tmp_path: Path, fields: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load_board(write_profile(tmp_path, "local", **fields))


def test_what_no_device_has_cannot_be_overridden(board: str) -> None:
    with pytest.raises(InputError, match="there is no such field"):
        resolve(board, {"device": {"vector": 4}})


# What has no place on an OpenCL device runs on the CPU beside it, and outputs are still onnxruntime's.


def classifier(graph: Graph) -> list[str]:
    layer = graph.node("Relu", graph.conv(graph.input("data", [1, 3, 32, 32]), 3, 32, 3))
    return [graph.node("Softmax", graph.node("Flatten", graph.conv(layer, 32, 10, 30)), axis=1)]


def summed(graph: Graph) -> list[str]:
    """Sums of all before, which no template takes, between convolutions."""
    first = graph.conv(graph.input("data", [1, 3, 32, 32]), 3, 32, 3)
    return [graph.conv(graph.node("CumSum", first, graph.weight(np.array(2, np.int64))), 32, 16, 3)]


def both(graph: Graph) -> list[str]:
    """One tensor that device and CPU both read, a constant that the CPU reads, and results of both sides as outputs."""
    first = graph.node("Relu", graph.conv(graph.input("data", [1, 3, 32, 32]), 3, 32, 3))
    places, values = graph.weight(np.array([[0, 3], [0, 5]], np.int64)), graph.normal(2, 30, 30)
    scattered = graph.node("ScatterND", first, places, values)
    return [graph.conv(first, 32, 16, 3), scattered, graph.conv(scattered, 32, 8, 3), first]


def pairs(graph: Graph) -> list[str]:
    """A function with two results on the CPU, which a layer reads further on."""
    layer = graph.conv(graph.input("data", [1, 3, 32, 32]), 3, 16, 3)
    most = graph.node("TopK", layer, graph.weight(np.array([8], np.int64)), outputs=2, axis=3)
    return [graph.conv(most, 16, 32, 3), graph.node("Cast", f"{most}_1", to=onnx.TensorProto.FLOAT)]


def views(graph: Graph) -> list[str]:
    data, along = graph.input("data", [1, 3, 32, 32]), graph.weight(np.array(2, np.int64))
    sums = graph.node("CumSum", graph.conv(data, 3, 32, 3), along)
    summed_input = graph.node("CumSum", graph.reshape(data, 1, 3, 1024), along)
    wide = graph.conv(graph.reshape(sums, 1, 32, 15, 60), 32, 16, 3)
    return [wide, graph.reshape(sums, 1, 32, 900), summed_input, data, graph.node("Identity", graph.normal(4, 5))]


def lowered(graph: Graph, outputs: list[str], folder: Path, board: str = BOARD) -> Lowered:
    return lower_network(read_onnx(graph.save(folder / "net.onnx", *outputs)), load_board(board))


def copies(network: Lowered) -> int:
    return sum(is_call(each.value, "relax.call_dps_packed") for each in bindings_of(network.module["main"]))


@pytest.mark.parametrize("network", [classifier, summed, both, pairs, views])
def test_networks_on_both_sides_agree_with_onnxruntime(opencl: Any, network: Any, tmp_path: Path) -> None:
    graph = Graph(opset=16)
    path = graph.save(tmp_path / "net.onnx", *network(graph))
    built = packaged(path, BOARD)
    assert built.error <= 1
    assert built.compiled.on_cpu
    assert built.compiled.functions.keys() - built.compiled.on_cpu.keys()
    assert_always_agrees(built, read_onnx(path))


def test_little_work_at_the_end_stays_beside_its_reader(tmp_path: Path) -> None:
    graph = Graph()
    network = lowered(graph, classifier(graph), tmp_path)
    assert [why for name, why in network.on_cpu.items() if name.startswith("softmax")] == [LITTLE_WORK]
    assert not any("conv" in name for name in network.on_cpu)
    assert copies(network) == 1


def test_little_work_between_layers_of_the_device_stays_there(tmp_path: Path) -> None:
    graph, data = begun(1, 3, 32, 32)
    layer = graph.conv(data, 3, 64, 3)
    scale = graph.node("Sigmoid", graph.conv(graph.node("GlobalAveragePool", layer), 64, 64, 1))
    network = lowered(graph, [graph.conv(graph.node("Mul", layer, scale), 64, 64, 3)], tmp_path)
    assert not network.on_cpu
    assert copies(network) == 0


def test_a_tensor_is_copied_once_for_all_who_read_it(tmp_path: Path) -> None:
    graph = Graph(opset=16)
    layer = graph.conv(graph.input("data", [1, 3, 32, 32]), 3, 32, 3)
    axes = [graph.weight(np.array(axis, np.int64)) for axis in (1, 2, 3)]
    network = lowered(graph, [graph.node("CumSum", layer, axis) for axis in axes], tmp_path)
    assert list(network.on_cpu.values()).count(NO_SCHEDULE) == 3
    assert copies(network) == 1


def test_a_profile_can_keep_all_that_it_can_on_the_device(tmp_path: Path) -> None:
    board = write_profile(tmp_path, BOARD, devices=[{"backend": "opencl", "kind": "generic", "little_work": 0}])
    graph = Graph()
    assert not lowered(graph, classifier(graph), tmp_path, board).on_cpu


def test_functions_of_one_shape_are_on_one_side_each(tmp_path: Path) -> None:
    graph, data = begun(1, 8, 16, 16)
    layer = graph.conv(graph.node("MaxPool", graph.node("Sigmoid", data), kernel_shape=[1, 1]), 8, 64, 3)
    network = lowered(graph, [layer, graph.node("Sigmoid", graph.node("MaxPool", data, kernel_shape=[1, 1]))], tmp_path)
    called = {str(call.args[0].name_hint) for _, call in calls_of(network.module["main"])}
    assert not {name for name in called & network.on_cpu.keys() if name.startswith("sigmoid")}


def test_explain_says_what_runs_on_the_cpu_and_why(opencl: Any, command: Command, tmp_path: Path) -> None:
    graph = Graph(opset=16)
    path = graph.save(tmp_path / "net.onnx", *summed(graph))
    build = "build", path, "--board", BOARD, "--explain"
    [built] = json_of(command, *build)
    assert {each["function"]: each["cpu"] for each in built["functions"] if each["cpu"]}["cumsum"] == NO_SCHEDULE
    assert f"on the CPU: {NO_SCHEDULE}" in " ".join(output_of(command, *build).split())


def test_a_board_without_a_device_has_no_two_sides(tmp_path: Path) -> None:
    graph = Graph()
    network = lowered(graph, classifier(graph), tmp_path, "local")
    assert not network.on_cpu
    assert not network.module.global_infos
    assert all(each["cpu"] is None for each in explain(network)["functions"])


# Networks that are built for an OpenCL device run there, and give onnxruntime's outputs, whatever their layers.


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
    board = put(tmp_path / "device.yaml", PROFILE.replace("kind: generic", f"kind: generic, little_work: 0, {sizes}"))
    built = packaged(path, str(board))
    assert built.error <= 1
    assert {template.split()[0] for template in built.compiled.templates.values()} == {"gpu"}


def test_a_work_group_is_whole_inner_loops_and_a_part_of_the_next() -> None:
    assert group_parts([1, 56, 14, 32], group_size(56 * 14 * 32, 64, 16)) == [1, 1, 2, 32]
    # Seven groups for each unit at least.
    assert group_parts([1, 7, 1, 16], group_size(7 * 16, 64, 16)) == [1, 1, 1, 4]
    assert group_parts([3], group_size(3, 64, 16)) == [1]
