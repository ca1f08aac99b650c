"""Quantised ONNX files become pairs of quantise and dequantise with the file's own integers, and give its values."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.agreement import assert_matches_reference, computed, convolved
from support.networks import Graph
from support.quantised_networks import FORMS, quantise, random_samples
from tvm import relax

from edgedeploy.compile.backends import host_of
from edgedeploy.compile.ir.expressions import constant_value, is_call, parts_of, shape_of
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.frontends.onnx.folding import folded
from edgedeploy.frontends.onnx.network import with_nudged_weights
from edgedeploy.model.network import Network
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.board import load_board

MICROSOFT = "com.microsoft"
CODES = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


def integers(random: np.random.Generator, dtype: Any, *shape: int) -> np.ndarray:
    """Integers over the whole range of a dtype."""
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max + 1, shape).astype(dtype)


class Quantised(Graph):
    """A graph whose values are integers with a scale and a zero point."""

    def parameters(self, dtype: Any, scale: Any = 0.05, zero: Any = 3) -> list[str]:
        return [self.weight(np.asarray(scale, np.float32)), self.weight(np.asarray(zero, dtype))]

    def stored(self, dtype: Any, *shape: int) -> str:
        return self.weight(integers(self.random, dtype, *shape))

    def pair(self, value: str, *steps: str, **attributes: Any) -> str:
        """A value, rounded to steps."""
        rounded = self.node("QuantizeLinear", value, *steps, **attributes)
        return self.node("DequantizeLinear", rounded, *steps, **attributes)


def read(graph: Graph, folder: Path, *outputs: str) -> Network:
    return read_onnx(graph.save(folder / "net.onnx", *outputs))


def random_inputs(network: Network) -> dict[str, np.ndarray]:
    """Integers over the whole range of each input; normally distributed floats."""
    random = np.random.default_rng(1)
    return {
        spec.name: integers(random, spec.dtype, *spec.shape)
        if np.dtype(spec.dtype).kind in "iu"
        else random.standard_normal(spec.shape).astype(spec.dtype)
        for spec in network.inputs
    }


def calls(network: Network, operator: str) -> list[relax.Call]:
    return [each for each in parts_of(network.module["main"]) if is_call(each, f"relax.{operator}")]


def every_operator(dtype: Any) -> tuple[Quantised, dict[str, str]]:
    """A graph with each quantised operator on integers of the network's inputs; its outputs."""
    graph = Quantised()
    low = np.iinfo(dtype).min

    def node(operator: str, *inputs: str, domain: str = MICROSOFT, **attributes: Any) -> str:
        return graph.node(operator, *inputs, domain=domain, **attributes)

    def parameters(scale: Any = 0.05, zero: int = 3) -> list[str]:
        return graph.parameters(dtype, scale, zero)

    image = [graph.input("image", [1, 8, 9, 10], CODES[dtype]), *parameters(0.04, 7)]
    other = [graph.input("other", [1, 8, 9, 10], CODES[dtype]), *parameters(0.02, -low // 2)]
    last = [graph.input("last", [1, 7, 6, 8], CODES[dtype]), *parameters(0.04, 7)]
    rows = [graph.input("rows", [5, 12], CODES[dtype]), *parameters(0.03, 11)]
    scales = np.linspace(0.002, 0.006, 6)
    bias = graph.weight(graph.random.integers(-2000, 2000, 6).astype(np.int32))
    weights = [graph.stored(np.int8, 6, 8, 3, 3), *graph.parameters(np.int8, scales, np.zeros(6))]
    wide = [graph.stored(np.uint8, 8, 1, 3, 3), *graph.parameters(np.uint8, 0.01, 121)]
    matrix = [graph.stored(np.int8, 12, 6), *graph.parameters(np.int8, scales, np.zeros(6))]
    square = [graph.stored(np.int8, 12, 6), *graph.parameters(np.int8, 0.005, 0)]
    condition = graph.node("Greater", graph.input("chosen", [1, 8, 9, 10]), graph.weight(np.float32(0)))
    made = {
        "Add": node("QLinearAdd", *image, *other, *parameters(0.07)),
        "Mul": node("QLinearMul", *image, *other, *parameters(0.2)),
        "LeakyRelu": node("QLinearLeakyRelu", *image, *parameters(), alpha=0.2),
        "Sigmoid": node("QLinearSigmoid", *image, *parameters(1 / 256, low)),
        "Softmax": node("QLinearSoftmax", *rows, *parameters(1 / 256, low), axis=-1, opset=13),
        "Softmax of channels": node("QLinearSoftmax", *image, *parameters(1 / 256, low), axis=1, opset=13),
        "Softmax of all": node("QLinearSoftmax", *image, *parameters(1 / 4096, low), axis=1, opset=11),
        "AveragePool": node("QLinearAveragePool", *image, *parameters(), kernel_shape=[3, 2], pads=[1, 0, 1, 1]),
        "GlobalAveragePool": node("QLinearGlobalAveragePool", *image, *parameters(0.01)),
        "GlobalAveragePool, channels last": node(
            "QLinearGlobalAveragePool", *image, *parameters(0.01), channels_last=1
        ),
        "Concat": node("QLinearConcat", *parameters(), *image, *other, axis=1),
        "Where": node("QLinearWhere", condition, *image, *other, *parameters(0.06)),
        "Conv": node("QLinearConv", *image, *weights, *parameters(0.4), bias, domain="", pads=[1] * 4, strides=[2, 1]),
        "Conv of groups": node("QLinearConv", *image, *wide, *parameters(0.2), domain="", group=8),
        "Conv, channels last": node(
            "QLinearConv", *last, *weights, *parameters(0.4), bias, channels_last=1, kernel_shape=[3, 3]
        ),
        "MaxPool, channels last": node("NhwcMaxPool", last[0], kernel_shape=[2, 2], strides=[2, 1]),
        "MatMul": node("QLinearMatMul", *rows, *matrix, *parameters(0.1), domain=""),
        "Gemm": node("QGemm", *rows, *square, bias, *parameters(0.1), alpha=0.5),
        "Gemm in float": node("QGemm", *rows, *square, bias),
    }  # fmt: skip
    return graph, made


def with_exact_sums(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """A node, or what is the same and sums up exactly: QLinearConv of channels last saturates on CPUs without VNNI."""
    if (node.domain, node.op_type) != (MICROSOFT, "QLinearConv"):
        return [node]
    data, *others = node.input
    return [
        helper.make_node("Transpose", [data], ["channels first"], perm=[0, 3, 1, 2]),
        helper.make_node("QLinearConv", ["channels first", *others], ["result"]),
        helper.make_node("Transpose", ["result"], node.output, perm=[0, 2, 3, 1]),
    ]


def of_onnxruntime(graph: Graph, output: str, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """An output by nothing but the nodes that it needs: one without exact kernels takes none from the others."""
    model = graph.model(output)
    nodes = [exact for node in model.graph.node for exact in with_exact_sums(node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return cpu_session(model.SerializeToString()).run(None, inputs)[0]


# Of these onnxruntime has no kernel for int8.
OF_UINT8_ONLY = ("Gemm", "Gemm in float", "Conv of groups")


@pytest.mark.compiles
@pytest.mark.quick("x86-64-v3-int8", "cascadelake-uint8")
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_quantised_operators_give_onnxruntimes_steps_but_for_ties(dtype: Any, each_cpu: str, tmp_path: Path) -> None:
    graph, outputs = every_operator(dtype)
    outputs = {name: made for name, made in outputs.items() if dtype is np.uint8 or name not in OF_UINT8_ONLY}
    network = read(graph, tmp_path, *outputs.values())
    inputs = random_inputs(network)
    for (name, made), array in zip(outputs.items(), computed(network, inputs), strict=True):
        expected = of_onnxruntime(graph, made, inputs)
        assert (array.shape, array.dtype) == (expected.shape, expected.dtype), name
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-5)
            continue
        apart = np.abs(array.astype(int) - expected)
        assert apart.max() <= 1, name
        assert np.count_nonzero(apart) <= max(1, apart.size // 100), name


def test_a_quantised_convolution_keeps_its_integers_its_scales_and_their_axis(tmp_path: Path) -> None:
    graph, random = Quantised(), np.random.default_rng(5)
    stored, bias = random.integers(-128, 128, (6, 3, 1, 1)).astype(np.int8), random.integers(-900, 900, 6, np.int32)
    scales, zeros = np.linspace(0.5, 2, 6, dtype=np.float32), random.integers(-9, 9, 6).astype(np.int8)
    image = [graph.input("image", [1, 3, 4, 4], TensorProto.UINT8), *graph.parameters(np.uint8, [0.25], [9])]
    weights = [graph.weight(each) for each in (stored, scales, zeros)]
    made = graph.node("QLinearConv", *image, *weights, *graph.parameters(np.uint8, 4, 200), graph.weight(bias))
    network = read(graph, tmp_path, made)
    found = {len(shape_of(call.args[0])): call for call in calls(network, "dequantize") if is_constant(call)}
    for call, wanted in ((found[4], (stored, scales, zeros)), (found[1], (bias, scales / 4, np.zeros(6, np.int32)))):
        assert call.attrs.axis == 0
        for argument, values in zip(call.args, wanted, strict=True):
            known = constant_value(argument)
            assert known.dtype == values.dtype
            np.testing.assert_array_equal(known, values)
    [data] = [call for call in calls(network, "dequantize") if not is_constant(call)]
    [result] = calls(network, "quantize")
    assert [(shape_of(each), constant_value(each)) for each in data.args[1:]] == [([], 0.25), ([], 9)]
    assert [(shape_of(each), constant_value(each)) for each in result.args[1:]] == [([], 4), ([], 200)]
    operators = {each.op.name for each in parts_of(network.module["main"]) if isinstance(each, relax.Call)}
    assert operators == {f"relax.{name}" for name in ("dequantize", "quantize", "nn.conv2d", "add", "reshape")}


def is_constant(call: relax.Call) -> bool:
    return constant_value(call.args[0]) is not None


def test_weights_that_are_stored_as_floats_before_a_pair_become_integers(tmp_path: Path) -> None:
    graph = Quantised()
    values = graph.random.standard_normal((4, 3, 3, 3)).astype(np.float32)
    parameters = graph.parameters(np.int8, [0.01, 0.02, 0.03, 0.04], np.zeros(4))
    weights = graph.pair(graph.weight(values), *parameters, axis=0)
    network = read(graph, tmp_path, graph.node("Conv", graph.input("data", [1, 3, 8, 8]), weights))
    [call] = calls(network, "dequantize")
    scales = np.float32([0.01, 0.02, 0.03, 0.04]).reshape(4, 1, 1, 1)
    np.testing.assert_array_equal(constant_value(call.args[0]), np.clip(np.rint(values / scales), -128, 127))
    assert not calls(network, "quantize")


@pytest.mark.compiles
def test_pools_and_copies_of_integers_stand_between_pairs(tmp_path: Path) -> None:
    graph = Quantised()
    parameters = graph.parameters(np.uint8)
    data = graph.node("QuantizeLinear", graph.input("data", [1, 4, 8, 8]), *parameters)
    pooled = graph.node("MaxPool", data, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    edges, border = graph.weight(np.array([0, 0, 1, 1, 0, 0, 1, 1])), graph.weight(np.uint8(3))
    first = graph.node("Split", graph.node("Pad", pooled, edges, border), axis=1, outputs=2)
    joined = graph.node("Concat", f"{first}_1", first, graph.stored(np.uint8, 1, 2, 6, 6), axis=1)
    resized = graph.node("Resize", joined, "", graph.weight(np.float32([1, 1, 2, 2])), mode="nearest")
    turned = graph.node("Transpose", resized, perm=[0, 2, 3, 1])
    network = read(graph, tmp_path, graph.node("DequantizeLinear", turned, *parameters))
    for operator in ("nn.max_pool2d", "nn.pad", "split", "concat", "image.resize2d", "permute_dims"):
        [call] = calls(network, operator)
        given = call.args[0].ty
        assert {str(each.dtype) for each in getattr(given, "fields", [given])} == {"float32"}, operator
    assert_matches_reference(network, random_inputs(network))


def test_a_rim_of_computed_values_stays_on_integers(tmp_path: Path) -> None:
    graph = Quantised()
    parameters = graph.parameters(np.uint8)
    data = graph.node("QuantizeLinear", graph.input("data", [1, 4, 8, 8]), *parameters)
    edge = graph.node("Squeeze", graph.node("Slice", data, *[graph.weight(np.array([each] * 4)) for each in (0, 1)]))
    padded = graph.node("Pad", data, graph.weight(np.array([0, 0, 1, 1, 0, 0, 1, 1])), edge)
    path = graph.save(tmp_path / "net.onnx", graph.node("DequantizeLinear", padded, *parameters))
    model = folded(onnx.load(path))
    [pad] = [node for node in model.graph.node if node.op_type == "Pad"]
    [source] = [node.op_type for node in model.graph.node if pad.input[0] in node.output]
    assert source == "QuantizeLinear"


@pytest.mark.compiles
@pytest.mark.parametrize("given", ["constant", "computed"])
@pytest.mark.parametrize(("stored", "zeros"), [(np.int8, 0), (np.uint8, 131), (np.uint8, range(100, 108))])
def test_integer_convolutions_and_products_are_exact(given: str, stored: Any, zeros: Any, tmp_path: Path) -> None:
    graph = Quantised()
    data = graph.input("data", [1, 4, 9, 9], TensorProto.UINT8)
    rows = graph.input("rows", [2, 5, 7], TensorProto.UINT8)
    zero = graph.weight(np.uint8(77)) if given == "constant" else graph.input("zero", [], TensorProto.UINT8)
    kernels, matrix = integers(graph.random, stored, 8, 2, 3, 3), integers(graph.random, stored, 7, 8)
    shift = np.array(list(zeros) if isinstance(zeros, range) else zeros, stored)
    stores = [graph.weight(each) for each in (kernels, matrix, shift)]
    outputs = [
        graph.node("ConvInteger", data, stores[0], zero, stores[2], group=2, pads=[1] * 4, strides=[2, 2]),
        graph.node("MatMulInteger", rows, stores[1], zero, stores[2]),
    ]
    network = read(graph, tmp_path, *outputs)
    inputs = random_inputs(network)
    inputs["data"][0, 0] = 255
    less = np.int64(inputs.get("zero", 77))
    centred = kernels - np.int64(shift).reshape([-1, 1, 1, 1])
    wanted = [
        convolved(inputs["data"] - less, centred, pads=(1, 1, 1, 1), stride=(2, 2)),
        (inputs["rows"] - less) @ (matrix - np.int64(shift)),
    ]
    for found, expected in zip(computed(network, inputs), wanted, strict=True):
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected)
    [product], [convolution] = calls(network, "matmul"), calls(network, "nn.conv2d")
    assert {str(call.args[0].ty.dtype) for call in (product, convolution)} == {"uint8"}


@pytest.mark.compiles
def test_integer_convolutions_of_signals_are_exact(tmp_path: Path) -> None:
    graph = Quantised()
    kernels, zero = graph.stored(np.int8, 6, 4, 3), graph.weight(np.uint8(200))
    signal = graph.input("signal", [1, 4, 20], TensorProto.UINT8)
    network = read(graph, tmp_path, graph.node("ConvInteger", signal, kernels, zero, pads=[2, 1], dilations=[2]))
    assert_matches_reference(network, random_inputs(network))
    assert network.outputs[0].dtype == "int32"


@pytest.mark.compiles
def test_products_of_two_computed_matrices_with_zero_points_are_exact(tmp_path: Path) -> None:
    graph = Quantised()
    left, right = (graph.input(name, [3, 4, 4], TensorProto.UINT8) for name in ("left", "right"))
    rows, columns = np.uint8([1, 255, 3, 4]), np.uint8([9, 8, 255, 6])
    made = graph.node("MatMulInteger", left, right, graph.weight(rows), graph.weight(columns))
    network = read(graph, tmp_path, made)
    inputs = random_inputs(network)
    wanted = (inputs["left"] - np.int64(rows)[:, None]) @ (inputs["right"] - np.int64(columns))
    [found] = computed(network, inputs)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.compiles
def test_ranges_of_values_are_quantised_as_onnxruntime_does(tmp_path: Path) -> None:
    graph = Quantised()
    made = graph.node("DynamicQuantizeLinear", graph.input("data", [3, 50]), outputs=3)
    network = read(graph, tmp_path, made, f"{made}_1", f"{made}_2")
    values = random_inputs(network)["data"]
    for data in (values, np.abs(values), -np.abs(values), np.zeros_like(values)):
        assert_matches_reference(network, {"data": data})


@pytest.mark.compiles
def test_products_with_dynamic_scales_of_onnxruntime_give_its_values(tmp_path: Path) -> None:
    graph = Quantised()
    data = graph.input("data", [2, 5, 8])
    scale, zero = graph.parameters(np.uint8, np.linspace(0.01, 0.02, 6), np.arange(120, 126))
    bias = graph.normal(6)
    stored = graph.stored(np.uint8, 8, 6)
    outputs = [
        graph.node("DynamicQuantizeMatMul", data, stored, scale, zero, bias, domain=MICROSOFT),
        graph.node(
            "MatMulIntegerToFloat",
            *(graph.input("rows", [5, 8], TensorProto.UINT8), stored, graph.weight(np.float32(0.02)), scale),
            *(graph.weight(np.uint8(9)), zero, bias),
            domain=MICROSOFT,
        ),
    ]
    network = read(graph, tmp_path, *outputs)
    assert_matches_reference(network, random_inputs(network), rtol=1e-5, atol=1e-5)


@pytest.mark.compiles
@pytest.mark.parametrize(("opset", "domain"), [(21, ""), (13, MICROSOFT)])
@pytest.mark.parametrize("dtype", [np.int16, np.uint16])
def test_values_of_16_bits_are_read(opset: int, domain: str, dtype: Any, tmp_path: Path) -> None:
    graph = Quantised(opset=opset)
    parameters = graph.parameters(dtype, 0.001, 300)
    network = read(graph, tmp_path, graph.pair(graph.input("data", [2, 9]), *parameters, domain=domain))
    inputs = random_inputs(network)
    inputs["data"] *= 30
    assert_matches_reference(network, inputs, rtol=1e-6)
    [call] = calls(network, "quantize")
    assert str(call.ty.dtype) == np.dtype(dtype).name


@pytest.mark.compiles
def test_weights_of_4_bits_and_of_blocks_are_read(tmp_path: Path) -> None:
    graph = Quantised(opset=21)
    narrow = helper.make_tensor("narrow", TensorProto.INT4, [6, 8], graph.random.integers(-8, 8, 48).tolist())
    graph.weights.append(narrow)
    scales = graph.weight(graph.random.uniform(0.1, 0.2, (6, 2)).astype(np.float32))
    blocks = graph.node("DequantizeLinear", "narrow", scales, axis=1, block_size=4)
    scale = graph.weight(np.linspace(0.1, 0.2, 6, dtype=np.float32))
    channels = graph.node("DequantizeLinear", "narrow", scale, axis=0)
    data = graph.input("data", [3, 6])
    rows = [graph.weight(graph.random.uniform(0.02, 0.04, (3, 2)).astype(np.float32))]
    rows.append(graph.weight(graph.random.integers(0, 256, (3, 2)).astype(np.uint8)))
    rounded = graph.node("QuantizeLinear", data, *rows, axis=1, block_size=3)
    outputs = [graph.node("MatMul", data, blocks), graph.node("MatMul", data, channels), rounded]
    network = read(graph, tmp_path, *outputs)
    [kept] = calls(network, "dequantize")
    assert constant_value(kept.args[0]).dtype == np.int8
    assert_matches_reference(network, random_inputs(network), rtol=1e-5, atol=1e-5)


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("bits", "block", "inputs", "zeros"),
    [(4, 16, 40, None), (4, 16, 40, np.uint8), (4, 32, 96, np.float32), (8, 16, 48, None), (8, 16, 48, np.uint8)],
)
def test_weights_packed_by_blocks(bits: int, block: int, inputs: int, zeros: type | None, tmp_path: Path) -> None:
    """MatMulNBits, whose weights become float when the network is imported."""
    graph, outputs, blocks = Quantised(opset=17), 6, -(-inputs // block)
    data = graph.input("data", [2, 5, inputs])
    packed = graph.stored(np.uint8, outputs, blocks, block * bits // 8)
    more = [graph.weight(graph.random.uniform(0.02, 0.04, outputs * blocks).astype(np.float32))]
    if zeros is np.uint8:
        more.append(graph.stored(np.uint8, outputs * -(-blocks * bits // 8)))
    elif zeros:
        more.append(graph.weight(graph.random.uniform(0, 2**bits, (outputs, blocks)).astype(zeros)))
    sizes = {"K": inputs, "N": outputs, "bits": bits, "block_size": block}
    network = read(graph, tmp_path, graph.node("MatMulNBits", data, packed, *more, domain=MICROSOFT, **sizes))
    values = random_inputs(network)
    [found], [wanted] = computed(network, values), network.reference(values).values()
    assert (found.shape, found.dtype) == ((2, 5, outputs), np.float32)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_onnxruntime_is_asked_for_exact_sums_and_makes_sessions_where_it_has_none(tmp_path: Path) -> None:
    graph, outputs = every_operator(np.uint8)
    entry = "session.x64quantprecision"
    session = cpu_session(graph.save(tmp_path / "net.onnx", outputs["Conv"]))
    assert session.get_session_options().get_session_config_entry(entry) == "1"
    sharing = graph.save(tmp_path / "net.onnx", outputs["Gemm"], outputs["Gemm in float"])
    assert len(cpu_session(sharing).get_outputs()) == 2


@pytest.mark.parametrize(
    ("form", "operators"),
    [
        ("operators-u8s8-channels", ("Conv", "Relu")),
        ("operators-u8s8-channels", ("Conv", "Relu", "Add")),
        ("operators-u8s8-channels", ("Conv", "Relu", "Mul")),
        ("pairs-s8s8-channels", ("Conv", "Relu", "Add")),
    ],
)
def test_the_reference_is_exact_if_onnxruntime_leaves_no_operator_in_float(
    form: str, operators: tuple[str, ...], tmp_path: Path
) -> None:
    graph = Graph()
    value = first = graph.conv(graph.input("data", [1, 3, 16, 16]), 3, 3, 1)
    for operator in operators[1:]:
        value = graph.node(operator, *([value] if operator == "Relu" else [first, graph.conv(value, 3, 3, 1)]))
    source = graph.save(tmp_path / "float.onnx", value)
    path = quantise(source, tmp_path / "net.onnx", FORMS[form], random_samples(source))
    here = load_board("local")
    adds_as_here = "Add" not in operators or (here.is_x86 and host_of(here).fuses)
    assert read_onnx(path).is_reference_exact() is (
        "Mul" not in operators and adds_as_here and form.startswith("operators")
    )


@pytest.mark.parametrize("form", FORMS)
def test_what_onnxruntimes_quantiser_writes_is_imported(form: str, tmp_path: Path) -> None:
    graph = Graph()
    first = graph.node("Relu", graph.conv(graph.input("data", [1, 3, 16, 16]), 3, 8, 3, pads=[1] * 4))
    second = graph.node("Sigmoid", graph.conv(first, 8, 8, 3, group=8, pads=[1] * 4))
    pooled = graph.node("MaxPool", graph.node("Add", first, second), kernel_shape=[2, 2], strides=[2, 2])
    flat = graph.node("Flatten", graph.node("GlobalAveragePool", graph.node("Concat", pooled, pooled, axis=1)))
    output = graph.node("Gemm", flat, graph.normal(10, 16), graph.normal(10), transB=1)
    source = graph.save(tmp_path / "float.onnx", output)
    network = read_onnx(quantise(source, tmp_path / "net.onnx", FORMS[form], random_samples(source)))
    assert network.quantised
    stored = {str(call.args[0].ty.dtype) for call in calls(network, "dequantize") if is_constant(call)}
    if FORMS[form].kind == "dynamic":
        convolutions = calls(network, "nn.conv2d")
        assert len(convolutions) == 2
        assert {str(call.ty.dtype) for call in convolutions + calls(network, "matmul")} == {"int32"}
    else:
        assert stored == {FORMS[form].weights, "int32"}
        assert {str(call.ty.dtype) for call in calls(network, "quantize")} == {FORMS[form].activations}
        in_float = calls(network, "nn.conv2d") + calls(network, "nn.max_pool2d")
        assert {str(call.ty.dtype) for call in in_float} == {"float32"}


# What rounding alone does to a quantised network shows where its weights are larger by their last bit.


def halves(activation: str = "LeakyRelu") -> tuple[Graph, str]:
    """A product of whole numbers by a half, an activation, and its rounding to whole numbers again."""
    graph = Quantised()
    one, half = (graph.weight(np.asarray(value, np.float32)) for value in (1, 0.5))
    zero, none = graph.weight(np.asarray(0, np.int8)), graph.weight(np.asarray(0, np.int32))
    read = graph.pair(graph.input("data", [1, 16]), one, zero)
    weights = graph.node("DequantizeLinear", graph.weight(np.eye(16, dtype=np.int8)), half, zero)
    bias = graph.node("DequantizeLinear", graph.weight(np.zeros(16, np.int32)), half, none)
    return graph, graph.pair(graph.node(activation, graph.node("Gemm", read, weights, bias)), one, zero)


def test_values_at_a_half_move_by_a_step(tmp_path: Path) -> None:
    graph, output = halves()
    network = read_onnx(graph.save(tmp_path / "net.onnx", output))
    data = {"data": np.arange(16, dtype=np.float32).reshape(1, 16)}
    assert network.quantised
    [wanted], *others = (run(data).values() for run in (network.reference, *network.other_kernels))
    moved = [(found - wanted).ravel().tolist() for [found] in others]
    # 0.5, 2.5, 4.5 and 6.5 go to the even number below them; 1.5, 3.5, 5.5 and 7.5 to the one above.
    assert moved == [[0, 1, 0, 0] * 4, [0, 0, 0, -1] * 4]


def test_scales_of_activations_and_biases_stay() -> None:
    graph, output = halves()
    model = graph.model(output)
    nudged = with_nudged_weights(model, np.inf)
    scales = {each.name: numpy_helper.to_array(each).item() for each in nudged.graph.initializer if each.data_type == 1}
    changed = [
        (scales[after.input[1]], scales[before.input[1]])
        for before, after in zip(model.graph.node, nudged.graph.node, strict=True)
        if before.input != after.input
    ]
    assert changed == [(np.nextafter(np.float32(0.5), np.float32(1)).item(), 0.5)]
    assert [node.input[1] for node in model.graph.node if node.op_type == "DequantizeLinear"].count("w1") == 2
    onnx.checker.check_model(nudged)


@pytest.mark.parametrize(("operator", "nudged"), [("Add", 2), ("Mul", 2), ("MatMul", 0)])
def test_of_tensors_that_are_added_or_multiplied_the_scales_move(operator: str, nudged: int) -> None:
    graph = Quantised()
    steps = graph.parameters(np.uint8)
    one, other = (graph.pair(graph.input(name, [4, 4]), *steps) for name in ("one", "other"))
    model = graph.model(graph.pair(graph.node(operator, one, other), *steps))
    pairs = zip(model.graph.node, with_nudged_weights(model, 0).graph.node, strict=True)
    assert sum(before.input != after.input for before, after in pairs) == nudged


def test_layers_of_which_the_reference_has_integer_kernels_stay() -> None:
    graph, output = halves("Relu")
    model = graph.model(output)
    assert with_nudged_weights(model, np.inf) == model
