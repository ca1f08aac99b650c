"""Compiled networks give onnxruntime's outputs, whatever their layers' shapes, in memory that is planned before."""

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import SHARED, Command
from onnx import TensorProto
from support.agreement import NETWORKS, agreeing, assert_matches_reference, network_of, random_inputs
from support.commands import json_of, output_of
from support.networks import Graph, begun, of_bytes

from edgedeploy.compile.backends.cpu import winograd
from edgedeploy.compile.backends.cpu.tiles import ConvolutionShape, choose_tile, whole_columns
from edgedeploy.compile.ir.expressions import constant_value, parts_of
from edgedeploy.compile.ir.types import FLOAT32
from edgedeploy.compile.output import codegen
from edgedeploy.compile.output.explain import transposes
from edgedeploy.compile.pipeline import Compiled, compile_network, lower_network
from edgedeploy.compile.tiles import padded_count
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.package.archive import read_manifest
from edgedeploy.package.manifest import Memory
from edgedeploy.runtime.session import Session
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles


@pytest.mark.parametrize(
    ("size", "inputs", "outputs", "kernel", "attributes"),
    [
        ((14, 14), 32, 64, 1, {}),
        ((7, 7), 64, 96, 1, {}),
        ((28, 30), 16, 32, 3, {"pads": [1, 1, 1, 1]}),
        ((27, 27), 16, 48, 3, {"strides": [2, 2]}),
        ((33, 17), 3, 16, 3, {"strides": [2, 2], "pads": [0, 0, 1, 1]}),
        ((20, 20), 8, 24, 5, {"pads": [2, 2, 2, 2]}),
        ((20, 20), 8, 16, 3, {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
        ((13, 13), 32, 64, 3, {"group": 4, "pads": [1, 1, 1, 1]}),
        ((9, 11), 10, 21, 1, {}),
        ((9, 11), 5, 7, 3, {"pads": [1, 1, 1, 1]}),
        ((1, 1), 32, 10, 1, {}),
        ((8, 9), 6, 255, 1, {}),
        ((12, 12), 4, 8, 1, {"strides": [2, 2]}),
        ((10, 10), 16, 32, 3, {"bias": False}),
        ((9, 9), 8, 16, 3, {"group": 8, "pads": [1, 1, 1, 1]}),
        ((14, 14), 64, 64, 3, {"group": 64, "pads": [1, 1, 1, 1]}),
        ((15, 15), 32, 32, 3, {"group": 32, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((16, 12), 24, 24, 5, {"group": 24, "pads": [2, 2, 2, 2]}),
        ((11, 13), 7, 7, 3, {"group": 7, "pads": [1, 0, 0, 1]}),
        ((10, 10), 16, 16, 7, {"group": 16}),
    ],
)
def test_convolution(size: tuple, inputs: int, outputs: int, kernel: int, attributes: dict) -> None:
    graph, data = begun(1, inputs, *size)
    compiled = agreeing(graph, graph.node("Relu", graph.conv(data, inputs, outputs, kernel, **attributes)))
    is_depthwise = attributes.get("group") == inputs == outputs
    templates = {"depthwise convolution"} if is_depthwise else {"convolution", "winograd convolution"}
    assert templates & set(compiled.templates.values())


@pytest.mark.parametrize(
    ("size", "attributes", "trimmed"),
    [
        ((20, 20), {"dilations": [24, 24], "pads": [24] * 4}, (1, 1)),
        ((20, 9), {"dilations": [12, 12], "pads": [12] * 4}, (3, 1)),
        ((9, 9), {"dilations": [10, 1], "pads": [10, 1, 10, 1]}, (1, 3)),
        ((9, 9), {"dilations": [10, 2], "pads": [12, 2, 0, 2], "strides": [2, 1]}, (2, 3)),
        ((7, 7), {"dilations": [6, 6], "pads": [13, 0, 13, 14]}, (3, 2)),
        ((6, 6), {"dilations": [1, 1], "pads": [9, 9, 9, 9]}, (3, 3)),
    ],
)
def test_kernel_elements_in_padding_alone_are_left_out(size: tuple, attributes: dict, trimmed: tuple[int, int]) -> None:
    graph, data = begun(1, 8, *size)
    compiled = agreeing(graph, graph.conv(graph.node("Relu", graph.conv(data, 8, 8, 1)), 8, 16, 3, **attributes))
    assert 8 * 16 * math.prod(trimmed) in [constant.size for constant in constants_of(compiled)]


@pytest.mark.parametrize("bias", [False, True])
def test_batch_normalisation_folds_into_the_convolution(bias: bool) -> None:
    graph, data = begun(1, 16, 10, 10)
    normalised = graph.batch_norm(graph.conv(data, 16, 32, 3, bias=bias), 32)
    compiled = agreeing(graph, graph.node("Relu", normalised))
    [kernel] = [name for name in compiled.templates if "conv2d" in name]
    assert "multiply" not in kernel
    assert kernel.count("add") == 1


def test_batch_normalisation_of_a_tensor_with_another_use_is_not_folded() -> None:
    graph, data = begun(1, 16, 10, 10)
    convolved = graph.conv(data, 16, 16, 1)
    agreeing(graph, graph.node("Add", graph.batch_norm(convolved, 16), graph.node("Relu", convolved)))


def test_batch_normalisation_without_a_convolution() -> None:
    graph = Graph()
    agreeing(graph, graph.batch_norm(graph.input("data", [1, 5, 6, 6]), 5))


def other_layers(graph: Graph, data: str) -> dict[str, str]:
    return {
        "max pool": graph.node("MaxPool", data, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        "max pool with ceiling": graph.node("MaxPool", data, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        "average pool": graph.node("AveragePool", data, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        "global average pool": graph.node("GlobalAveragePool", data),
        "global max pool": graph.node("GlobalMaxPool", data),
        "concat": graph.node("Concat", data, graph.node("Relu", data), axis=1),
        "pad": graph.node("Pad", data, graph.weight(np.array([0, 0, 1, 2, 0, 0, 3, 0], np.int64))),
        "nearest resize": graph.doubled(data, nearest_mode="floor"),
        "linear resize": graph.doubled(data, "linear"),
        "transpose": graph.node("Transpose", data, perm=[0, 2, 3, 1]),
        "reshape": graph.reshape(data, 1, -1, 6),
        "slice": graph.node("Slice", data, *(graph.weight(np.array([value])) for value in (2, 11, 2, 1))),
        "mean over everything": graph.node("ReduceMean", data, axes=[1, 2, 3], keepdims=0),
    }


@pytest.mark.parametrize("name", other_layers(Graph(), "data"))
def test_layer_after_a_convolution(name: str) -> None:
    graph, data = begun(1, 6, 14, 13)
    agreeing(graph, other_layers(graph, graph.conv(data, 6, 12, 3))[name])


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(1, 64, 10), (1, 33, 128), (5, 40, 24), (1, 20, 7), (13, 30, 41)]
)
def test_fully_connected_layer(rows: int, inputs: int, outputs: int) -> None:
    graph, data = begun(rows, inputs)
    product = graph.node("Gemm", data, graph.normal(outputs, inputs), graph.normal(outputs), transB=1)
    assert agreeing(graph, graph.node("Relu", product)).templates.popitem()[1] == "matmul"


@pytest.mark.parametrize(
    ("data", "weights", "added"),
    [
        ((3, 53, 64), (3, 64, 96), (1, 3, 53, 96)),
        ((2, 53, 64), (2, 64, 97), (2, 2, 53, 97)),
        ((53, 8), (8, 9), (2, 53, 9)),
    ],
    ids=str,
)
def test_a_product_beside_an_operand_of_more_dimensions(data: tuple, weights: tuple, added: tuple) -> None:
    graph = Graph()
    product = graph.node("MatMul", graph.input("a", list(data)), graph.input("b", list(weights)))
    agreeing(graph, graph.node("Add", product, graph.input("c", list(added))))


def test_products_of_integers_whose_columns_fill_no_tile() -> None:
    graph = Graph()
    data = graph.node("Cast", graph.input("data", [2, 7, 5]), to=TensorProto.INT64)
    weights = graph.node("Cast", graph.input("weights", [2, 5, 11]), to=TensorProto.INT64)
    agreeing(graph, graph.node("Cast", graph.node("MatMul", data, weights), to=TensorProto.FLOAT))


@pytest.mark.parametrize("tokens", [197, 196, 50])
def test_attention_of_any_number_of_tokens(tokens: int) -> None:
    """Scores have as many columns as there are tokens, and 197 is prime."""
    width, heads = 32, 2
    graph, data = begun(1, tokens, width)

    def projected() -> str:
        result = graph.node("Add", graph.node("MatMul", data, graph.normal(width, width)), graph.normal(width))
        return graph.node("Transpose", graph.reshape(result, 1, tokens, heads, width // heads), perm=[0, 2, 1, 3])

    query, key, value = projected(), projected(), projected()
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 1, 3, 2]))
    mixed = graph.node("MatMul", graph.node("Softmax", scores, axis=3), value)
    mixed = graph.reshape(graph.node("Transpose", mixed, perm=[0, 2, 1, 3]), 1, tokens, width)
    compiled = agreeing(graph, graph.node("Add", graph.node("MatMul", mixed, graph.normal(width, width)), data))
    assert {template for name, template in compiled.templates.items() if "matmul" in name} == {"matmul"}


def test_a_network_without_a_convolution() -> None:
    graph, data = begun(3, 50)
    agreeing(graph, graph.node("Softmax", graph.node("Exp", data), axis=-1), graph.node("Abs", data))


def test_several_inputs_keep_their_order() -> None:
    graph = Graph()
    second, first = graph.input("second", [2, 5]), graph.input("first", [2, 5])
    agreeing(graph, graph.node("Sub", second, first))


def test_weights_too_small_for_a_normal_float_become_zero() -> None:
    graph, data = begun(1, 16, 8, 8)
    weights = np.full((16, 16, 1, 1), 1e-40, np.float32)
    weights[0] = 1
    compiled = agreeing(graph, graph.node("Conv", data, graph.weight(weights)))
    smallest = np.finfo(np.float32).tiny
    for constant in constants_of(compiled):
        assert not ((constant != 0) & (np.abs(constant) < smallest)).any()


def constants_of(compiled: Compiled) -> list[np.ndarray]:
    values = map(constant_value, parts_of(compiled.module["main"]))
    return [value for value in values if value is not None]


@pytest.mark.parametrize(("channels", "padded"), [(255, 256), (17, 32), (16, 16), (10, 16), (5, 8), (3, 4), (1, 4)])
def test_channels_fill_whole_vectors(channels: int, padded: int) -> None:
    assert padded_count(channels, 16) == padded


@pytest.mark.parametrize("between", ["relu", "prelu", "sigmoid", "max pool", "depthwise", "add", "resize"])
def test_channels_stay_padded_up_to_the_next_convolution(between: str) -> None:
    graph, data = begun(1, 3, 12, 12)
    first = graph.conv(data, 3, 21, 3)
    result = {
        "relu": lambda: graph.node("Relu", first),
        "prelu": lambda: graph.node("PRelu", first, graph.normal(21, 1, 1)),
        "sigmoid": lambda: graph.node("Sigmoid", first),
        "max pool": lambda: graph.node("MaxPool", first, kernel_shape=[2, 2]),
        "depthwise": lambda: graph.conv(first, 21, 21, 3, group=21),
        "add": lambda: graph.node("Add", first, graph.conv(data, 3, 21, 3)),
        "resize": lambda: graph.doubled(first, nearest_mode="floor"),
    }[between]()
    compiled = agreeing(graph, graph.conv(result, 21, 16, 1))
    assert not [name for name in compiled.templates if "slice" in name]


@pytest.mark.parametrize(
    ("size", "inputs", "outputs", "kernel", "attributes"),
    [
        (7, 512, 64, 3, {"pads": [1, 1, 1, 1]}),
        (15, 480, 96, 3, {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        (9, 384, 200, 5, {}),
        (7, 1024, 160, 1, {}),
        (6, 600, 64, 3, {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
    ],
)
def test_small_images_with_many_weights(size: int, inputs: int, outputs: int, kernel: int, attributes: dict) -> None:
    """Their weights are used slice by slice, and the next slice is fetched meanwhile."""
    graph, data = begun(1, inputs, size, size)
    compiled = agreeing(graph, graph.node("Relu", graph.conv(data, inputs, outputs, kernel, **attributes)))
    in_winograds_form = load_board("local").vector.bits < 512 and attributes == {"pads": [1, 1, 1, 1]}
    assert ("winograd convolution" if in_winograds_form else "convolution") in compiled.templates.values()


@pytest.mark.parametrize("pads", [[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 2, 2], [1, 0, 0, 0], [0, 1, 3, 0]])
@pytest.mark.parametrize("kernel", [1, 3])
def test_padding_on_one_side_is_zero(pads: list[int], kernel: int) -> None:
    graph = Graph()
    first = graph.conv(graph.input("data", [1, 3, 9, 8]), 3, 16, 1)
    agreeing(graph, graph.conv(first, 16, 16, kernel, pads=pads))


def test_one_channel_behind_padded_ones_is_filtered_by_itself() -> None:
    graph = Graph()
    narrow = graph.conv(graph.input("data", [1, 16, 12, 12]), 16, 1, 1)
    compiled = agreeing(graph, graph.conv(narrow, 1, 1, 3, pads=[1] * 4))
    assert "depthwise convolution" in compiled.templates.values()


@pytest.mark.parametrize("kernel", [1, 5])
def test_a_single_pixel_is_computed_by_several_vectors(kernel: int) -> None:
    """One vector's multiply-adds would each wait for the last; 124 channels are 31 vectors of 4."""
    graph = Graph()
    compiled = agreeing(graph, graph.conv(graph.input("data", [1, 24, kernel, kernel]), 24, 124, kernel))
    assert compiled.templates
    profile = load_board("rpi4")
    assert whole_columns(1, 124, padded_count(124, 4), FLOAT32, profile) == 128
    assert choose_tile(ConvolutionShape(1, 1, 128, (kernel, kernel), 24, FLOAT32), profile).channels >= 16


def test_a_division_by_padded_channels_makes_no_nan() -> None:
    graph, data = begun(1, 3, 6, 6)
    divisor = graph.weight(graph.random.uniform(1, 2, (1, 21, 1, 1)).astype(np.float32))
    agreeing(graph, graph.conv(graph.node("Div", graph.conv(data, 3, 21, 3), divisor), 21, 8, 1))


@pytest.mark.parametrize(
    ("size", "attributes"),
    [
        ((32, 32), {"pads": [1, 1, 1, 1]}),
        ((31, 33), {"strides": [2, 2], "pads": [1, 1, 0, 0]}),
        ((17, 40), {"dilations": [2, 3], "pads": [2, 3, 2, 3]}),
        ((20, 20), {}),
        ((9, 227), {"strides": [2, 2]}),
    ],
)
def test_the_first_convolution_reads_the_planes_as_they_come(size: tuple, attributes: dict) -> None:
    graph, data = begun(1, 3, *size)
    compiled = agreeing(graph, graph.conv(graph.conv(data, 3, 16, 3, **attributes), 16, 8, 1))
    # One transpose is left, that of the output.
    assert [name for name in compiled.templates if "transpose" in name] == ["transpose_scheduled"]


@pytest.mark.parametrize("pooled", [False, True])
def test_a_convolution_of_concatenated_channels_copies_nothing(pooled: bool) -> None:
    graph, data = begun(1, 16, 12, 12)
    parts = [graph.node("Relu", graph.conv(data, 16, 32, kernel, pads=[kernel // 2] * 4)) for kernel in (1, 3)]
    joined = graph.node("Concat", *parts, axis=1)
    if pooled:
        joined = graph.node("MaxPool", joined, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    compiled = agreeing(graph, graph.node("Relu", graph.conv(joined, 64, 16, 1)))
    assert not [name for name in compiled.templates if "concat" in name]


def test_concatenated_channels_that_are_read_twice_are_joined_once() -> None:
    graph, data = begun(1, 16, 12, 12)
    joined = graph.node("Concat", graph.conv(data, 16, 32, 1), graph.conv(data, 16, 8, 1), axis=1)
    result = graph.node("Add", graph.conv(joined, 40, 16, 1), graph.conv(joined, 40, 16, 3, pads=[1] * 4))
    assert [name for name in agreeing(graph, result).templates if "concat" in name]


def test_the_boxes_and_scores_of_a_head_are_computed_part_by_part() -> None:
    """Also where boxes need the same distances twice: with conditions inside, each score would look for its place."""
    graph, data = begun(1, 16, 8, 8)
    features = graph.conv(data, 16, 12, 1), graph.conv(data, 16, 12, 3, pads=[1] * 4, strides=[2, 2])
    flat = [graph.reshape(each, 1, 12, size) for each, size in zip(features, (64, 16), strict=True)]
    joined = graph.node("Concat", *flat, axis=2)
    left, right, scores = (graph.slice(joined, start, end, 1) for start, end in ((0, 2), (2, 4), (4, 12)))
    box = graph.node("Add", left, right), graph.node("Sub", right, left)
    compiled = agreeing(graph, graph.node("Concat", *box, graph.node("Sigmoid", scores), axis=1))
    [code] = [str(function) for name, function in compiled.module.functions.items() if "sigmoid" in name.name_hint]
    assert code.count("T.vectorized") == code.count("pragma_loop_partition_hint")


@pytest.mark.quick("size0-channels0-*", "size1-channels2-*", "size2-channels1-*")
# Each size with each number of channels, and both with each padding.
@pytest.mark.parametrize(
    ("size", "channels", "pads"),
    [
        (size, channels, [[1, 1, 1, 1], [0, 0, 0, 0], [0, 1, 2, 3]][(row + column) % 3])
        for row, size in enumerate([(56, 56), (13, 31), (9, 40)])
        for column, channels in enumerate([(64, 64), (16, 64), (48, 24)])
    ],
)
def test_winograd_convolution(monkeypatch: pytest.MonkeyPatch, size: tuple, channels: tuple, pads: list) -> None:
    monkeypatch.setattr(winograd, "direct_cycles", lambda *_: math.inf)
    graph = Graph()
    data = graph.conv(graph.input("data", [1, 3, *size]), 3, channels[0], 1)
    compiled = agreeing(graph, graph.node("Relu", graph.conv(data, *channels, 3, pads=pads)))
    assert "winograd convolution" in compiled.templates.values()


def test_the_parts_of_a_split_go_separate_ways() -> None:
    graph = Graph()
    data = graph.conv(graph.input("data", [1, 16, 12, 12]), 16, 32, 3, pads=[1] * 4)
    first = graph.node("Split", data, outputs=2, axis=1)
    agreeing(graph, graph.node("Add", graph.conv(first, 16, 16, 1), f"{first}_1"))


# Memory is planned when a network is built; running it takes no more of it, however often.


def planned(graph: Graph, *outputs: str) -> Memory:
    return compile_network(network_of(graph, *outputs), load_board("local")).code.memory


def chain_of(length: int, size: int = 32) -> tuple[Graph, str]:
    """As many convolutions, each to 16 channels of the same feature map."""
    graph, data = begun(1, 16, size, size)
    for _ in range(length):
        data = graph.conv(data, 16, 16, 3, bias=False, pads=[1, 1, 1, 1])
    return graph, data


@pytest.mark.parametrize("length", [2, 7])
def test_a_long_chain_of_layers_shares_two_tensors(length: int) -> None:
    image = 16 * 32 * 32 * 4
    # Two feature maps between layers, of which each reads one and writes the other, and the output.
    assert planned(*chain_of(length)).workspace_bytes <= 3 * image


def test_constants_are_the_weights() -> None:
    assert planned(*chain_of(3)).constants_bytes >= 3 * 16 * 16 * 9 * 4


def test_scratch_holds_a_padded_block_of_rows_but_no_whole_feature_map() -> None:
    graph = Graph()
    layer = graph.conv(graph.input("data", [1, 16, 64, 64]), 16, 16, 5, pads=[2, 2, 2, 2])
    needed = planned(graph, graph.conv(layer, 16, 16, 5, pads=[2, 2, 2, 2]))
    assert 0 < needed.scratch_bytes < 16 * 68 * 68 * 4


def test_a_network_without_work_needs_only_its_output() -> None:
    graph = Graph()
    needed = planned(graph, graph.node("Abs", graph.input("data", [1, 100])))
    assert (needed.workspace_bytes, needed.scratch_bytes, needed.constants_bytes) == (400, 0, 0)


def test_the_manifest_and_the_command_tell_it(command: Command, tmp_path: Path) -> None:
    graph, output = chain_of(2)
    path = graph.save(tmp_path / "net.onnx", output)
    [built] = json_of(command, "build", path)
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
    graph, output = chain_of(4, size=64)
    path = graph.save(tmp_path / "net.onnx", graph.node("GlobalAveragePool", output))
    session = Session.open(Path(json_of(command, "build", path)[0]["package"]))
    tensors = {"data": np.ones((1, 16, 64, 64), np.float32)}
    for _ in range(20):
        session.run(tensors)
    before = allocated()
    for _ in range(300):
        session.run(tensors)
    # Less than one tensor between two layers.
    assert allocated() - before < 16 * 64 * 64 * 4


# Tensors of several types take turns in memory, and nobody writes what somebody reads yet.


def test_floats_lie_where_bytes_lay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes become fewer and fewer, and then floats, of which the first ones are read last."""
    graph, data = of_bytes(1, 3, 32, 32)
    first = graph.pair(graph.convolution(data, 3, 16), 0.05, np.uint8(100))
    pooled = graph.pair(graph.node("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2]), 0.05, np.uint8(100))
    floats = graph.convolution(pooled, 16, 5)
    gate = graph.node("Softmax", floats, axis=1)
    network = network_of(graph, graph.node("Mul", graph.node("Softmax", gate, axis=3), floats))
    local = load_board("local")
    assert_matches_reference(network, random_inputs(network), rtol=1e-4, atol=1e-6)
    shared = compile_network(network, local).code.memory.workspace_bytes
    monkeypatch.setattr(codegen, "share_storages", lambda module: module)
    assert shared < compile_network(network, local).code.memory.workspace_bytes


def test_networks_of_one_type_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, data = begun(1, 3, 32, 32)
    first = graph.node("MaxPool", graph.conv(data, 3, 16, 3, pads=[1] * 4), kernel_shape=[2, 2], strides=[2, 2])
    network, local = network_of(graph, graph.conv(first, 16, 5, 3)), load_board("local")
    before = compile_network(network, local).code.executable.as_text()
    monkeypatch.setattr(codegen, "share_storages", lambda module: module)
    assert before == compile_network(network, local).code.executable.as_text()


# What no output needs is removed: channels that are constant or that nothing reads, and transposes.

DEAD = [0, 3, 4, 11, 19]
ALL = 20  # channels
LOST = (ALL, ALL - len(DEAD))
PADDED = [1, 1, 1, 1]


def removed(graph: Graph, *outputs: str) -> list[tuple[int, int]]:
    """How many channels layers had and have, where some are gone; the outputs are onnxruntime's."""
    return [(layer.before, layer.after) for layer in agreeing(graph, *outputs, tolerance=1e-5).removed]


def image(graph: Graph) -> str:
    return "data" if graph.inputs else graph.input("data", [1, 3, 12, 12])


def filters(graph: Graph, shape: tuple[int, ...], value: float = 0.0, axis: int = 0) -> str:
    """Weights of a convolution; along an axis, those of the channels in `DEAD` have a value."""
    weights = graph.random.standard_normal(shape).astype(np.float32) * np.float32(0.3)
    np.moveaxis(weights, axis, 0)[DEAD] = value
    return graph.weight(weights)


def dead(graph: Graph, bias: float) -> str:
    """A convolution to `ALL` channels; the filters of those in `DEAD` are nearly zero, and they have one bias."""
    biases = graph.random.standard_normal(ALL).astype(np.float32)
    biases[DEAD] = bias
    return graph.node("Conv", image(graph), filters(graph, (ALL, 3, 3, 3), 1e-40), graph.weight(biases))


def relu(graph: Graph, data: str) -> str:
    return graph.node("Relu", data)


def wide(graph: Graph) -> str:
    """A convolution whose channels are all alive."""
    return graph.conv(image(graph), 3, ALL, 3)


def pooled(graph: Graph, bias: float) -> str:
    return graph.node("AveragePool", dead(graph, bias), kernel_shape=[3, 3], pads=PADDED, count_include_pad=1)


def depthwise(graph: Graph, bias: float, pads: int) -> str:
    return relu(graph, graph.conv(relu(graph, dead(graph, bias)), ALL, ALL, 3, group=ALL, pads=[pads] * 4))


def flattened(graph: Graph) -> str:
    flat = graph.node("Flatten", graph.node("MaxPool", dead(graph, 0.5), kernel_shape=[5, 5], strides=[5, 5]))
    return relu(graph, graph.node("Gemm", flat, graph.normal(16, ALL * 4), graph.normal(16), transB=1))


def concatenated(graph: Graph) -> str:
    parts = [dead(graph, 0.5), graph.conv(image(graph), 3, 7, 3), dead(graph, -2)]
    return relu(graph, graph.node("Concat", *parts, axis=1))


def inverted(graph: Graph) -> str:
    """Bounded inverses: those of the channels in `DEAD` were infinite."""
    data = graph.node("Conv", graph.node("Abs", image(graph)), filters(graph, (ALL, 3, 1, 1)))
    return graph.clip(graph.node("Div", graph.weight(np.float32(1)), data), -4, 4)


def read_by_removed_alone(graph: Graph) -> str:
    first = relu(graph, graph.conv(image(graph), 3, 4, 1))
    weights = graph.random.standard_normal((ALL, 4, 1, 1)).astype(np.float32)
    weights[:, 2] = 0
    weights[7, 2] = 1  # the only reader of channel 2, that nothing reads
    second = graph.node("Conv", first, graph.weight(weights))
    unread = graph.random.standard_normal((8, ALL, 1, 1)).astype(np.float32)
    unread[:, 7] = 0
    return graph.node("Conv", second, graph.weight(unread))


def constant(graph: Graph) -> str:
    nothing = graph.node("Conv", image(graph), graph.weight(np.zeros((6, 3, 3, 3), np.float32)), graph.normal(6))
    return graph.conv(relu(graph, nothing), 6, 8, 1)


def then(graph: Graph, data: str, channels: int = ALL, kernel: int = 1, **attributes: object) -> str:
    return graph.conv(data, channels, 8, kernel, **attributes)


CASES: dict[str, tuple[Callable[[Graph], str], list[tuple[int, int]]]] = {
    "zero after its activation, before padding": (
        lambda g: then(g, relu(g, dead(g, -0.5)), kernel=3, pads=PADDED),
        [LOST],
    ),
    "another constant goes into the bias": (lambda g: then(g, relu(g, dead(g, 0.75))), [LOST]),
    "into that of a larger kernel": (lambda g: then(g, relu(g, dead(g, 0.75)), kernel=3), [LOST]),
    # At the border, the sum takes zeros where inside it takes the constant.
    "not where the layer pads": (lambda g: then(g, relu(g, dead(g, 0.75)), kernel=3, pads=PADDED), []),
    "nor on one side": (lambda g: then(g, relu(g, dead(g, 0.75)), kernel=3, pads=[0, 0, 0, 1]), []),
    "a bias that there is": (lambda g: then(g, dead(g, 0.75)), [LOST]),
    "a bias that is made": (lambda g: then(g, dead(g, 0.75), bias=False), [LOST]),
    "an average that counts padding passes zeros": (lambda g: then(g, pooled(g, 0.0)), [LOST]),
    "and no other constants": (lambda g: then(g, pooled(g, 0.5)), []),
    "zeros through a padded depthwise layer": (lambda g: then(g, depthwise(g, -0.5, 1)), [LOST] * 2),
    "constants through a depthwise layer": (lambda g: then(g, depthwise(g, 0.5, 0)), [LOST] * 2),
    "no constants through a padded one": (lambda g: then(g, depthwise(g, 0.5, 1)), []),
    # What the depthwise layer does not read need not be computed either.
    "depthwise filters of zeros": (
        lambda g: then(g, g.node("Conv", wide(g), filters(g, (ALL, 1, 3, 3)), group=ALL)),
        [LOST] * 2,
    ),
    "a sum loses what both sides lose": (lambda g: then(g, g.node("Add", dead(g, 0.5), dead(g, -0.25))), [LOST] * 2),
    "and keeps what one side keeps": (lambda g: then(g, g.node("Add", dead(g, 0.5), wide(g))), []),
    "concatenated channels keep their places": (lambda g: then(g, concatenated(g), 2 * ALL + 7, kernel=3), [LOST] * 2),
    "flattened, into the bias of a fully connected layer": (flattened, [LOST]),
    "what no weight reads": (lambda g: g.node("Conv", relu(g, wide(g)), filters(g, (8, ALL, 1, 1), axis=1)), [LOST]),
    "what only removed channels read": (read_by_removed_alone, [(4, 3), (ALL, ALL - 1)]),
    "outputs keep their shapes": (lambda g: dead(g, 0.5), []),
    "a network that is constant altogether can be built": (constant, [(6, 1)]),
    "infinite channels are left alone": (lambda g: then(g, inverted(g)), []),
}


@pytest.mark.parametrize("name", CASES)
def test_channels_are_removed_where_that_changes_no_output(name: str) -> None:
    graph = Graph()
    make, expected = CASES[name]
    assert removed(graph, make(graph)) == expected


def test_a_tensor_with_another_use_keeps_its_channels() -> None:
    graph = Graph()
    data = dead(graph, 0.5)
    assert removed(graph, then(graph, data), graph.node("Abs", data)) == []


def between(graph: Graph, data: str) -> dict[str, str]:
    """What may lie between the layer that puts constants out and the one that takes them in."""
    return {
        "prelu": graph.node("PRelu", data, graph.normal(ALL, 1, 1)),
        "leaky relu": graph.node("LeakyRelu", data, alpha=0.1),
        "clip": graph.clip(data, 0, 6),
        "sigmoid": graph.node("Sigmoid", data),
        "tanh": graph.node("Tanh", data),
        "swish": graph.node("Mul", data, graph.node("Sigmoid", data)),
        "batch norm": graph.batch_norm(graph.node("Relu", data), ALL),
        "scale and shift": graph.node("Add", graph.node("Mul", data, graph.normal(1)), graph.normal(1, ALL, 1, 1)),
        "max pool": graph.node("MaxPool", data, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        "average pool": graph.node("AveragePool", data, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        "global average pool": graph.node("GlobalAveragePool", data),
        "resize": graph.doubled(data, nearest_mode="floor"),
    }


@pytest.mark.quick("0.75-*", "*-prelu")
@pytest.mark.parametrize("name", between(Graph(), "data"))
@pytest.mark.parametrize("bias", [0.0, 0.75, -0.75])
def test_constants_pass_through_what_lies_between(name: str, bias: float) -> None:
    graph = Graph()
    assert removed(graph, then(graph, between(graph, dead(graph, bias))[name])) == [LOST]


# Transposes that move nothing, or that constant weights can take over, are left out.


# What is left: outputs in NCHW; softmax over pairs of channels that a reshape takes from NCHW (RetinaFace).
LEFT = {
    "lite": (1, 0),
    "retinaface_mnet25_316x474": (6, 3),
    "retinaface_mnet25_dyn": (6, 3),
    "yolo-fastest-1.1_320": (2, 0),
    "yolo-lite-voc_224": (1, 0),
}


def left_in(graph: Graph, *outputs: str) -> int:
    """How many transposes are left of a graph, whose outputs are onnxruntime's."""
    return sum(transposes(agreeing(graph, *outputs, tolerance=1e-5)).values())


def convolved(channels: int = 16) -> tuple[Graph, str]:
    graph, data = begun(1, 3, 12, 10)
    return graph, graph.conv(data, 3, channels, 3)


def test_an_image_of_one_pixel_is_not_transposed() -> None:
    graph, data = convolved()
    pooled = graph.node("GlobalAveragePool", data)
    assert left_in(graph, graph.node("Flatten", pooled), pooled) == 0


def test_an_image_of_one_channel_is_not_transposed() -> None:
    graph, data = convolved(channels=1)
    assert left_in(graph, graph.node("Sigmoid", data)) == 0


def test_a_softmax_over_channels_keeps_the_layout() -> None:
    graph, data = convolved()
    assert left_in(graph, graph.conv(graph.node("Softmax", data, axis=1), 16, 8, 1)) == 1


def test_a_transpose_of_the_network_and_that_of_the_layout_cancel() -> None:
    graph, data = convolved()
    assert left_in(graph, graph.reshape(graph.node("Transpose", data, perm=[0, 2, 3, 1]), 1, -1, 4)) == 0


def test_a_fully_connected_layer_reads_a_flattened_image_as_it_lies() -> None:
    graph, data = convolved()
    flat = graph.node("Flatten", graph.node("MaxPool", data, kernel_shape=[2, 2], strides=[2, 2]))
    assert left_in(graph, graph.node("Gemm", flat, graph.normal(10, 16 * 20), graph.normal(10), transB=1)) == 0


def test_it_reads_several_of_them_beside_each_other() -> None:
    graph, first = convolved()
    second = graph.conv(first, 16, 8, 3)
    flat = [graph.node("Flatten", each) for each in (second, graph.node("GlobalAveragePool", first), first)]
    features = 8 * 8 * 6 + 16 + 16 * 10 * 8
    joined = graph.node("Concat", *flat, axis=1)
    assert left_in(graph, graph.node("MatMul", joined, graph.normal(features, 7))) == 0


def test_a_choice_between_values_of_any_rank_follows_the_layout() -> None:
    graph, first = convolved()
    mask = graph.node("Greater", graph.node("ReduceMax", first, axes=[0, 1], keepdims=0), graph.weight(np.float32(0.5)))
    chosen = graph.node("Where", mask, first, graph.weight(np.float32(2)))
    ones = graph.node("Where", mask, graph.weight(np.float32(1)), graph.weight(np.float32(0)))
    assert left_in(graph, graph.conv(chosen, 16, 16, 3), ones) <= 2


def test_a_flattened_image_with_another_reader_keeps_its_order_there() -> None:
    graph, data = convolved()
    flat = graph.node("Flatten", data)
    assert left_in(graph, graph.node("MatMul", flat, graph.normal(16 * 80, 7)), graph.node("Abs", flat)) == 1


@pytest.mark.skipif(not NETWORKS, reason=f"there are no networks in {SHARED / 'models'}")
@pytest.mark.quick("mobilenet_v1_0.25_224_qdq", "pfld")
@pytest.mark.parametrize("path", NETWORKS)
def test_networks_have_no_more_transposes_than_these(path: Path) -> None:
    shapes = {"data": [1, 3, 240, 320]} if path.stem.endswith("_dyn") else None
    left = transposes(lower_network(read_onnx(path, shapes), load_board("local")))
    assert (left["edges"], left["inside"]) == LEFT.get(path.stem, (0, 0))
