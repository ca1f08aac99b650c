"""Kinds of layers, compiled: means, norms of groups, elementary functions, stacks of matrices, contiguous vectors."""

import itertools
import math
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.agreement import agreeing, network_of
from support.layer_runs import computed_and_exact, relative_error
from support.networks import Graph, begun
from support.profiles import x86
from support.running import outputs_of

from edgedeploy.compile.backends import backend_of
from edgedeploy.compile.backends.cpu import winograd
from edgedeploy.compile.backends.cpu.tiles import (
    ConvolutionShape,
    choose_order,
    choose_tile,
    direct_cycles,
    tile_registers,
    vector_to_prefetch,
)
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.ir.types import FLOAT32, LayerTypes, bits_of, is_floating, unit_roundoff
from edgedeploy.compile.layers import (
    AnyAnchorOp,
    BatchMatmul,
    Convolution,
    Dense,
    DepthwiseConvolution,
    FirstConvolution,
)
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.compile.rounding import ROUNDING
from edgedeploy.compile.tiles import Tile
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles

CHANNELS = 16

POOLS: list[dict[str, Any]] = [
    {"kernel_shape": [3, 3], "pads": [1] * 4},
    {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2], "count_include_pad": 1},
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [2, 5], "pads": [0, 2, 1, 1], "strides": [1, 3]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1},
]


def feature_map(graph: Graph) -> str:
    data = graph.input("data", [1, 3, 12, 10])
    return graph.node("Relu", graph.node("Conv", data, graph.normal(CHANNELS, 3, 3, 3), pads=[1] * 4))


def test_windows_with_and_without_padding() -> None:
    graph = Graph()
    value = feature_map(graph)
    compiled = agreeing(graph, *(graph.node("AveragePool", value, **attributes) for attributes in POOLS))
    assert sum(template == "depthwise convolution" for template in compiled.templates.values()) == len(POOLS)
    assert not any("pool" in name for name in compiled.templates)


def test_a_pool_minus_its_input_times_a_scale_is_one_function() -> None:
    graph = Graph()
    value = feature_map(graph)
    pool = graph.node("AveragePool", value, kernel_shape=[3, 3], pads=[1] * 4)
    scaled = graph.node("Mul", graph.node("Sub", pool, value), graph.normal(CHANNELS, 1, 1))
    compiled = agreeing(graph, graph.node("Conv", graph.node("Add", value, scaled), graph.normal(4, CHANNELS, 1, 1)))
    [name] = [name for name, template in compiled.templates.items() if template == "depthwise convolution"]
    assert "subtract" in name
    assert "add" in name


def test_means_of_whole_feature_maps_are_none() -> None:
    graph = Graph()
    whole = graph.node("AveragePool", feature_map(graph), kernel_shape=[12, 10])
    assert "depthwise convolution" not in agreeing(graph, graph.node("Sigmoid", whole)).templates.values()


# Norms of groups of channels leave feature maps in the layout that layers read.


def between_layers(graph: Graph, groups: int) -> str:
    """A convolution, a group norm as PyTorch's exporter writes it and a convolution."""
    data = graph.input(f"data_{groups}", [2, 3, 9, 7])
    value = graph.node("Conv", data, graph.normal(CHANNELS, 3, 3, 3), pads=[1] * 4)
    flat = graph.node("Reshape", value, graph.weight(np.array([0, groups, -1])))
    flat = graph.node("InstanceNormalization", flat, graph.normal(groups), graph.normal(groups), epsilon=1e-3)
    norm = graph.node("Reshape", flat, graph.node("Shape", value))
    scaled = graph.node("Mul", norm, graph.normal(CHANNELS, 1, 1))
    norm = graph.node("Add", scaled, graph.normal(CHANNELS, 1, 1))
    return graph.node("Conv", norm, graph.normal(CHANNELS, CHANNELS, 1, 1))


@pytest.mark.parametrize("groups", [1, 4, CHANNELS])
def test_group_norm_as_exporters_write_it(groups: int) -> None:
    graph = Graph()
    compiled = agreeing(graph, graph.node("ReduceMax", between_layers(graph, groups), axes=[2, 3]))
    convolutions = [name for name, template in compiled.templates.items() if template == "convolution"]
    assert sum("nchw" in name for name in convolutions) == 1  # the network's first layer
    assert not any(name.startswith("fused_transpose") for name in compiled.templates)


def test_values_that_are_flattened_for_good_stay() -> None:
    graph = Graph()
    value = graph.node("Conv", graph.input("data", [1, 3, 9, 7]), graph.normal(CHANNELS, 3, 3, 3))
    flat = graph.node("Reshape", value, graph.weight(np.array([1, 4, -1])))
    agreeing(graph, graph.node("Sub", flat, graph.node("ReduceMean", flat, axes=[2])))


def test_feature_maps_that_have_one_shape_only_when_they_are_flattened() -> None:
    graph = Graph()
    wide = graph.node("Conv", graph.input("data", [1, 3, 4, 6]), graph.normal(8, 3, 1, 1))
    high = graph.node("Reshape", graph.node("Relu", wide), graph.weight(np.array([1, 8, 8, 3])))
    flat = [graph.node("Reshape", value, graph.weight(np.array([1, 4, -1]))) for value in (wide, high)]
    total = graph.node("Reshape", graph.node("Add", *flat), graph.weight(np.array([1, 8, 4, 6])))
    agreeing(graph, graph.node("Conv", total, graph.normal(4, 8, 1, 1)))


def test_a_constant_for_each_image_of_a_batch_is_none_for_each_group() -> None:
    graph = Graph()
    value = graph.node("Conv", graph.input("data", [4, 3, 4, 6]), graph.normal(8, 3, 1, 1))
    flat = graph.node("Reshape", value, graph.weight(np.array([4, 4, -1])))
    flat = graph.node("Mul", flat, graph.normal(4, 1, 1))
    whole = graph.node("Reshape", flat, graph.weight(np.array([4, 8, 4, 6])))
    agreeing(graph, graph.node("Conv", whole, graph.normal(4, 8, 1, 1)))


# Products with stacks of constant matrices, which are packed when a network is built, agree with onnxruntime.


@pytest.mark.parametrize("columns", [1, 16, 37])
def test_constant_stacks_are_packed_at_build_time(columns: int) -> None:
    graph, data = begun(2, 3, 5, 12)
    results = [
        graph.node("MatMul", data, graph.normal(3, 12, columns)),
        graph.node("Relu", graph.node("MatMul", data, graph.normal(2, 1, 12, columns))),
        graph.node("Add", graph.node("MatMul", graph.node("Exp", data), graph.normal(1, 12, columns)), graph.normal(1)),
    ]
    compiled = agreeing(graph, *results)
    products = [entry for entry in compiled.functions.values() if entry.template == "matmul"]
    assert len(products) >= 3
    assert not any('sblock("pack' in entry.function.script() for entry in products)


# Vectors along contiguous memory are loaded whole, whatever dimensions they go through.

# The rows of the first are no whole vectors, its channels are.
SHAPES = [(1, 3, 12, 14), (1, 3, 12, 16), (1, 3, 5, 7)]


def quantiser(shape: tuple[int, ...]) -> Graph:
    graph = Graph()
    steps = [graph.weight(np.float32(0.02)), graph.weight(np.uint8(120))]
    graph.node("QuantizeLinear", graph.input("x", list(shape)), *steps)
    return graph


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["haswell", "cascadelake", "rpi4"])
def test_no_value_is_gathered(name: str, shape: tuple[int, ...]) -> None:
    cpus = {"haswell": x86("haswell", 256), "cascadelake": x86("cascadelake", 512)}
    board = (cpus.get(name) or load_board(name)).model_copy(update={"devices": []})
    graph = quantiser(shape)
    code = compile_network(network_of(graph, graph.nodes[-1].output[0]), board).code.inspect("ll")
    assert "insertelement" not in code
    assert "gather" not in code


@pytest.mark.parametrize("shape", SHAPES)
def test_all_values_are_computed(shape: tuple[int, ...]) -> None:
    graph = quantiser(shape)
    network = network_of(graph, graph.nodes[-1].output[0])
    values = np.random.default_rng(0).uniform(-3, 3, shape).astype(np.float32)
    [found] = outputs_of(compile_network(network, load_board("local")), {"x": values})
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, np.clip(np.rint(values / np.float32(0.02)) + 120, 0, 255))


@pytest.mark.parametrize("shape", [(64,), *SHAPES])
def test_conditions_are_combined_whatever_the_vectors(shape: tuple[int, ...]) -> None:
    graph = Graph()
    x = graph.input("x", list(shape))
    large = graph.node("Greater", x, graph.weight(np.float32(0.3)))
    small = graph.node("Less", x, graph.weight(np.float32(-0.3)))
    either = graph.node("Or", graph.node("And", large, small), graph.node("Not", small))
    network = network_of(graph, graph.node("Cast", graph.node("Xor", either, small), to=1))
    values = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    [found] = outputs_of(compile_network(network, load_board("local")), {"x": values})
    np.testing.assert_array_equal(found, 1)


# Elementary functions, which generated code computes by its own arithmetic, agree with numpy in double precision.

Function = Callable[[np.ndarray], np.ndarray]

SIGMOID: Function = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731


def _computed(operator: str, values: np.ndarray, **attributes: float) -> np.ndarray:
    graph = Graph()
    network = network_of(graph, graph.node(operator, graph.input("x", list(values.shape)), **attributes))
    return outputs_of(compile_network(network, load_board("local")), {"x": values})[0]


@pytest.mark.parametrize("count", [64, 61])
@pytest.mark.parametrize(
    ("operator", "function", "lowest", "highest"),
    [
        ("Exp", np.exp, -86.0, 88.7),
        ("Sigmoid", SIGMOID, -85.0, 100.0),
        ("Tanh", np.tanh, -20.0, 20.0),
        ("Log", np.log, 1e-30, 1e30),
        ("Log", np.log, 0.5, 2.0),
        ("Softplus", lambda x: np.log1p(np.exp(x)), -5.0, 50.0),
    ],
)
def test_values_agree_to_a_few_ulps(
    operator: str, function: Function, lowest: float, highest: float, count: int
) -> None:
    values = np.linspace(lowest, highest, count, dtype=np.float32)
    wanted = function(values.astype(np.float64))
    found = _computed(operator, values)
    np.testing.assert_allclose(found, wanted, rtol=3e-5 if operator == "Softplus" else 1e-6, atol=1e-7)


@pytest.mark.parametrize("exponent", [2.0, 3.0, -1.0, 0.0, 0.5, 1.7, None])
def test_powers_agree_with_numpys(exponent: float | None) -> None:
    """Constant exponents, whole or not, of which whole ones have negative bases too; and those of another tensor."""
    whole = exponent is not None and exponent.is_integer()
    bases = np.linspace(-3.0 if whole else 0.1, 3.0, 64, dtype=np.float32)
    exponents = np.linspace(-2.0, 2.0, 64, dtype=np.float32) if exponent is None else np.float32(exponent)
    graph = Graph()
    names = [graph.input("x", [64]), graph.input("y", [64]) if exponent is None else graph.weight(exponents)]
    network = network_of(graph, graph.node("Pow", *names))
    inputs = {"x": bases} if exponent is not None else {"x": bases, "y": exponents}
    [found] = outputs_of(compile_network(network, load_board("local")), inputs)
    np.testing.assert_allclose(found, bases.astype(float) ** exponents.astype(float), rtol=3e-6)


@pytest.mark.parametrize(
    ("operator", "function"), [("Exp", np.exp), ("Sigmoid", SIGMOID), ("Tanh", np.tanh), ("Log", np.log)]
)
def test_infinities_zeros_and_nan_give_what_numpy_gives(operator: str, function: Function) -> None:
    values = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 88.8, -200.0, 1.0] * 2, dtype=np.float32)
    with np.errstate(all="ignore"):
        wanted = function(values)
    np.testing.assert_allclose(_computed(operator, values), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("board", ["rpi4", "rpi-armhf", "visionfive2", "local"])
def test_boards_compute_exp_without_calls_of_the_c_library(board: str) -> None:
    graph = Graph()
    network = network_of(graph, graph.node("Sigmoid", graph.input("x", [64])))
    assert "expf" not in compile_network(network, load_board(board)).code.inspect("asm")


@pytest.mark.parametrize(("operator", "function"), [("Round", np.rint), ("Erf", np.vectorize(math.erf))])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-3), ("float32", 1e-6), ("float64", 1e-12)])
def test_round_and_erf_agree_in_every_type(operator: str, function: Function, dtype: str, tolerance: float) -> None:
    values = np.linspace(-3.25, 3.25, 64, dtype=dtype)
    graph = Graph()
    data = graph.input("x", [64], helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    network = network_of(graph, graph.node(operator, data))
    [found] = outputs_of(compile_network(network, load_board("local")), {"x": values})
    assert found.dtype == dtype
    np.testing.assert_allclose(found, function(values.astype(np.float64)), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("operator", ["Round", "Erf"])
def test_they_are_computed_by_the_longest_vectors(operator: str) -> None:
    """LLVM puts values together again that TVM takes one by one, but by vectors half as long."""
    board = x86("cascadelake", 512)
    graph = Graph()
    network = network_of(graph, graph.node(operator, graph.input("x", [64])))
    code = compile_network(network, board).code.inspect("ll")
    assert "<16 x float>" in code
    assert "<8 x float>" not in code


# Layers of any types, through the templates: what is computed, tiles, padding and rounding follow from their types.

LOCAL = load_board("local")

HALF = LayerTypes("float16", "float16", "float32", "float32")
HALF_STORED = LayerTypes("float16", "float16", "float32", "float16")
DOUBLE = LayerTypes.uniform("float64")
INTEGER = LayerTypes("uint8", "int8", "int32", "int32")


def window(kernel: int, types: LayerTypes, stride: int = 1) -> Window:
    value = 0.0 if is_floating(types.data) else 131.0
    return Window((kernel, kernel), (stride, stride), (1, 1), (kernel // 2,) * 4, value)


def layers(types: LayerTypes) -> dict[str, AnyAnchorOp]:
    common: dict[str, Any] = {"types": types, "constant": True}
    computed: dict[str, Any] = {"types": types, "constant": False}
    return {
        "convolution": Convolution(data=(1, 11, 13, 24), weights=(3, 3, 24, 48), window=window(3, types), **common),
        "by channels": Convolution(data=(1, 7, 7, 64), weights=(3, 3, 64, 256), window=window(3, types), **common),
        "first": FirstConvolution(data=(1, 3, 20, 27), weights=(3, 3, 3, 32), window=window(3, types, 2), **common),
        "depthwise": DepthwiseConvolution(
            data=(1, 9, 14, 48), weights=(5, 5, 1, 48), window=window(5, types), **common
        ),
        "dense": Dense(data=(6, 80), weights=(80, 40), **common),
        "a prime number of rows": Dense(data=(197, 64), weights=(64, 50), **common),
        "rows of three dimensions": Dense(data=(2, 7, 9, 33), weights=(33, 21), **common),
        "batch": BatchMatmul(data=(2, 3, 37, 20), weights=(2, 3, 20, 64), transposed=False, **computed),
        "batch with a tail": BatchMatmul(data=(3, 37, 20), weights=(3, 20, 41), transposed=False, **computed),
        "transposed batch": BatchMatmul(data=(2, 37, 20), weights=(2, 41, 20), transposed=True, **computed),
        "broadcast batch": BatchMatmul(data=(4, 1, 5, 6), weights=(3, 6, 7), transposed=False, **computed),
        "one matrix": BatchMatmul(data=(3, 17, 6), weights=(6, 48), transposed=False, **computed),
    }


def check(layer: AnyAnchorOp, chosen: Configuration, folder: Path) -> None:
    """The layer is exact in integers unless floats sum them up, elsewhere as far from it as estimated errors say."""
    types, rounding = layer.types, backend_of(LOCAL).strategy(layer).rounding(chosen)
    found, wanted = computed_and_exact(layer, chosen, folder)
    assert (str(found.dtype), found.shape) == (types.result, wanted.shape)
    if is_floating(types.accumulator):
        assert relative_error(found, wanted) <= 1.3 * math.sqrt(rounding)
    else:
        assert np.abs(found - wanted).max() <= (1 if rounding else 0)


@pytest.mark.quick(*(f"*-{'-'.join(astuple(types))}" for types in (HALF_STORED, INTEGER)))
@pytest.mark.parametrize("types", [FLOAT32, HALF, DOUBLE, HALF_STORED, INTEGER], ids=lambda it: "-".join(astuple(it)))
@pytest.mark.parametrize("name", layers(FLOAT32))
def test_a_layer_computes_what_its_types_say(tmp_path: Path, name: str, types: LayerTypes) -> None:
    layer = layers(types)[name]
    check(layer, backend_of(LOCAL).strategy(layer).default(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("types", [HALF_STORED, INTEGER], ids=["half", "integer"])
@pytest.mark.parametrize("name", layers(FLOAT32))
def test_it_does_in_all_its_configurations(tmp_path: Path, name: str, types: LayerTypes) -> None:
    layer = layers(types)[name]
    for index, chosen in enumerate([*backend_of(LOCAL).strategy(layer).candidates()][::37]):
        (folder := tmp_path / str(index)).mkdir()
        check(layer, chosen, folder)


@pytest.mark.parametrize("size", [2, 4])
def test_winograd_s_transforms_are_in_the_type_of_the_sums(tmp_path: Path, size: int) -> None:
    types = LayerTypes("float16", "float32", "float32", "float32")
    layer = layers(types)["convolution"]
    check(layer, winograd.best_plan([size], ConvolutionShape(11, 13, 48, (3, 3), 24, types), LOCAL), tmp_path)


def test_only_what_winograd_was_measured_for_is_computed_so() -> None:
    forms = {
        types.data: {each.form for each in backend_of(LOCAL).strategy(layers(types)["convolution"]).candidates()}
        for types in (FLOAT32, HALF, DOUBLE, INTEGER)
    }
    direct = {"float16": {"direct"}, "float64": {"direct"}}
    assert forms == {"float32": {"direct", "winograd"}, **direct, "uint8": {"steps", "winograd"}}


@pytest.mark.parametrize(
    ("types", "lanes"),
    [(FLOAT32, 4), (LayerTypes.uniform("float16"), 8), (HALF, 4), (INTEGER, 4), (DOUBLE, 2)],
    ids=str,
)
def test_registers_hold_sums(types: LayerTypes, lanes: int) -> None:
    board = load_board("rpi4")
    tile = choose_tile(ConvolutionShape(56, 56, 64, (3, 3), 64, types), board)
    vectors = tile.channels // lanes
    assert tile.channels % lanes == 0
    assert tile.rows * tile.columns * vectors + vectors + 1 <= tile_registers(board)
    assert tile.rows * tile.columns * vectors >= 16  # as many sums as hide the multiply-adds' latency
    assert vector_to_prefetch(types, LOCAL) == LOCAL.vector.bits // bits_of(types.accumulator)


def test_the_bytes_of_weights_say_what_fits_the_caches() -> None:
    board = LOCAL.model_copy(update={"cache": LOCAL.cache.model_copy(update={"l2_kib": 1024})})
    tile = Tile(1, 7, 32)
    slices = {
        types.weights: choose_order(ConvolutionShape(7, 7, 512, (3, 3), 512, types), tile, board).slices
        for types in (FLOAT32, HALF, INTEGER)
    }
    assert slices == {"float32": 3, "float16": 3, "int8": 1}  # 576, 288 and 144 KiB for a tile
    shapes = [ConvolutionShape(1, 1, 4096, (1, 1), 4096, types) for types in (FLOAT32, HALF, INTEGER)]
    cycles = [direct_cycles(shape, LOCAL) for shape in shapes]
    assert [first - second for first, second in itertools.pairwise(cycles)] == pytest.approx([2 * 2**24 / 4, 2**24 / 4])


def test_a_narrower_result_is_one_more_rounding() -> None:
    wide, narrow = (backend_of(LOCAL).strategy(layers(types)["convolution"]) for types in (HALF, HALF_STORED))
    last = narrow.rounding(narrow.default()) - wide.rounding(wide.default())
    assert last == pytest.approx(ROUNDING * unit_roundoff("float16") ** 2)
    integers = backend_of(LOCAL).strategy(layers(INTEGER)["convolution"])
    assert integers.rounding(integers.default()) == 0
