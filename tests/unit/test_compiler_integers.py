"""Networks of quantised tensors run in bytes between their layers, and give what onnxruntime gives, bit for bit."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from support.agreement import network_of, outputs_of, random_inputs
from support.networks import Graph, Quantised, begun, of_bytes
from support.quantised_networks import FORMS, quantise, random_samples
from tvm import relax
from unit.test_integer_layers import BOARDS

from edgedeploy.compile.backends.cpu.steps import steps_for
from edgedeploy.compile.ir.expressions import calls_of, constant_value, parts_of, result_types, shape_of
from edgedeploy.compile.ir.types import LayerTypes
from edgedeploy.compile.output.explain import functions, transposes
from edgedeploy.compile.pipeline import Compiled, Lowered, Optimised, compile_network, lower_network, optimise
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.quantisation.quantising import without_inner_pairs
from edgedeploy.target.board import Board, load_board

pytestmark = pytest.mark.compiles

LOCAL = load_board("local")
AVX2 = BOARDS["haswell"].model_copy(update={"devices": [], "cores": 1})


def tensors_between(lowered: Lowered | Optimised) -> list[tuple[str, int]]:
    """Type and size of every tensor that a function of a network leaves for another."""
    calls = [(shape_of(variable), call) for variable, call in calls_of(lowered.module["main"])]
    return [(str(kind.dtype), int(np.prod(shape))) for shape, call in calls for kind in result_types(call)]


def layers(form: str) -> Graph:
    graph = Graph()
    first = graph.node("Relu", graph.conv(graph.input("data", [1, 5, 17, 13]), 5, 19, 3, pads=[1] * 4))
    depthwise = graph.conv(first, 19, 19, 3, pads=[0, 1, 2, 1], group=19, strides=[2, 2])
    outputs = {
        "one by one": (one := graph.conv(depthwise, 19, 24, 1)),
        "strided": (strided := graph.conv(first, 19, 24, 3, pads=[1] * 4, strides=[2, 2])),
        "sum": (total := graph.node("Add", one, strided)),
        "sigmoid": (gate := graph.node("Sigmoid", total)),
        "product": (product := graph.node("Mul", total, gate)),
        "bounded": (bounded := graph.clip(graph.conv(product, 24, 32, 3, group=4, pads=[2] * 4), -0.5, 1)),
        "dilated": graph.conv(product, 24, 8, 3, pads=[2] * 4, dilations=[2, 2]),
        "mean": (mean := graph.node("GlobalAveragePool", bounded)),
        "gated": graph.node("Mul", bounded, graph.node("Sigmoid", graph.conv(mean, 32, 32, 1))),
        "classes": graph.node("Gemm", graph.node("Flatten", mean), graph.normal(32, 11), graph.normal(11)),
    }
    graph.outputs = list(outputs.values())
    return graph


def moves(form: str) -> Graph:
    graph, data = begun(1, 5, 12, 14, opset=17)
    first, second = graph.conv(data, 5, 10, 1), graph.conv(data, 5, 7, 3, pads=[1] * 4)
    widths = graph.weight(np.array([0, 0, 1, 2, 0, 0, 3, 0]))
    rows = graph.reshape(graph.node("Transpose", first, perm=[0, 2, 3, 1]), 1, -1, 10)
    last = {
        "concatenation": (17, graph.node("Concat", first, second, axis=1)),
        "maximum": (10, graph.node("MaxPool", first, kernel_shape=[3, 3], pads=[1] * 4)),
        "average": (10, graph.node("AveragePool", first, kernel_shape=[2, 2], strides=[2, 2])),
        "leaky": (10, graph.node("LeakyRelu", first, alpha=0.1)),
        "hard swish": (10, graph.node("HardSwish", first)),
        "nearest": (10, graph.doubled(first)),
        "pad": (10, graph.node("Pad", first, widths)),
    }
    if "s8s8" in form:  # onnxruntime computes pools of int8 in float on x86: the order of its sum decides halves
        del last["average"]
    graph.outputs = [graph.conv(value, channels, 8, 1) for channels, value in last.values()]
    graph.outputs.append(graph.node("MatMul", rows, graph.normal(10, 7)))
    return graph


@pytest.mark.quick("x86-64-v3-pairs-u8s8-channels-layers", "cascadelake-pairs-u8s8-channels-moves")
@pytest.mark.parametrize("make", [layers, moves])
@pytest.mark.parametrize("form", ["pairs-u8s8-channels", "pairs-u8s8", "pairs-s8s8-channels", "pairs-u8u8"])
def test_operators_agree_with_onnxruntime(tmp_path: Path, each_cpu: str, make: Callable[[str], Any], form: str) -> None:
    """Of int8 on x86 it computes some operators in float: few values, which lie at a half, are rounded otherwise."""
    graph, few = make(form), 1e-3 if "s8s8" in form else 0.0
    plain = graph.save(tmp_path / "float.onnx", *graph.outputs)
    samples = list(random_samples(plain))
    path = quantise(plain, tmp_path / "net.onnx", FORMS[form], samples)
    compiled = compile_network(read_onnx(path), load_board("local"))
    for sample in samples[:2]:
        for found, wanted in zip(outputs_of(compiled, sample), cpu_session(path).run(None, sample), strict=True):
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            assert (found != wanted).mean() <= few


@pytest.fixture
def exact(tmp_path: Path) -> Callable[..., Compiled]:
    """Compiles a graph whose outputs must be onnxruntime's to the last bit.

    Few may differ by a `step`, where a sum in float lies at a half. Without optimisation, onnxruntime makes no integer
    convolutions of pairs, of which some do not round halves to even.
    """

    def run(
        graph: Graph, *results: str, data: np.ndarray | None = None, optimised: bool = True, step: float = 0
    ) -> Compiled:
        path = graph.save(tmp_path / "net.onnx", *results)
        network = read_onnx(path)
        inputs = random_inputs(network) if data is None else {"data": data}
        compiled = compile_network(network, load_board("local"))
        expected = cpu_session(path, optimised=optimised).run(None, inputs)
        for found, wanted in zip(outputs_of(compiled, inputs), expected, strict=True):
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1.002 * step)
            assert (found != wanted).mean() <= (0.01 if step else 0)
        return compiled

    return run


def test_all_tensors_between_layers_are_bytes(exact: Callable) -> None:
    graph, data = of_bytes(1, 3, 16, 16)
    first = graph.pair(graph.node("Relu", graph.convolution(data, 3, 16)), 0.05, np.uint8(0))
    second = graph.pair(graph.convolution(first, 1, 16, group=16), 0.05, np.uint8(100))
    gate = graph.pair(graph.node("Sigmoid", second), 1 / 256, np.uint8(0))
    gated = graph.pair(graph.node("Mul", second, gate), 0.04, np.uint8(90))
    total = graph.pair(graph.node("Add", first, gated), 0.06, np.uint8(60))
    both = graph.pair(graph.node("Concat", first, total, axis=1), 0.06, np.uint8(60))
    pooled = graph.pair(graph.node("MaxPool", both, kernel_shape=[2, 2], strides=[2, 2]), 0.06, np.uint8(60))
    compiled = exact(graph, graph.quantised(graph.convolution(pooled, 32, 8), 0.1, np.uint8(9)))
    assert {dtype for dtype, _ in tensors_between(compiled)} == {"uint8"}
    convolutions = {"integer steps", "integer columns", "depthwise convolution"}
    reported = {record["type"] for record in functions(compiled) if record["template"] in convolutions}
    assert reported == {"uint8"}


def test_of_two_layers_that_are_added_up_bytes_are_stored(exact: Callable) -> None:
    graph, data = of_bytes(1, 3, 64, 64)
    shortcut = graph.pair(graph.convolution(data, 3, 16), 0.0316, np.uint8(127))
    branch = graph.pair(graph.convolution(data, 3, 16), 0.0302, np.uint8(134))
    total = graph.node("Relu", graph.node("Add", shortcut, branch))
    given = 2 * np.random.default_rng(1).standard_normal((1, 3, 64, 64)).astype(np.float32)
    compiled = exact(graph, graph.quantised(total, 0.0209, np.uint8(0)), data=given)
    assert {dtype for dtype, _ in tensors_between(compiled)} == {"uint8"}


@pytest.mark.parametrize("zero_point", [np.uint8(0), np.uint8(131), np.int8(-128), np.int8(7)], ids=repr)
def test_padding_holds_the_zero_point(exact: Callable, zero_point: Any) -> None:
    """Of each of the types, of which one is not the processor's; an output in bytes is of that type, too."""
    graph = Quantised()
    data = graph.pair(graph.input("data", [1, 3, 9, 7]), 0.02, zero_point)
    output = graph.quantised(graph.convolution(data, 3, 6), 0.05, zero_point)
    exact(graph, output, graph.node("DequantizeLinear", output, *graph.steps))


@pytest.mark.parametrize("zero_point", [128, 3])
def test_weights_of_uint8_with_a_zero_point(exact: Callable, zero_point: int) -> None:
    graph, data = of_bytes(1, 3, 9, 7)
    weights = graph.stored(graph.random.integers(0, 256, (6, 3, 3, 3)).astype(np.uint8), 0.004, zero_point)
    exact(graph, graph.pair(graph.node("Conv", data, weights), 0.05, np.uint8(100)))


@pytest.mark.quick("cascadelake")
def test_weights_beyond_8_bits_are_moved_where_a_pixel_s_channels_are_summed_up(each_cpu: str, exact: Callable) -> None:
    """Of uint8 with a zero point: those of one pixel's kernel and of products; the first has too few outputs."""
    graph, data = of_bytes(1, 12, 9, 7)

    def held(*shape: int) -> str:
        return graph.stored(graph.random.integers(0, 256, shape).astype(np.uint8), 0.004, 101)

    few = graph.pair(graph.node("Conv", data, held(6, 12, 1, 1)), 0.05, np.uint8(100))
    many = graph.pair(graph.node("Relu", graph.node("Conv", few, held(24, 6, 1, 1))), 0.03, np.uint8(0))
    mean = graph.pair(graph.node("GlobalAveragePool", many), 0.02, np.uint8(3))
    dense = graph.node("MatMul", graph.node("Flatten", mean), held(24, 17))
    compiled = exact(graph, graph.pair(dense, 0.05, np.uint8(90)))
    values = [constant_value(part) for part in parts_of(compiled.module["main"])]
    wide = sorted(each.dtype.name for each in values if each is not None and each.ndim > 4)
    # Without instructions that multiply bytes, all weights are of 16 bits.
    [step, *_] = steps_for(LayerTypes("uint8", "int8", "int32", "int32"), load_board("local"))
    assert wide == (["int16", "int8", "int8"] if step.weights == "int8" else ["int16"] * 3)


@pytest.mark.quick("Mul-1e-05", "Add-0.05")
@pytest.mark.parametrize("scale", [0.05, 1e-4, 1e-5])
@pytest.mark.parametrize("operator", ["layer", "Add", "Mul", "LeakyRelu", "GlobalAveragePool"])
def test_results_that_are_far_beyond_the_bytes_keep_their_bounds(exact: Callable, operator: str, scale: float) -> None:
    """Also where 16 bits do not hold them before: there, wrapped ones would be within the bounds."""
    graph, data = of_bytes(1, 3, 9, 7)
    first, second = (graph.pair(graph.convolution(data, 3, 6), 0.05, np.uint8(100)) for _ in range(2))
    operands = {"Add": [first, second], "Mul": [first, second]}.get(operator, [first])
    result = graph.convolution(first, 6, 8) if operator == "layer" else graph.node(operator, *operands)
    exact(graph, graph.pair(result, scale, np.uint8(101)))


def test_a_bias_that_is_stored_in_int32(exact: Callable) -> None:
    graph, data = of_bytes(1, 3, 9, 7)
    scales = graph.random.uniform(0.001, 0.01, 6).astype(np.float32)
    weights = graph.random_bytes(6, 3, 3, 3, scale=scales)
    bias = graph.stored(graph.random.integers(-9000, 9000, 6).astype(np.int32), np.float32(0.02) * scales)
    exact(graph, graph.pair(graph.node("Conv", data, weights, bias), 0.05, np.uint8(100)))


def test_a_tensor_with_several_readers_and_one_that_is_an_output_in_bytes(exact: Callable) -> None:
    graph, data = of_bytes(1, 3, 9, 7)
    quantised = graph.quantised(graph.convolution(data, 3, 6), 0.05, np.uint8(100))
    first = graph.node("DequantizeLinear", quantised, *graph.steps)
    second = graph.pair(graph.convolution(first, 6, 6), 0.1, np.uint8(90))
    third = graph.pair(graph.node("Add", first, second), 0.2, np.uint8(95))
    assert ("uint8", 6 * 9 * 7) in tensors_between(exact(graph, quantised, second, third))


def test_a_sum_in_float_that_two_loops_read_lies_in_bytes(exact: Callable) -> None:
    """As the residual sums of networks whose activations stand before their convolutions."""
    graph, data = of_bytes(1, 3, 12, 12)
    first = graph.pair(graph.convolution(data, 3, 16), 0.02, np.uint8(120))
    total = graph.pair(graph.node("Add", graph.convolution(first, 16, 16), first), 0.04, np.uint8(110))
    normal = graph.node("Mul", total, graph.weight(graph.random.normal(1, 0.1, (16, 1, 1)).astype(np.float32)))
    before = graph.pair(graph.node("Relu", normal), 0.02, np.uint8(0))
    again = graph.node("Add", graph.convolution(before, 16, 16), total)
    found = tensors_between(exact(graph, graph.pair(again, 0.05, np.uint8(100)), step=0.05))
    assert [dtype for dtype, size in found if size == 16 * 12 * 12] == ["uint8"] * 3 + ["float32"] * 2  # the result


def test_what_a_layer_s_sums_pass_through_without_a_rounding_is_in_steps_of_the_result(exact: Callable) -> None:
    graph, data = of_bytes(1, 3, 12, 12)
    first = graph.pair(graph.node("LeakyRelu", graph.convolution(data, 3, 16), alpha=0.1), 0.03, np.uint8(30))
    total = graph.node("Add", graph.convolution(first, 16, 16), first)
    second = graph.pair(graph.node("LeakyRelu", total, alpha=0.2), 0.04, np.uint8(40))
    compiled = exact(graph, graph.pair(graph.convolution(second, 16, 8), 0.05, np.uint8(100)), step=0.05)
    assert not compiled.exact  # onnxruntime sums up floats
    layers = [str(function) for name, function in compiled.module.functions.items() if "conv2d" in name.name_hint]
    assert len(layers) == 3
    assert not any(" / " in each for each in layers)


def test_single_channels_are_not_converted_to_integers_and_back() -> None:
    graph, data = of_bytes(1, 3, 40, 40)
    first = graph.pair(graph.convolution(data, 3, 16), 0.03, np.uint8(30))
    second = graph.pair(graph.convolution(first, 1, 16, group=16), 0.05, np.uint8(100))
    compiled = compile_network(network_of(graph, second), AVX2)
    assert "multiply-add of floats" in str([each["tile"] for each in functions(compiled) if each["type"] == "uint8"])
    assert "vcvttps2dq" not in compiled.code.inspect("asm")


def test_rows_that_are_only_widened_are_copied_by_whole_vectors() -> None:
    graph, data = of_bytes(1, 3, 16, 16)
    first = graph.pair(graph.convolution(data, 3, 4), 0.03, np.uint8(30))
    weights = graph.random_bytes(24, 4, 1, 1, scale=2.0**-7)
    network = network_of(graph, graph.pair(graph.node("Conv", first, weights), 0.05, np.uint8(100)))
    code = compile_network(network, AVX2).code.inspect("asm")
    assert re.search(r"vpmovzxbw\s+\S+, %ymm", code)


def test_what_is_used_elsewhere_too_is_computed_once() -> None:
    graph, data = of_bytes(1, 3, 12, 12)
    rectified = graph.node("LeakyRelu", graph.convolution(data, 3, 16), alpha=0.1)
    one, other = (graph.convolution(graph.pair(rectified, scale, np.uint8(30)), 16, 8) for scale in (0.03, 0.05))
    lowered = module_of(graph, graph.node("Add", one, other))
    called = [str(call.args[0]) for _, call in calls_of(lowered.module["main"]) if "conv2d" in str(call.args[0])]
    assert len(called) == 3


def test_a_convolution_whose_result_stays_in_float_reads_bytes(exact: Callable) -> None:
    graph = Quantised()
    data = graph.pair(graph.input("data", [1, 3, 8, 8]), 2.0**-6, np.uint8(128))
    weights = graph.stored(graph.random.integers(-3, 4, (4, 3, 3, 3)).astype(np.int8), 2.0**-7)
    assert ("uint8", 3 * 8 * 8) in tensors_between(exact(graph, graph.node("Conv", data, weights)))


def module_of(graph: Graph, output: str, *disabled: str) -> Lowered:
    return lower_network(network_of(graph, output), LOCAL, disabled_passes=disabled)


def test_a_network_of_float_layers_between_pairs_stays_as_it_was() -> None:
    graph = Quantised()
    data = graph.pair(graph.input("data", [1, 3, 9, 7]), 0.02, np.int8(5))
    data = graph.pair(graph.node("Transpose", graph.conv(data, 3, 6, 3), perm=[0, 1, 3, 2]), 0.05, np.int8(2))
    without = module_of(graph, data, "compute-in-integers")
    assert tvm_ffi.structural_equal(module_of(graph, data).module, without.module)


def test_what_is_in_integers_throughout_is_known() -> None:
    graph, data = of_bytes(1, 3, 9, 7)
    whole = graph.pair(graph.convolution(data, 3, 6), 0.05, np.uint8(100))
    function = graph.pair(graph.node("Sigmoid", whole), 1 / 256, np.uint8(0))
    average = graph.pair(graph.node("AveragePool", whole, kernel_shape=[3, 3]), 0.05, np.uint8(100))
    total, product = (graph.pair(graph.node(each, whole, whole), 0.07, np.uint8(90)) for each in ("Add", "Mul"))

    def is_exact(output: str, board: Board, *disabled: str) -> bool:
        return lower_network(network_of(graph, output), board, disabled_passes=disabled).exact

    rpi4, opencl = load_board("rpi4"), load_board("nuc-opencl")
    results = (whole, function, average, total, product)
    assert [each for each in results if is_exact(each, rpi4)] == [whole, total]
    assert not [each for each in results if is_exact(each, opencl)]
    assert not is_exact(total, BOARDS["x86-64"])  # it cannot multiply and add in one step
    assert not is_exact(whole, rpi4, "compute-in-integers")


@pytest.mark.parametrize(("whole", "template"), [(True, "integer steps"), (False, "winograd convolution")])
def test_sums_are_rounded_only_in_networks_that_are_inexact_anyway(whole: bool, template: str) -> None:
    graph, data = of_bytes(1, 32, 40, 40)
    output = graph.convolution(data, 32, 64)
    network = network_of(graph, graph.pair(output, 0.05, np.uint8(100)) if whole else output)
    found = lower_network(network, BOARDS["haswell"].model_copy(update={"devices": []}))
    assert found.exact is whole
    assert template in found.templates.values()


@pytest.mark.parametrize(("board", "stored"), [("rpi4", "int8"), ("nuc-opencl", None)])
def test_cpus_store_bytes_as_they_multiply_them_and_gpus_use_floats(board: str, stored: str | None) -> None:
    graph, data = of_bytes(1, 3, 9, 7)
    output = graph.pair(graph.convolution(data, 3, 6), 0.05, np.uint8(100))
    network = network_of(graph, graph.node("Relu", output))
    types = {dtype for dtype, _ in tensors_between(optimise(network, load_board(board)))}
    assert types & {"uint8", "int8"} == ({stored} if stored else set())


@pytest.mark.parametrize(
    ("weights", "scale"),
    [(np.full((70_000, 2), 127, np.int8), 0.004), (np.full((4, 2), 40_000, np.int32), 0.001)],
    ids=["sums that int32 does not hold", "weights that int16 does not hold"],
)
def test_what_integers_do_not_hold_stays_in_float(weights: np.ndarray, scale: float) -> None:
    graph, data = of_bytes(1, len(weights))
    product = graph.node("MatMul", data, graph.stored(weights, scale, 0))
    lowered = module_of(graph, graph.pair(product, 1, np.uint8(1)))
    assert {dtype for dtype, _ in tensors_between(lowered)} == {"float32"}


def test_grouped_atrous_convolutions_whose_kernels_meet_only_padding_read_the_zero_point(exact: Callable) -> None:
    graph, data = of_bytes(1, 3, 20, 20)
    first = graph.pair(graph.convolution(data, 3, 16), 0.05, np.uint8(131))
    atrous = graph.node("Conv", first, graph.random_bytes(16, 2, 3, 3), pads=[12] * 4, dilations=[12, 12], group=8)
    exact(graph, graph.pair(atrous, 0.05, np.uint8(100)))


def test_each_pass_leaves_a_well_formed_module(tmp_path: Path) -> None:
    graph = layers("")
    plain = graph.save(tmp_path / "float.onnx", *graph.outputs)
    path = quantise(plain, tmp_path / "net.onnx", FORMS["pairs-u8s8"], random_samples(plain))

    def check(each: Any, module: tvm.IRModule, seconds: float) -> None:
        relax.analysis.well_formed(module)

    lower_network(read_onnx(path), LOCAL, listener=check)


@pytest.mark.parametrize("window", [{"kernel_shape": [1, 5]}, {"kernel_shape": [2, 2], "strides": [2, 2]}], ids=str)
def test_averages_of_windows_of_any_size_are_exact(exact: Callable, window: dict[str, list[int]]) -> None:
    graph = Quantised()
    data = graph.pair(graph.input("data", [1, 5, 12, 10]), 0.03, np.uint8(117))
    layer = graph.pair(graph.convolution(data, 5, 16), 0.02, np.uint8(120))
    exact(graph, graph.quantised(graph.node("AveragePool", layer, **window), 0.011, np.uint8(120)))


# Pairs of QuantizeLinear and DequantizeLinear round as ONNX says, and cost no transposes.


@pytest.mark.parametrize("zero_point", [np.uint8(120), np.uint8(0), np.int8(-7), np.uint8(255)])
def test_halves_are_rounded_to_even_and_what_is_too_large_saturates(exact: Callable, zero_point: np.ndarray) -> None:
    graph = Quantised()
    data = graph.input("data", [1, 4, 16, 16])
    steps = np.arange(-512, 512, dtype=np.float32).reshape(1, 4, 16, 16) / 2
    exact(graph, graph.pair(data, 0.25, zero_point), data=steps * np.float32(0.25), optimised=False)


def test_one_scale_for_each_channel(exact: Callable) -> None:
    graph = Quantised()
    data = graph.input("data", [1, 3, 8, 8])
    exact(graph, graph.pair(data, [0.25, 0.01, 3], np.array([0, 9, -3], np.int8), axis=1), optimised=False)


def small_integers(graph: Graph, limit: int, *shape: int) -> np.ndarray:
    """Their sums are equal in every order of summation."""
    return graph.random.integers(-limit, limit + 1, shape).astype(np.float32)


def test_a_pair_between_convolutions_needs_no_transpose(exact: Callable) -> None:
    graph = Quantised()
    data = graph.input("data", [1, 3, 12, 12])
    first = graph.node("Conv", data, graph.weight(small_integers(graph, 2, 21, 3, 3, 3)))
    pair = graph.pair(first, 0.5, np.uint8(128))
    second = graph.node("Conv", pair, graph.weight(small_integers(graph, 2, 16, 21, 1, 1)))
    inputs = small_integers(graph, 3, 1, 3, 12, 12) / 4
    compiled = exact(graph, graph.pair(second, 2, np.int8(0)), data=inputs, optimised=False)
    assert transposes(compiled) == {"edges": 1, "inside": 0}
    assert not [name for name in compiled.templates if "slice" in name]


def test_weights_that_are_stored_as_integers_become_constants(exact: Callable) -> None:
    graph = Quantised()
    data = graph.input("data", [1, 3, 8, 8])
    weights = graph.random_bytes(8, 3, 3, 3, scale=np.float32(0.5) ** np.arange(8, dtype=np.float32))
    inputs = small_integers(graph, 3, 1, 3, 8, 8)
    compiled = exact(graph, graph.node("Conv", data, weights), data=inputs, optimised=False)
    assert not [name for name in compiled.templates if "quantize" in name]


def test_a_tensor_that_is_read_with_another_scale(exact: Callable) -> None:
    graph = Quantised()
    quantised = graph.quantised(graph.input("data", [1, 3, 8, 8]), 0.25, np.uint8(7))
    other = graph.node("DequantizeLinear", quantised, graph.weight(np.float32(0.5)), graph.steps[1])
    exact(graph, other, optimised=False)


# Quantised networks without the roundings inside what is computed in one loop.

Make = Callable[[Graph, str], str]


def residual(graph: Graph, data: str) -> str:
    first = graph.node("LeakyRelu", graph.conv(data, 8, 16, 3, pads=[1] * 4), alpha=0.1)
    return graph.node("Add", first, graph.node("LeakyRelu", graph.conv(first, 16, 16, 3, pads=[1] * 4), alpha=0.1))


def gate(graph: Graph, data: str) -> str:
    layer = graph.conv(data, 8, 16, 1)
    return graph.node("Mul", layer, graph.node("Sigmoid", layer))


def bounded(graph: Graph, data: str) -> str:
    """The pair behind the first layer is its ReLU."""
    other = graph.node("MaxPool", graph.conv(data, 8, 16, 1), kernel_shape=[1, 1])
    return graph.node("Add", graph.node("Relu", graph.conv(data, 8, 16, 3, pads=[1] * 4)), other)


def two_layers(graph: Graph, data: str) -> str:
    return graph.node("Add", graph.conv(data, 8, 16, 1), graph.conv(data, 8, 16, 3, pads=[1] * 4))


def excitation(graph: Graph, data: str) -> str:
    layer = graph.conv(data, 8, 16, 1)
    squeezed = graph.conv(graph.node("GlobalAveragePool", layer), 16, 16, 1)
    return graph.node("Mul", layer, graph.node("Sigmoid", squeezed))


def seen_elsewhere(graph: Graph, data: str) -> str:
    layer = graph.conv(data, 8, 16, 1)
    return graph.node("Add", graph.node("LeakyRelu", layer), graph.node("MaxPool", layer, kernel_shape=[1, 1]))


def pairs(folder: Path, make: Make) -> tuple[Path, Path, Path]:
    """A float network; the same with pairs everywhere; and without those inside."""
    graph = Graph(opset=13)
    value = make(graph, graph.input("data", [1, 8, 12, 10]))
    graph.save(folder / "float.onnx", graph.conv(value, 16, 8, 1))
    samples = list(random_samples(folder / "float.onnx"))
    every = quantise(folder / "float.onnx", folder / "every.onnx", FORMS["pairs-u8s8-channels"], samples)
    fewer = without_inner_pairs(onnx.load(every), onnx.load(folder / "float.onnx"))
    onnx.checker.check_model(fewer)
    onnx.save(fewer, folder / "fewer.onnx")
    return folder / "float.onnx", every, folder / "fewer.onnx"


def count(path: Path, operator: str) -> int:
    return sum(node.op_type == operator for node in onnx.load(path).graph.node)


@pytest.mark.parametrize(
    ("make", "gone"), [(residual, 3), (gate, 2), (two_layers, 1), (excitation, 1), (seen_elsewhere, 0), (bounded, 0)]
)
def test_one_loop_has_the_sums_of_one_layer(tmp_path: Path, make: Make, gone: int) -> None:
    _, every, fewer = pairs(tmp_path, make)
    assert count(every, "QuantizeLinear") - count(fewer, "QuantizeLinear") == gone
    assert count(fewer, "QuantizeLinear") > 1


@pytest.mark.parametrize(("make", "differing"), [(residual, 0.01), (gate, 0.1), (two_layers, 0.01)])
def test_compiled_code_gives_what_onnxruntime_gives_but_for_what_lies_near_a_half(
    tmp_path: Path, make: Make, differing: float
) -> None:
    """A gate comes from a table of points, within a quarter of a step, and is as near to the float network."""
    plain, every, fewer = pairs(tmp_path, make)
    compiled = compile_network(read_onnx(fewer), load_board("local"))
    errors, own_error = dict.fromkeys((every, fewer), 0.0), 0.0
    for sample in random_samples(plain):
        sessions = (cpu_session(path, optimised=False) for path in (plain, every, fewer))
        exact, all_pairs, wanted = (session.run(None, sample)[0] for session in sessions)
        [found] = outputs_of(compiled, sample)
        step = np.unique(wanted)
        # Which lie at a half is a matter of the CPU that onnxruntime runs on.
        assert (found != wanted).mean() < differing
        assert np.abs(found - wanted).max() < 1.01 * np.diff(step).min()
        errors[every] += float(np.square(all_pairs - exact).sum())
        errors[fewer] += float(np.square(wanted - exact).sum())
        own_error += float(np.square(found - exact).sum())
    assert errors[fewer] < errors[every]
    assert own_error < 1.05 * errors[fewer]
