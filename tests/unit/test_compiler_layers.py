"""Kinds of layers, compiled: means, norms of groups, elementary functions, stacks of matrices, contiguous vectors."""

import itertools
import math
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support import agreement
from support.agreement import agreeing, computed, network_of, random_inputs
from support.layer_runs import computed_and_exact, relative_error, window
from support.networks import Graph, Quantised, begun, three_convolutions
from support.profiles import x86

from edgedeploy.compile.backends import backend_of
from edgedeploy.compile.backends.cpu import tiles, winograd
from edgedeploy.compile.backends.cpu.configuration import Winograd
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
from edgedeploy.compile.pipeline import compile_network, lower_network
from edgedeploy.compile.strategy import ROUNDING, Strategy, within
from edgedeploy.compile.tiles import Tile
from edgedeploy.model.network import Network
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


def feature_map() -> tuple[Graph, str]:
    graph, data = begun(1, 3, 12, 10)
    return graph, graph.node("Relu", graph.node("Conv", data, graph.normal(CHANNELS, 3, 3, 3), pads=[1] * 4))


def test_windows_with_and_without_padding() -> None:
    graph, value = feature_map()
    compiled = agreeing(graph, *(graph.node("AveragePool", value, **attributes) for attributes in POOLS))
    assert sum(template == "depthwise convolution" for template in compiled.templates.values()) == len(POOLS)
    assert not any("pool" in name for name in compiled.templates)


def test_a_pool_minus_its_input_times_a_scale_is_one_function() -> None:
    graph, value = feature_map()
    pool = graph.node("AveragePool", value, kernel_shape=[3, 3], pads=[1] * 4)
    scaled = graph.node("Mul", graph.node("Sub", pool, value), graph.normal(CHANNELS, 1, 1))
    compiled = agreeing(graph, graph.node("Conv", graph.node("Add", value, scaled), graph.normal(4, CHANNELS, 1, 1)))
    [name] = [name for name, template in compiled.templates.items() if template == "depthwise convolution"]
    assert "subtract" in name
    assert "add" in name


def test_means_of_whole_feature_maps_are_none() -> None:
    graph, value = feature_map()
    whole = graph.node("AveragePool", value, kernel_shape=[12, 10])
    assert "depthwise convolution" not in agreeing(graph, graph.node("Sigmoid", whole)).templates.values()


# Norms of groups of channels leave feature maps in the layout that layers read.


@pytest.mark.parametrize("groups", [1, 4, CHANNELS])
def test_group_norm_as_exporters_write_it(groups: int) -> None:
    """As PyTorch's does, between two convolutions."""
    graph, data = begun(2, 3, 9, 7)
    value = graph.node("Conv", data, graph.normal(CHANNELS, 3, 3, 3), pads=[1] * 4)
    flat = graph.reshape(value, 0, groups, -1)
    flat = graph.node("InstanceNormalization", flat, graph.normal(groups), graph.normal(groups), epsilon=1e-3)
    norm = graph.node("Reshape", flat, graph.node("Shape", value))
    scaled = graph.node("Mul", norm, graph.normal(CHANNELS, 1, 1))
    norm = graph.node("Add", scaled, graph.normal(CHANNELS, 1, 1))
    layer = graph.node("Conv", norm, graph.normal(CHANNELS, CHANNELS, 1, 1))
    compiled = agreeing(graph, graph.node("ReduceMax", layer, axes=[2, 3]))
    convolutions = [name for name, template in compiled.templates.items() if template == "convolution"]
    assert sum("nchw" in name for name in convolutions) == 1  # the network's first layer
    assert not any(name.startswith("fused_transpose") for name in compiled.templates)


def test_values_that_are_flattened_for_good_stay() -> None:
    graph = Graph()
    value = graph.node("Conv", graph.input("data", [1, 3, 9, 7]), graph.normal(CHANNELS, 3, 3, 3))
    flat = graph.reshape(value, 1, 4, -1)
    agreeing(graph, graph.node("Sub", flat, graph.node("ReduceMean", flat, axes=[2])))


def test_feature_maps_that_have_one_shape_only_when_they_are_flattened() -> None:
    graph = Graph()
    wide = graph.node("Conv", graph.input("data", [1, 3, 4, 6]), graph.normal(8, 3, 1, 1))
    high = graph.reshape(graph.node("Relu", wide), 1, 8, 8, 3)
    total = graph.reshape(graph.node("Add", *(graph.reshape(value, 1, 4, -1) for value in (wide, high))), 1, 8, 4, 6)
    agreeing(graph, graph.node("Conv", total, graph.normal(4, 8, 1, 1)))


def test_a_constant_for_each_image_of_a_batch_is_none_for_each_group() -> None:
    graph = Graph()
    value = graph.node("Conv", graph.input("data", [4, 3, 4, 6]), graph.normal(8, 3, 1, 1))
    flat = graph.node("Mul", graph.reshape(value, 4, 4, -1), graph.normal(4, 1, 1))
    whole = graph.reshape(flat, 4, 8, 4, 6)
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


def quantiser(shape: tuple[int, ...]) -> Network:
    graph = Quantised()
    return network_of(graph, graph.quantised(graph.input("x", [*shape]), 0.02, np.uint8(120)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["haswell", "cascadelake", "rpi4"])
def test_no_value_is_gathered(name: str, shape: tuple[int, ...]) -> None:
    cpus = {"haswell": x86("haswell", 256), "cascadelake": x86("cascadelake", 512)}
    board = (cpus.get(name) or load_board(name)).model_copy(update={"devices": []})
    code = compile_network(quantiser(shape), board).code.inspect("ll")
    assert "insertelement" not in code
    assert "gather" not in code


@pytest.mark.parametrize("shape", SHAPES)
def test_all_values_are_computed(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).uniform(-3, 3, shape).astype(np.float32)
    [found] = computed(quantiser(shape), {"x": values})
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
    [found] = computed(network, {"x": values})
    np.testing.assert_array_equal(found, 1)


# Elementary functions, which generated code computes by its own arithmetic, agree with numpy in double precision.

Function = Callable[[np.ndarray], np.ndarray]

SIGMOID: Function = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731


def of_operator(operator: str, count: int = 64, dtype: Any = np.float32) -> Network:
    graph = Graph()
    data = graph.input("x", [count], helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    return network_of(graph, graph.node(operator, data))


def results_of(operator: str, values: np.ndarray) -> np.ndarray:
    return computed(of_operator(operator, len(values), values.dtype), {"x": values})[0]


@pytest.mark.parametrize("count", [64, 61])
@pytest.mark.parametrize(
    ("operator", "function", "low", "high"),
    [
        ("Exp", np.exp, -86.0, 88.7),
        ("Sigmoid", SIGMOID, -85.0, 100.0),
        ("Tanh", np.tanh, -20.0, 20.0),
        ("Log", np.log, 1e-30, 1e30),
        ("Log", np.log, 0.5, 2.0),
        ("Softplus", lambda x: np.log1p(np.exp(x)), -5.0, 50.0),
    ],
)
def test_values_agree_to_a_few_ulps(operator: str, function: Function, low: float, high: float, count: int) -> None:
    values = np.linspace(low, high, count, dtype=np.float32)
    wanted = function(values.astype(np.float64))
    rtol = 3e-5 if operator == "Softplus" else 1e-6
    np.testing.assert_allclose(results_of(operator, values), wanted, rtol=rtol, atol=1e-7)


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
    [found] = computed(network, inputs)
    np.testing.assert_allclose(found, bases.astype(float) ** exponents.astype(float), rtol=3e-6)


@pytest.mark.parametrize(
    ("operator", "function"), [("Exp", np.exp), ("Sigmoid", SIGMOID), ("Tanh", np.tanh), ("Log", np.log)]
)
def test_infinities_zeros_and_nan_give_what_numpy_gives(operator: str, function: Function) -> None:
    values = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 88.8, -200.0, 1.0] * 2, dtype=np.float32)
    with np.errstate(all="ignore"):
        wanted = function(values)
    np.testing.assert_allclose(results_of(operator, values), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("board", ["rpi4", "rpi-armhf", "visionfive2", "local"])
def test_boards_compute_exp_without_calls_of_the_c_library(board: str) -> None:
    assert "expf" not in compile_network(of_operator("Sigmoid"), load_board(board)).code.inspect("asm")


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_values_wider_than_a_cpus_registers_are_computed_one_by_one(dtype: str) -> None:
    graph = Graph()
    data = graph.input("x", [3, 8], helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    product = graph.node("MatMul", data, graph.weight(np.ones((8, 5), dtype)))
    network = network_of(graph, graph.node("ReduceSum", graph.node("Mul", product, product)))
    assert compile_network(network, load_board("visionfive2")).code.inspect("asm")


@pytest.mark.parametrize(("operator", "function"), [("Round", np.rint), ("Erf", np.vectorize(math.erf))])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-3), ("float32", 1e-6), ("float64", 1e-12)])
def test_round_and_erf_agree_in_every_type(operator: str, function: Function, dtype: str, tolerance: float) -> None:
    values = np.linspace(-3.25, 3.25, 64, dtype=dtype)
    found = results_of(operator, values)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, function(values.astype(np.float64)), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("operator", ["Round", "Erf"])
def test_they_are_computed_by_the_longest_vectors(operator: str) -> None:
    """LLVM puts values together again that TVM takes one by one, but by vectors half as long."""
    code = compile_network(of_operator(operator), x86("cascadelake", 512)).code.inspect("ll")
    assert "<16 x float>" in code
    assert "<8 x float>" not in code


# Layers of any types, through the templates: what is computed, tiles, padding and rounding follow from their types.

LOCAL = load_board("local")

HALF = LayerTypes("float16", "float16", "float32", "float32")
HALF_STORED = LayerTypes("float16", "float16", "float32", "float16")
DOUBLE = LayerTypes.uniform("float64")
INTEGER = LayerTypes("uint8", "int8", "int32", "int32")


def layers(types: LayerTypes) -> dict[str, AnyAnchorOp]:
    common: dict[str, Any] = {"types": types, "constant": True}
    computed: dict[str, Any] = {"types": types, "constant": False}
    zero = 0 if is_floating(types.data) else 131
    three, strided, five = window(3, zero), window(3, zero, stride=2), window(5, zero)
    return {
        "convolution": Convolution(data=(1, 11, 13, 24), weights=(3, 3, 24, 48), window=three, **common),
        "by channels": Convolution(data=(1, 7, 7, 64), weights=(3, 3, 64, 256), window=three, **common),
        "first": FirstConvolution(data=(1, 3, 20, 27), weights=(3, 3, 3, 32), window=strided, **common),
        "depthwise": DepthwiseConvolution(data=(1, 9, 14, 48), weights=(5, 5, 1, 48), window=five, **common),
        "dense": Dense(data=(6, 80), weights=(80, 40), **common),
        "a prime number of rows": Dense(data=(197, 64), weights=(64, 50), **common),
        "rows of three dimensions": Dense(data=(2, 7, 9, 33), weights=(33, 21), **common),
        "batch": BatchMatmul(data=(2, 3, 37, 20), weights=(2, 3, 20, 64), transposed=False, **computed),
        "batch with a tail": BatchMatmul(data=(3, 37, 20), weights=(3, 20, 41), transposed=False, **computed),
        "transposed batch": BatchMatmul(data=(2, 37, 20), weights=(2, 41, 20), transposed=True, **computed),
        "broadcast batch": BatchMatmul(data=(4, 1, 5, 6), weights=(3, 6, 7), transposed=False, **computed),
        "one matrix": BatchMatmul(data=(3, 17, 6), weights=(6, 48), transposed=False, **computed),
    }


strategy_of = backend_of(LOCAL).strategy


def check(layer: AnyAnchorOp, chosen: Configuration, folder: Path) -> None:
    """The layer is exact in integers unless floats sum them up, elsewhere as far from it as estimated errors say."""
    types, rounding = layer.types, strategy_of(layer).rounding(chosen)
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
    check(layer, strategy_of(layer).default(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("types", [HALF_STORED, INTEGER], ids=["half", "integer"])
@pytest.mark.parametrize("name", layers(FLOAT32))
def test_it_does_in_all_its_configurations(tmp_path: Path, name: str, types: LayerTypes) -> None:
    layer = layers(types)[name]
    for index, chosen in enumerate([*strategy_of(layer).candidates()][::37]):
        (folder := tmp_path / str(index)).mkdir()
        check(layer, chosen, folder)


@pytest.mark.parametrize("size", [2, 4])
def test_winograd_s_transforms_are_in_the_type_of_the_sums(tmp_path: Path, size: int) -> None:
    types = LayerTypes("float16", "float32", "float32", "float32")
    layer = layers(types)["convolution"]
    check(layer, winograd.best_plan([size], tiles.ConvolutionShape(11, 13, 48, (3, 3), 24, types), LOCAL), tmp_path)


def test_only_what_winograd_was_measured_for_is_computed_so() -> None:
    forms = {
        types.data: {each.form for each in strategy_of(layers(types)["convolution"]).candidates()}
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
    tile = tiles.choose_tile(tiles.ConvolutionShape(56, 56, 64, (3, 3), 64, types), board)
    vectors = tile.channels // lanes
    assert tile.channels % lanes == 0
    assert tile.rows * tile.columns * vectors + vectors + 1 <= tiles.tile_registers(board)
    assert tile.rows * tile.columns * vectors >= 16  # as many sums as hide the multiply-adds' latency
    assert tiles.vector_to_prefetch(types, LOCAL) == LOCAL.vector.bits // bits_of(types.accumulator)


def test_the_bytes_of_weights_say_what_fits_the_caches() -> None:
    board = LOCAL.model_copy(update={"cache": LOCAL.cache.model_copy(update={"l2_kib": 1024})})
    tile = Tile(1, 7, 32)
    slices = {
        types.weights: tiles.choose_order(tiles.ConvolutionShape(7, 7, 512, (3, 3), 512, types), tile, board).slices
        for types in (FLOAT32, HALF, INTEGER)
    }
    assert slices == {"float32": 3, "float16": 3, "int8": 1}  # 576, 288 and 144 KiB for a tile
    shapes = [tiles.ConvolutionShape(1, 1, 4096, (1, 1), 4096, types) for types in (FLOAT32, HALF, INTEGER)]
    cycles = [tiles.direct_cycles(shape, LOCAL) for shape in shapes]
    assert [first - second for first, second in itertools.pairwise(cycles)] == pytest.approx([2 * 2**24 / 4, 2**24 / 4])


def test_a_narrower_result_is_one_more_rounding() -> None:
    wide, narrow, integers = (
        (strategy := strategy_of(layers(types)["convolution"])).rounding(strategy.default())
        for types in (HALF, HALF_STORED, INTEGER)
    )
    assert narrow - wide == pytest.approx(ROUNDING * unit_roundoff("float16") ** 2)
    assert integers == 0


# Rounding errors: estimated as they are measured, and kept within a limit by forms that round less.


def strategy(channels: int) -> Strategy[Convolution]:
    shape = {"data": (1, 28, 28, channels), "weights": (3, 3, channels, 32)}
    return strategy_of(Convolution(**shape, types=FLOAT32, constant=True, window=window(3)))


def forms(each: Strategy[Convolution]) -> dict[int, Configuration]:
    """By the size of Winograd's tiles, 0 for a direct convolution."""
    return {form.size if isinstance(form, Winograd) else 0: form for form in each.alternatives()}


@pytest.mark.parametrize("channels", [pytest.param(8, marks=pytest.mark.slow), 64])
@pytest.mark.parametrize("size", [0, 2, 4])
def test_the_estimated_error_is_the_measured_one(tmp_path: Path, size: int, channels: int) -> None:
    each = strategy(channels)
    chosen = forms(each)[size]
    measured = relative_error(*computed_and_exact(each.layer, chosen, tmp_path))
    assert measured == pytest.approx(math.sqrt(each.rounding(chosen)), rel=0.3)


def test_tiles_of_four_round_most_and_tiles_of_two_least() -> None:
    each = strategy(64)
    errors = {size: each.rounding(form) for size, form in forms(each).items()}
    assert errors[2] < errors[0] < errors[4]


def test_the_layer_with_the_largest_share_gives_way_first() -> None:
    strategies = {"few": strategy(16), "many": strategy(128)}
    chosen = {name: forms(each)[4] for name, each in strategies.items()}
    calls = {"few": 1, "many": 1}
    assert within(math.inf, strategies, chosen, calls) == chosen
    some = within(2.9, strategies, chosen, calls)
    assert some["few"] == chosen["few"]
    assert some["many"] != chosen["many"]
    assert some != (most := within(1.5, strategies, chosen, calls))
    assert all(strategies[name].rounding(form) < strategies[name].rounding(chosen[name]) for name, form in most.items())
    assert within(2.0, strategies, chosen, {"few": 1000, "many": 1})["few"] != chosen["few"]


def test_what_rounds_least_remains_where_no_limit_can_be_kept() -> None:
    least = {"layer": forms(strategy(64))[2]}
    assert within(1e-9, {"layer": strategy(64)}, least, {"layer": 1}) == least


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    monkeypatch.setattr(winograd, "direct_cycles", lambda *_: math.inf)
    graph = Graph()
    return network_of(graph, three_convolutions(graph, 28, 64))


def sizes(network: Network, limit: float, tuned: Configuration | None = None) -> set[int]:
    lowered = lower_network(network, LOCAL, tuned=lambda workload: tuned, error_limit=limit)
    entries = [entry for entry in lowered.functions.values() if isinstance(entry.configuration, Winograd)]
    assert all(entry.exact is (limit < 2) for entry in entries)
    assert not any(entry.tuned for entry in entries if entry.exact)
    return {entry.configuration.size for entry in entries}  # type: ignore[union-attr]


def test_a_network_s_limit_makes_its_tiles_smaller(network: Network) -> None:
    assert sizes(network, math.inf) == {4}
    assert sizes(network, 10.0) == {4}
    assert sizes(network, 1.5) == {2}


def test_what_was_measured_as_fastest_gives_way_too(network: Network) -> None:
    assert sizes(network, 1.5, forms(strategy(64))[4]) == {2}


@pytest.mark.parametrize("channels", [24, 37])
def test_the_mean_of_an_even_image_is_as_exact_as_that_of_any_other(channels: int) -> None:
    graph, data = begun(1, channels, 112, 112)
    same = graph.weight(np.eye(channels, dtype=np.float32).reshape(channels, channels, 1, 1))
    network = network_of(graph, graph.node("GlobalAveragePool", graph.node("Conv", data, same)))
    even = np.full((1, channels, 112, 112), 1.2345678, np.float32)
    [found] = computed(network, {"data": even})
    np.testing.assert_allclose(found, even[..., :1, :1], rtol=1e-6)


# Feature maps that are enlarged at the end of a network are interpolated along one axis after the other.


def enlarged(graph: Graph, mode: str, height: int, width: int, outputs: int = 21) -> str:
    first = graph.node("Conv", graph.input(f"data_{mode}_{outputs}", [1, 4, 9, 7]), graph.normal(outputs, 4, 3, 3))
    sizes = graph.weight(np.array([1, outputs, height, width]))
    return graph.node("Resize", first, "", "", sizes, mode="linear", coordinate_transformation_mode=mode)


def test_every_way_to_find_a_place() -> None:
    graph = Graph()
    modes = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    compiled = agreeing(graph, *(enlarged(graph, mode, 14 + index, 5 + 8 * index) for index, mode in enumerate(modes)))
    assert sum(name.startswith("interpolate") for name in compiled.templates) == 8
    assert not any("resize" in name for name in compiled.templates)


def test_what_is_read_elsewhere_or_made_smaller_stays() -> None:
    graph = Graph()
    read_again = enlarged(graph, "half_pixel", 14, 10, 16)
    after = graph.node("Conv", read_again, graph.normal(3, 16, 3, 3))
    compiled = agreeing(graph, read_again, after, enlarged(graph, "half_pixel", 3, 2, 8))
    assert not any(name.startswith("interpolate") for name in compiled.templates)


# Feature maps that are read where a grid says agree with onnxruntime.


def test_grid_sample() -> None:
    graph = Graph(opset=16)
    data, grid = graph.input("data", [2, 3, 7, 10]), graph.input("grid", [2, 5, 9, 2])
    results = [
        graph.node("GridSample", data, grid, mode="bilinear", padding_mode=padding, align_corners=aligned)
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    ]
    nearest = graph.node("GridSample", data, grid, mode="nearest", padding_mode="zeros", align_corners=0)
    compiled = agreeing(graph, *results, nearest)
    assert sum(name.startswith("weights") for name in compiled.templates) == 4


# Softmax and norms along rows have a template of their own, and agree with onnxruntime whatever the rows' length.


@pytest.mark.parametrize("columns", [8, 49, 197, 1000])
def test_rows_of_any_length(columns: int) -> None:
    graph, data = begun(2, 3, 5, columns)
    factors = [graph.normal(columns), graph.normal(columns)]
    results = [
        graph.node("Softmax", graph.node("Mul", data, graph.weight(np.float32(9))), axis=-1),
        graph.node("LogSoftmax", data, axis=3),
        graph.node("LayerNormalization", data, *factors, axis=-1, epsilon=1e-3),
        graph.node("Relu", graph.node("LayerNormalization", data, factors[0], axis=3)),
    ]
    assert list(agreeing(graph, *results).templates.values()).count("rows") == 4


def test_other_axes_and_short_rows() -> None:
    graph, data = begun(2, 12, 3, 4)
    over_several = graph.node("LayerNormalization", data, graph.normal(3, 4), graph.normal(3, 4), axis=2)
    before_ones = graph.node("Softmax", graph.node("GlobalAveragePool", data), axis=1)
    agreeing(graph, graph.node("Softmax", data, axis=1), graph.node("Softmax", data, axis=3), over_several, before_ones)


def test_infinities_and_nan() -> None:
    graph = Graph()
    mask = np.zeros((4, 37), np.float32)
    mask[0, 5:] = mask[1, ::2] = mask[2] = -np.inf
    mask[3, 7] = np.nan
    data = graph.node("Add", graph.input("data", [4, 37]), graph.weight(mask))
    network = network_of(graph, graph.node("Softmax", data, axis=1))
    compiled = compile_network(network, load_board("local"))
    [(found, wanted)] = agreement.results_of(compiled, network, random_inputs(network))
    assert np.isnan(wanted[2:]).all()
    assert not np.isnan(wanted[:2]).any()
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-7)


def test_other_types() -> None:
    graph = Graph()
    wide = graph.node("Cast", graph.input("data", [3, 20]), to=TensorProto.DOUBLE)
    agreeing(graph, graph.node("Cast", graph.node("Softmax", wide, axis=1), to=TensorProto.FLOAT))
