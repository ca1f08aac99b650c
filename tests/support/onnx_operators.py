"""Tiny ONNX networks, one for each use of an operator, at any opset from 7 to 21."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from support.networks import Graph

OPSETS = range(7, 22)

Build = Callable[[Graph], str | tuple[str, ...]]


@dataclass(frozen=True)
class Case:
    """A network of one operator, or of the few that belong together.

    Attributes:
        name: what it shows.
        since, until: the opsets that have it.
        build: adds the nodes to a graph and names the outputs.
    """

    name: str
    since: int
    until: int
    build: Build

    def model(self, opset: int) -> onnx.ModelProto:
        graph = Graph(opset=opset)
        outputs = self.build(graph)
        model = graph.model(*((outputs,) if isinstance(outputs, str) else outputs))
        for value in model.graph.output:  # some are integers
            value.ClearField("type")
        return onnx.shape_inference.infer_shapes(model)


CASES: list[Case] = []


def case(since: int = 7, until: int = 21) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        CASES.append(Case(build.__name__.strip("_"), since, until, build))
        return build

    return register


def image(graph: Graph, channels: int = 3, rows: int = 8, columns: int = 10) -> str:
    return graph.input("data", [1, channels, rows, columns])


def ints(graph: Graph, *values: int) -> str:
    return graph.weight(np.array(values, np.int64))


def floats(graph: Graph, *values: float) -> str:
    return graph.weight(np.array(values, np.float32))


def scalar(graph: Graph, value: float) -> str:
    return graph.weight(np.array(value, np.float32))


def axes_since(opset: int, graph: Graph, operator: str, data: str, axes: list[int], **attributes: int) -> str:
    """An operator whose axes are an attribute in older opsets and an input from `opset` on."""
    if graph.opset < opset:
        return graph.node(operator, data, axes=axes, **attributes)
    return graph.node(operator, data, ints(graph, *axes), **attributes)


# Operators of one input, without attributes.
for _since, _names in {
    7: "Abs Ceil Cos Elu Exp Floor HardSigmoid Identity LeakyRelu Neg Relu Selu Sigmoid Sin Softplus Softsign Tan Tanh",
    9: "Sinh Cosh Sign Erf Shrink",
    10: "ThresholdedRelu",
    11: "Round",
    14: "HardSwish",
    18: "Mish",
    20: "Gelu",
}.items():
    for _name in _names.split():
        CASES.append(Case(_name.lower(), _since, 21, lambda graph, operator=_name: graph.node(operator, image(graph))))
for _name in ("Log", "Sqrt", "Reciprocal"):
    CASES.append(
        Case(
            _name.lower(),
            7,
            21,
            lambda graph, operator=_name: graph.node(operator, graph.node("Exp", image(graph))),
        )
    )

# Operators of two tensors, broadcast.
for _name in ("Add", "Sub", "Mul", "Div", "PRelu"):
    CASES.append(
        Case(
            f"{_name.lower()}_of_channels",
            7,
            21,
            lambda graph, operator=_name: graph.node(
                operator, image(graph), graph.weight(np.float32([0.5, 2.0, -1.5]).reshape(3, 1, 1))
            ),
        )
    )


@case()
def constant_minus_tensor(graph: Graph) -> str:
    return graph.node("Sub", scalar(graph, 1.0), image(graph))


@case()
def constant_by_tensor(graph: Graph) -> str:
    return graph.node("Div", scalar(graph, 1.0), graph.node("Exp", image(graph)))


@case()
def pow_(graph: Graph) -> str:
    return graph.node("Pow", graph.node("Abs", image(graph)), scalar(graph, 1.5))


@case()
def square(graph: Graph) -> str:
    return graph.node("Pow", image(graph), scalar(graph, 2.0))


@case()
def fifth_power(graph: Graph) -> str:
    return graph.node("Pow", image(graph), scalar(graph, 5.0))


@case()
def inverse_square(graph: Graph) -> str:
    return graph.node("Pow", graph.node("Exp", image(graph)), scalar(graph, -2.0))


@case()
def power_of_another_tensor(graph: Graph) -> str:
    data = image(graph)
    return graph.node("Pow", data, graph.node("Floor", graph.node("Mul", data, scalar(graph, 3.0))))


@case(since=12)
def square_by_an_integer(graph: Graph) -> str:
    return graph.node("Pow", image(graph), ints(graph, 2))


@case()
def prelu_of_one_slope(graph: Graph) -> str:
    return graph.node("PRelu", image(graph), floats(graph, 0.2))


@case()
def leakyrelu_with_a_steep_slope(graph: Graph) -> str:
    return graph.node("LeakyRelu", image(graph), alpha=1.5)


@case()
def hardsigmoid_of_keras(graph: Graph) -> str:
    return graph.node("HardSigmoid", image(graph), alpha=1 / 6, beta=0.5)


@case(since=20)
def gelu_by_tanh(graph: Graph) -> str:
    return graph.node("Gelu", image(graph), approximate="tanh")


# Clip, Min, Max, Sum, Mean.


def clip(graph: Graph, data: str, low: float | None, high: float | None) -> str:
    if graph.opset < 11:
        bounds = {name: value for name, value in (("min", low), ("max", high)) if value is not None}
        return graph.node("Clip", data, **bounds)
    names = ["" if value is None else scalar(graph, value) for value in (low, high)]
    return graph.node("Clip", data, *(names if names[1] else names[:1]))


@case()
def clip_to_six(graph: Graph) -> str:
    return clip(graph, image(graph), 0.0, 6.0)


@case()
def clip_from_below(graph: Graph) -> str:
    return clip(graph, image(graph), -0.5, None)


@case()
def clip_from_above(graph: Graph) -> str:
    return clip(graph, image(graph), None, 0.5)


@case()
def clip_without_bounds(graph: Graph) -> str:
    return graph.node("Clip", image(graph))


@case(since=12)
def clip_of_integers(graph: Graph) -> str:
    data = graph.input("data", [5], TensorProto.INT32)
    return graph.node("Clip", data, graph.weight(np.array(0, np.int32)), graph.weight(np.array(3, np.int32)))


@case(since=8)
def max_of_three(graph: Graph) -> str:
    data = image(graph)
    return graph.node("Max", data, graph.node("Neg", data), scalar(graph, 0.1))


@case()
def min_of_one(graph: Graph) -> str:
    return graph.node("Min", image(graph))


@case()
def sum_of_three(graph: Graph) -> str:
    data = image(graph)
    return graph.node("Sum", data, graph.node("Relu", data), graph.node("Tanh", data))


@case()
def mean_of_two(graph: Graph) -> str:
    data = image(graph)
    return graph.node("Mean", data, graph.node("Relu", data))


# Convolutions.


@case()
def conv(graph: Graph) -> str:
    return graph.conv(image(graph), 3, 4, 3)


@case()
def conv_with_strides_and_uneven_pads(graph: Graph) -> str:
    return graph.conv(image(graph), 3, 4, 3, pads=[0, 1, 2, 3], strides=[2, 1])


@case()
def conv_with_dilations(graph: Graph) -> str:
    return graph.conv(image(graph), 3, 4, 3, dilations=[2, 2], pads=[2, 2, 2, 2])


@case()
def conv_same_upper(graph: Graph) -> str:
    return graph.conv(image(graph, rows=7), 3, 4, 3, auto_pad="SAME_UPPER", strides=[2, 2])


@case()
def conv_same_lower(graph: Graph) -> str:
    return graph.conv(image(graph, rows=7), 3, 4, 4, auto_pad="SAME_LOWER", strides=[2, 2])


@case()
def conv_valid(graph: Graph) -> str:
    return graph.conv(image(graph), 3, 4, 3, auto_pad="VALID")


@case()
def conv_of_each_channel(graph: Graph) -> str:
    return graph.conv(image(graph), 3, 3, 3, group=3, pads=[1, 1, 1, 1])


@case()
def conv_of_groups(graph: Graph) -> str:
    return graph.conv(image(graph, 4), 4, 6, 3, group=2)


@case()
def conv_of_each_channel_twice(graph: Graph) -> str:
    return graph.conv(image(graph), 3, 6, 3, group=3)


@case()
def conv_in_one_dimension(graph: Graph) -> str:
    data = graph.input("data", [1, 3, 12])
    return graph.node("Conv", data, graph.normal(4, 3, 3), graph.normal(4), pads=[1, 1])


@case()
def conv_in_three_dimensions(graph: Graph) -> str:
    return graph.node("Conv", graph.input("data", [1, 2, 4, 5, 6]), graph.normal(3, 2, 3, 3, 3), pads=[1] * 6)


def transposed(graph: Graph, data: str, inputs: int, outputs: int, kernel: int, **attributes: object) -> str:
    weights = graph.normal(inputs, outputs // int(str(attributes.get("group", 1))), kernel, kernel)
    return graph.node("ConvTranspose", data, weights, graph.normal(outputs), **attributes)


@case()
def convtranspose(graph: Graph) -> str:
    return transposed(graph, image(graph), 3, 4, 2, strides=[2, 2])


@case()
def convtranspose_with_output_padding(graph: Graph) -> str:
    return transposed(graph, image(graph), 3, 4, 3, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])


@case()
def convtranspose_with_output_shape(graph: Graph) -> str:
    return transposed(graph, image(graph), 3, 4, 3, strides=[2, 2], output_shape=[16, 20])


@case()
def convtranspose_same_upper(graph: Graph) -> str:
    return transposed(graph, image(graph), 3, 4, 3, strides=[2, 2], auto_pad="SAME_UPPER")


@case()
def convtranspose_of_groups(graph: Graph) -> str:
    return transposed(graph, image(graph, 4), 4, 4, 3, strides=[2, 2], group=2)


@case()
def convtranspose_of_each_channel(graph: Graph) -> str:
    return transposed(graph, image(graph), 3, 3, 4, strides=[2, 2], pads=[1, 1, 1, 1], group=3)


@case()
def convtranspose_with_dilations(graph: Graph) -> str:
    return transposed(graph, image(graph), 3, 4, 3, dilations=[2, 2])


@case()
def convtranspose_in_one_dimension(graph: Graph) -> str:
    return graph.node("ConvTranspose", graph.input("data", [1, 3, 9]), graph.normal(3, 4, 4), strides=[2], pads=[1, 1])


# Pooling.


@case()
def maxpool(graph: Graph) -> str:
    return graph.node("MaxPool", image(graph), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 0])


@case(since=10)
def maxpool_that_rounds_up(graph: Graph) -> str:
    return graph.node("MaxPool", image(graph), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)


@case(since=10)
def maxpool_with_dilations(graph: Graph) -> str:
    return graph.node("MaxPool", image(graph), kernel_shape=[2, 2], dilations=[2, 2])


@case()
def maxpool_same_upper(graph: Graph) -> str:
    return graph.node("MaxPool", image(graph, rows=7), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER")


@case()
def maxpool_same_upper_stride_one(graph: Graph) -> str:
    return graph.node("MaxPool", image(graph), kernel_shape=[2, 2], auto_pad="SAME_UPPER")


@case()
def maxpool_same_lower(graph: Graph) -> str:
    return graph.node("MaxPool", image(graph, rows=7), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER")


@case()
def maxpool_in_one_dimension(graph: Graph) -> str:
    return graph.node("MaxPool", graph.input("data", [1, 3, 9]), kernel_shape=[3], strides=[2])


@case()
def averagepool(graph: Graph) -> str:
    return graph.node("AveragePool", image(graph), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


@case()
def averagepool_that_counts_the_padding(graph: Graph) -> str:
    return graph.node(
        "AveragePool", image(graph), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1
    )


@case(since=10)
def averagepool_that_rounds_up(graph: Graph) -> str:
    return graph.node("AveragePool", image(graph), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)


@case(since=19)
def averagepool_that_rounds_up_and_counts_the_padding(graph: Graph) -> str:
    return graph.node(
        "AveragePool",
        image(graph),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        ceil_mode=1,
        count_include_pad=1,
    )


@case(since=19)
def averagepool_with_dilations(graph: Graph) -> str:
    return graph.node("AveragePool", image(graph), kernel_shape=[2, 2], dilations=[2, 2])


@case()
def averagepool_same_upper(graph: Graph) -> str:
    return graph.node("AveragePool", image(graph, rows=7), kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")


@case()
def averagepool_of_everything(graph: Graph) -> str:
    return graph.node("AveragePool", image(graph), kernel_shape=[8, 10])


@case()
def globalaveragepool(graph: Graph) -> str:
    return graph.node("GlobalAveragePool", image(graph))


@case()
def globalaveragepool_in_one_dimension(graph: Graph) -> str:
    return graph.node("GlobalAveragePool", graph.input("data", [1, 3, 9]))


@case()
def globalmaxpool(graph: Graph) -> str:
    return graph.node("GlobalMaxPool", image(graph))


@case()
def lppool(graph: Graph) -> str:
    return graph.node("LpPool", image(graph), kernel_shape=[2, 2], strides=[2, 2], p=2)


# Normalisation.


@case()
def batchnormalization(graph: Graph) -> str:
    return graph.batch_norm(image(graph), 3)


@case()
def batchnormalization_with_epsilon(graph: Graph) -> str:
    weights = [graph.weight(graph.random.uniform(0.5, 2, 3).astype(np.float32)) for _ in range(4)]
    return graph.node("BatchNormalization", image(graph), *weights, epsilon=0.1, momentum=0.5)


@case(until=8)
def batchnormalization_with_spatial_one(graph: Graph) -> str:
    weights = [graph.weight(graph.random.uniform(0.5, 2, 3).astype(np.float32)) for _ in range(4)]
    return graph.node("BatchNormalization", image(graph), *weights, spatial=1)


@case()
def instancenormalization(graph: Graph) -> str:
    return graph.node("InstanceNormalization", image(graph), graph.normal(3), graph.normal(3))


@case()
def lrn(graph: Graph) -> str:
    return graph.node("LRN", image(graph, 7), size=5, alpha=0.1, beta=0.75, bias=2.0)


@case(since=17)
def layernormalization(graph: Graph) -> str:
    return graph.node("LayerNormalization", graph.input("data", [2, 5, 6]), graph.normal(6), graph.normal(6), axis=-1)


@case(since=21)
def groupnormalization(graph: Graph) -> str:
    return graph.node("GroupNormalization", image(graph, 6), graph.normal(6), graph.normal(6), num_groups=3)


@case(since=18, until=20)
def groupnormalization_of_each_group(graph: Graph) -> str:
    return graph.node("GroupNormalization", image(graph, 6), graph.normal(3), graph.normal(3), num_groups=3)


@case()
def lpnormalization(graph: Graph) -> str:
    return graph.node("LpNormalization", image(graph), axis=1, p=2)


@case(since=9)
def meanvariancenormalization(graph: Graph) -> str:
    return graph.node("MeanVarianceNormalization", image(graph), axes=[2, 3])


@case()
def dropout(graph: Graph) -> str:
    if graph.opset < 12:
        return graph.node("Dropout", image(graph), ratio=0.3)
    return graph.node("Dropout", image(graph), scalar(graph, 0.3))


@case(since=10)
def dropout_with_a_mask_nobody_reads(graph: Graph) -> str:
    return graph.node("Relu", graph.node("Dropout", image(graph), outputs=2))


# Softmax: up to opset 12 over all axes from `axis` on, flattened; the default is 1, from 13 on -1.


@case()
def softmax(graph: Graph) -> str:
    return graph.node("Softmax", image(graph))


@case()
def softmax_of_channels(graph: Graph) -> str:
    return graph.node("Softmax", image(graph), axis=1)


@case()
def softmax_of_the_last_axis(graph: Graph) -> str:
    return graph.node("Softmax", image(graph), axis=-1 if graph.opset > 10 else 3)


@case()
def logsoftmax(graph: Graph) -> str:
    return graph.node("LogSoftmax", image(graph), axis=2)


@case()
def hardmax(graph: Graph) -> str:
    return graph.node("Hardmax", graph.input("data", [2, 5]))


# Dense layers.


@case()
def gemm(graph: Graph) -> str:
    return graph.node("Gemm", graph.input("data", [2, 6]), graph.normal(6, 5), graph.normal(5))


@case()
def gemm_with_factors(graph: Graph) -> str:
    data = graph.input("data", [2, 6])
    return graph.node("Gemm", data, graph.normal(5, 6), graph.normal(5), transB=1, alpha=0.5, beta=2.0)


@case()
def gemm_of_a_transposed_input(graph: Graph) -> str:
    return graph.node("Gemm", graph.input("data", [6, 2]), graph.normal(6, 5), graph.normal(2, 1), transA=1)


@case(since=11)
def gemm_without_bias(graph: Graph) -> str:
    return graph.node("Gemm", graph.input("data", [2, 6]), graph.normal(6, 5))


@case(since=11)
def gemm_with_an_empty_bias(graph: Graph) -> str:
    return graph.node("Gemm", graph.input("data", [2, 6]), graph.normal(6, 5), "", alpha=3.0)


@case()
def gemm_with_a_scalar_bias(graph: Graph) -> str:
    return graph.node("Gemm", graph.input("data", [2, 6]), graph.normal(6, 5), scalar(graph, 0.7))


@case()
def matmul(graph: Graph) -> str:
    return graph.node("MatMul", graph.input("data", [2, 6]), graph.normal(6, 5))


@case()
def matmul_of_a_batch(graph: Graph) -> str:
    return graph.node("MatMul", graph.input("data", [3, 2, 6]), graph.input("other", [3, 6, 4]))


@case()
def matmul_of_a_vector(graph: Graph) -> str:
    return graph.node("MatMul", graph.input("data", [2, 6]), graph.normal(6))


@case(since=12)
def einsum(graph: Graph) -> str:
    return graph.node("Einsum", graph.input("data", [2, 3, 4]), graph.normal(4, 5), equation="abc,cd->abd")


# Reductions: axes are an attribute up to opset 12 (ReduceSum) or 17 (the others).
for _name in ("Mean", "Max", "Min", "Sum", "Prod", "SumSquare", "L1", "L2", "LogSumExp", "LogSum"):
    _from = 13 if _name == "Sum" else 18

    def _reduced(
        graph: Graph, axes: list[int] | None, operator: str = f"Reduce{_name}", since: int = _from, **attributes: int
    ) -> str:
        data = graph.node("Exp", image(graph))
        if axes is None:
            return graph.node(operator, data, **attributes)
        return axes_since(since, graph, operator, data, axes, **attributes)

    for _title, _axes, _attributes in (
        ("pixels", [2, 3], {}),
        ("channels_without_keeping", [1], {"keepdims": 0}),
        ("everything", None, {}),
        ("everything_without_keeping", None, {"keepdims": 0}),
    ):
        CASES.append(
            Case(
                f"reduce{_name.lower()}_of_{_title}",
                7,
                21,
                lambda graph, reduced=_reduced, axes=_axes, attributes=_attributes: reduced(graph, axes, **attributes),
            )
        )


@case(since=11)
def reducemean_of_negative_axes(graph: Graph) -> str:
    return axes_since(18, graph, "ReduceMean", image(graph), [-1, -2], keepdims=0)


@case(since=18)
def reducemean_of_no_axes(graph: Graph) -> str:
    return graph.node("ReduceMean", image(graph), ints(graph), noop_with_empty_axes=1)


@case(since=13)
def reducesum_of_no_axes(graph: Graph) -> str:
    return graph.node("ReduceSum", image(graph), noop_with_empty_axes=1)


@case()
def argmax(graph: Graph) -> str:
    return graph.node("ArgMax", image(graph), axis=1)


@case()
def argmin_without_keeping(graph: Graph) -> str:
    return graph.node("ArgMin", image(graph), axis=2, keepdims=0)


@case()
def topk(graph: Graph) -> tuple[str, str]:
    data = graph.input("data", [2, 9])
    first = (
        graph.node("TopK", data, k=3, outputs=2)
        if graph.opset < 10
        else graph.node("TopK", data, ints(graph, 3), outputs=2)
    )
    return first, f"{first}_1"


# Shapes.


@case()
def reshape(graph: Graph) -> str:
    return graph.node("Reshape", image(graph), ints(graph, 0, -1))


@case()
def reshape_that_keeps_two(graph: Graph) -> str:
    return graph.node("Reshape", image(graph), ints(graph, 0, 0, 80))


@case(since=14)
def reshape_with_allowzero(graph: Graph) -> str:
    return graph.node("Reshape", image(graph), ints(graph, 3, -1), allowzero=1)


@case()
def reshape_by_the_shape_of_another(graph: Graph) -> str:
    data = image(graph)
    return graph.node("Reshape", graph.node("Flatten", data), graph.node("Shape", data))


@case()
def flatten(graph: Graph) -> str:
    return graph.node("Flatten", image(graph))


@case()
def flatten_from_the_second(graph: Graph) -> str:
    return graph.node("Flatten", image(graph), axis=2)


@case()
def flatten_all(graph: Graph) -> str:
    return graph.node("Flatten", image(graph), axis=0)


@case(since=11)
def flatten_from_the_end(graph: Graph) -> str:
    return graph.node("Flatten", image(graph), axis=-1)


@case()
def squeeze(graph: Graph) -> str:
    return axes_since(13, graph, "Squeeze", graph.node("GlobalAveragePool", image(graph)), [2, 3])


@case()
def squeeze_all(graph: Graph) -> str:
    return graph.node("Squeeze", graph.input("data", [1, 3, 1, 2]))


@case(since=11)
def squeeze_from_the_end(graph: Graph) -> str:
    return axes_since(13, graph, "Squeeze", graph.input("data", [1, 3, 2, 1]), [-1])


@case()
def unsqueeze(graph: Graph) -> str:
    return axes_since(13, graph, "Unsqueeze", graph.input("data", [3, 4]), [0, 3])


@case(since=11)
def unsqueeze_from_the_end(graph: Graph) -> str:
    return axes_since(13, graph, "Unsqueeze", graph.input("data", [3, 4]), [-1])


@case()
def transpose(graph: Graph) -> str:
    return graph.node("Transpose", image(graph), perm=[0, 2, 3, 1])


@case()
def transpose_backwards(graph: Graph) -> str:
    return graph.node("Transpose", image(graph))


@case()
def concat(graph: Graph) -> str:
    data = image(graph)
    return graph.node("Concat", data, graph.node("Relu", data), axis=1)


@case(since=11)
def concat_from_the_end(graph: Graph) -> str:
    data = image(graph)
    return graph.node("Concat", data, graph.node("Relu", data), graph.normal(1, 3, 8, 2), axis=-1)


def halves(graph: Graph, sizes: list[int]) -> tuple[str, ...]:
    if graph.opset < 13:
        first = graph.node("Split", image(graph, 4), split=sizes, axis=1, outputs=len(sizes))
    else:
        first = graph.node("Split", image(graph, 4), ints(graph, *sizes), axis=1, outputs=len(sizes))
    return first, *(f"{first}_{index}" for index in range(1, len(sizes)))


@case()
def split(graph: Graph) -> tuple[str, ...]:
    return halves(graph, [1, 3])


@case()
def split_in_three(graph: Graph) -> tuple[str, ...]:
    return halves(graph, [1, 1, 2])


@case()
def split_evenly(graph: Graph) -> tuple[str, ...]:
    attributes = {"num_outputs": 2} if graph.opset >= 18 else {}
    first = graph.node("Split", image(graph, 4), axis=1, outputs=2, **attributes)
    return first, f"{first}_1"


@case(since=18)
def split_with_a_rest(graph: Graph) -> tuple[str, ...]:
    first = graph.node("Split", image(graph, 7), axis=1, outputs=3, num_outputs=3)
    return first, f"{first}_1", f"{first}_2"


def sliced(graph: Graph, starts: list[int], ends: list[int], axes: list[int], steps: list[int] | None = None) -> str:
    if graph.opset < 10:
        return graph.node("Slice", image(graph), starts=starts, ends=ends, axes=axes)
    inputs = [ints(graph, *values) for values in (starts, ends, axes, *([steps] if steps else []))]
    return graph.node("Slice", image(graph), *inputs)


@case()
def slice_(graph: Graph) -> str:
    return sliced(graph, [1, 2], [3, 9], [1, 3])


@case()
def slice_to_the_end(graph: Graph) -> str:
    return sliced(graph, [2], [2**31 - 1], [2])


@case()
def slice_with_negative_bounds(graph: Graph) -> str:
    return sliced(graph, [-5], [-1], [3])


@case(since=10)
def slice_with_steps(graph: Graph) -> str:
    return sliced(graph, [0, 1], [8, 10], [2, 3], [2, 2])


@case(since=10)
def slice_backwards(graph: Graph) -> str:
    return sliced(graph, [-1], [-(2**31)], [3], [-1])


@case()
def slice_without_axes(graph: Graph) -> str:
    if graph.opset < 10:
        return graph.node("Slice", graph.input("data", [5, 6]), starts=[1, 0], ends=[4, 2])
    return graph.node("Slice", graph.input("data", [5, 6]), ints(graph, 1, 0), ints(graph, 4, 2))


def padded(graph: Graph, widths: list[int], value: float | None = None, **attributes: str) -> str:
    if graph.opset < 11:
        extra = {} if value is None else {"value": value}
        return graph.node("Pad", image(graph), pads=widths, **extra, **attributes)
    extra = [] if value is None else [scalar(graph, value)]
    return graph.node("Pad", image(graph), ints(graph, *widths), *extra, **attributes)


@case()
def pad(graph: Graph) -> str:
    return padded(graph, [0, 0, 1, 2, 0, 0, 3, 4])


@case()
def pad_with_a_value(graph: Graph) -> str:
    return padded(graph, [0, 1, 1, 1, 0, 0, 1, 1], 0.5)


@case()
def pad_reflect(graph: Graph) -> str:
    return padded(graph, [0, 0, 1, 2, 0, 0, 3, 4], mode="reflect")


@case()
def pad_edge(graph: Graph) -> str:
    return padded(graph, [0, 0, 1, 2, 0, 0, 3, 4], mode="edge")


@case()
def pad_that_cuts(graph: Graph) -> str:
    return padded(graph, [0, 0, -1, 0, 0, 0, 2, -1])


@case(since=18)
def pad_of_named_axes(graph: Graph) -> str:
    return graph.node("Pad", image(graph), ints(graph, 1, 2, 0, 3), scalar(graph, 0.25), ints(graph, 2, -1))


@case(since=18)
def pad_of_named_axes_reflect(graph: Graph) -> str:
    return graph.node("Pad", image(graph), ints(graph, 1, 2, 0, 3), "", ints(graph, 2, 3), mode="reflect")


@case(since=19)
def pad_wrap(graph: Graph) -> str:
    return graph.node("Pad", image(graph), ints(graph, 0, 0, 1, 2, 0, 0, 3, 4), mode="wrap")


@case()
def tile(graph: Graph) -> str:
    return graph.node("Tile", graph.input("data", [2, 3]), ints(graph, 2, 3))


@case(since=8)
def expand(graph: Graph) -> str:
    return graph.node("Expand", graph.input("data", [3, 1]), ints(graph, 2, 1, 4))


@case()
def gather(graph: Graph) -> str:
    return graph.node("Gather", image(graph), ints(graph, 2, 0), axis=1)


@case()
def gather_one(graph: Graph) -> str:
    return graph.node("Gather", image(graph), graph.weight(np.array(1, np.int64)), axis=1)


@case(since=11)
def gather_from_the_end(graph: Graph) -> str:
    return graph.node("Gather", image(graph), graph.weight(np.array(-1, np.int64)), axis=-2)


@case(since=11)
def gatherelements(graph: Graph) -> str:
    indices = graph.weight(np.array([[0, 1], [2, 0]], np.int64))
    return graph.node("GatherElements", graph.input("data", [3, 2]), indices, axis=0)


@case(since=11)
def gathernd(graph: Graph) -> str:
    return graph.node("GatherND", graph.input("data", [3, 4]), graph.weight(np.array([[0, 1], [2, 3]], np.int64)))


@case(since=11)
def scatterelements(graph: Graph) -> str:
    indices = graph.weight(np.array([[0, 1], [2, 0]], np.int64))
    return graph.node("ScatterElements", graph.input("data", [3, 2]), indices, graph.normal(2, 2), axis=0)


@case(since=11)
def scatternd(graph: Graph) -> str:
    indices = graph.weight(np.array([[1], [2]], np.int64))
    return graph.node("ScatterND", graph.input("data", [4, 3]), indices, graph.normal(2, 3))


@case()
def depthtospace(graph: Graph) -> str:
    return graph.node("DepthToSpace", image(graph, 8), blocksize=2)


@case(since=11)
def depthtospace_crd(graph: Graph) -> str:
    return graph.node("DepthToSpace", image(graph, 8), blocksize=2, mode="CRD")


@case()
def spacetodepth(graph: Graph) -> str:
    return graph.node("SpaceToDepth", image(graph), blocksize=2)


@case(since=11)
def cumsum(graph: Graph) -> str:
    return graph.node("CumSum", graph.input("data", [3, 4]), graph.weight(np.array(1, np.int64)))


@case(since=14)
def trilu(graph: Graph) -> str:
    return graph.node("Trilu", graph.input("data", [4, 4]), upper=0)


# Kinds and comparisons.


@case()
def cast(graph: Graph) -> str:
    return graph.node("Cast", graph.node("Cast", image(graph), to=TensorProto.INT32), to=TensorProto.FLOAT)


@case()
def cast_to_bytes(graph: Graph) -> str:
    positive = graph.node("Mul", graph.node("Sigmoid", image(graph)), scalar(graph, 200.0))
    return graph.node("Cast", positive, to=TensorProto.UINT8)


@case(since=15)
def castlike(graph: Graph) -> str:
    return graph.node("CastLike", graph.input("data", [5], TensorProto.INT32), scalar(graph, 0.0))


@case(since=9)
def where(graph: Graph) -> str:
    data = image(graph)
    return graph.node("Where", graph.node("Greater", data, scalar(graph, 0.0)), data, graph.node("Exp", data))


@case()
def less(graph: Graph) -> str:
    return graph.node("Cast", graph.node("Less", image(graph), scalar(graph, 0.2)), to=TensorProto.FLOAT)


@case(since=12)
def lessorequal(graph: Graph) -> str:
    return graph.node("Cast", graph.node("LessOrEqual", image(graph), scalar(graph, 0.2)), to=TensorProto.FLOAT)


@case()
def equal(graph: Graph) -> str:
    data = graph.input("data", [5], TensorProto.INT32)
    return graph.node("Cast", graph.node("Equal", data, graph.weight(np.array(1, np.int32))), to=TensorProto.FLOAT)


@case()
def logic(graph: Graph) -> str:
    data = image(graph)
    large, small = (graph.node(name, data, scalar(graph, 0.3)) for name in ("Greater", "Less"))
    either = graph.node("Or", graph.node("And", large, small), graph.node("Not", small))
    return graph.node("Cast", graph.node("Xor", either, small), to=TensorProto.FLOAT)


@case(since=10)
def isnan(graph: Graph) -> str:
    return graph.node("Cast", graph.node("IsNaN", graph.node("Log", image(graph))), to=TensorProto.FLOAT)


@case(since=10)
def mod_of_floats(graph: Graph) -> str:
    return graph.node("Mod", image(graph), scalar(graph, 0.7), fmod=1)


@case(since=10)
def mod_of_integers(graph: Graph) -> str:
    return graph.node("Mod", graph.input("data", [9], TensorProto.INT32), graph.weight(np.array(3, np.int32)))


@case()
def division_of_integers(graph: Graph) -> str:
    return graph.node("Div", graph.input("data", [9], TensorProto.INT32), graph.weight(np.array(2, np.int32)))


# Resize, and Upsample before it.


@case(until=9)
def upsample(graph: Graph) -> str:
    if graph.opset < 9:
        return graph.node("Upsample", image(graph), scales=[1.0, 1.0, 2.0, 2.0], mode="nearest")
    return graph.node("Upsample", image(graph), floats(graph, 1, 1, 2, 2), mode="nearest")


@case(until=9)
def upsample_linear(graph: Graph) -> str:
    if graph.opset < 9:
        return graph.node("Upsample", image(graph), scales=[1.0, 1.0, 2.0, 2.0], mode="linear")
    return graph.node("Upsample", image(graph), floats(graph, 1, 1, 2, 2), mode="linear")


@case(until=9)
def upsample_by_a_fraction(graph: Graph) -> str:
    if graph.opset < 9:
        return graph.node("Upsample", image(graph), scales=[1.0, 1.0, 1.5, 1.5], mode="nearest")
    return graph.node("Upsample", image(graph), floats(graph, 1, 1, 1.5, 1.5), mode="nearest")


def resized(
    graph: Graph, scales: tuple[float, ...] = (), sizes: tuple[int, ...] = (), roi: str = "", **attributes: object
) -> str:
    if graph.opset < 11:
        return graph.node("Resize", image(graph), floats(graph, *scales), **attributes)
    if graph.opset < 13:
        roi = roi or floats(graph)
    names = [roi, floats(graph, *scales) if scales or graph.opset < 13 else "", ints(graph, *sizes) if sizes else ""]
    return graph.node("Resize", image(graph), *(names if sizes else names[:2]), **attributes)


@case(since=10)
def resize_nearest(graph: Graph) -> str:
    return resized(graph, (1, 1, 2, 2), mode="nearest")


@case(since=10)
def resize_linear(graph: Graph) -> str:
    return resized(graph, (1, 1, 2, 2), mode="linear")


@case(since=10)
def resize_nearest_smaller(graph: Graph) -> str:
    return resized(graph, (1, 1, 0.5, 0.5), mode="nearest")


@case(since=10)
def resize_linear_smaller(graph: Graph) -> str:
    return resized(graph, (1, 1, 0.6, 0.6), mode="linear")


@case(since=10)
def resize_nearest_by_a_fraction(graph: Graph) -> str:
    return resized(graph, (1, 1, 1.3, 1.7), mode="nearest")


for _transform in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
    for _mode in ("nearest", "linear", "cubic"):

        @case(since=11)
        def resize(graph: Graph, transform: str = _transform, mode: str = _mode) -> str:
            return resized(graph, sizes=(1, 3, 15, 7), coordinate_transformation_mode=transform, mode=mode)

        CASES[-1] = Case(f"resize_to_sizes_{_mode}_{_transform}", 11, 21, CASES[-1].build)

for _rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
    for _transform in ("half_pixel", "asymmetric", "align_corners"):

        @case(since=11)
        def resize_rounded(graph: Graph, transform: str = _transform, rounding: str = _rounding) -> str:
            return resized(
                graph,
                (1, 1, 2, 1.5),
                mode="nearest",
                coordinate_transformation_mode=transform,
                nearest_mode=rounding,
            )

        CASES[-1] = Case(f"resize_nearest_{_rounding}_{_transform}", 11, 21, CASES[-1].build)


@case(since=11)
def resize_cubic_of_pytorch(graph: Graph) -> str:
    return resized(graph, (1, 1, 2, 2), mode="cubic", coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75)


@case(since=11)
def resize_of_one_row(graph: Graph) -> str:
    data = graph.input("data", [1, 3, 1, 1])
    return graph.node(
        "Resize",
        data,
        floats(graph),
        floats(graph),
        ints(graph, 1, 3, 4, 4),
        mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
    )


@case(since=13)
def resize_by_a_computed_size(graph: Graph) -> str:
    data = image(graph)
    small = graph.node("MaxPool", data, kernel_shape=[2, 2], strides=[2, 2])
    pixels = graph.node("Slice", graph.node("Shape", data), ints(graph, 2), ints(graph, 4), ints(graph, 0))
    first = graph.node("Slice", graph.node("Shape", small), ints(graph, 0), ints(graph, 2), ints(graph, 0))
    size = graph.node("Concat", first, pixels, axis=0)
    return graph.node("Resize", small, "", "", size, mode="linear")


@case(since=18)
def resize_of_named_axes(graph: Graph) -> str:
    return graph.node("Resize", image(graph), "", floats(graph, 2, 2), mode="nearest", axes=[2, 3])


@case(since=18)
def resize_not_larger(graph: Graph) -> str:
    return graph.node(
        "Resize",
        image(graph),
        "",
        "",
        ints(graph, 16, 16),
        mode="linear",
        axes=[2, 3],
        keep_aspect_ratio_policy="not_larger",
    )


@case(since=18)
def resize_with_antialias(graph: Graph) -> str:
    return graph.node("Resize", image(graph), "", floats(graph, 1, 1, 0.5, 0.5), mode="linear", antialias=1)


@case(since=19)
def resize_half_pixel_symmetric(graph: Graph) -> str:
    return graph.node(
        "Resize",
        image(graph),
        "",
        floats(graph, 1, 1, 1.3, 1.7),
        mode="linear",
        coordinate_transformation_mode="half_pixel_symmetric",
    )


@case(since=16)
def gridsample(graph: Graph) -> str:
    return graph.node("GridSample", image(graph), graph.input("grid", [1, 4, 5, 2]))


# Constants.


def with_constant(graph: Graph, **attributes: object) -> str:
    return graph.node("Mul", graph.input("data", [3]), graph.node("Constant", **attributes))


@case()
def constant_tensor(graph: Graph) -> str:
    return with_constant(graph, value=helper.make_tensor("", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0]))


@case(since=12)
def constant_float(graph: Graph) -> str:
    return with_constant(graph, value_float=2.5)


@case(since=12)
def constant_zero(graph: Graph) -> str:
    return graph.node("Add", graph.input("data", [3]), graph.node("Constant", value_float=0.0))


@case(since=12)
def constant_floats(graph: Graph) -> str:
    return with_constant(graph, value_floats=[1.0, 2.0, 3.0])


@case(since=12)
def constant_int(graph: Graph) -> str:
    number = graph.node("Cast", graph.node("Constant", value_int=3), to=TensorProto.FLOAT)
    return graph.node("Mul", graph.input("data", [3]), number)


@case(since=12)
def constant_ints(graph: Graph) -> str:
    return graph.node("Reshape", graph.input("data", [6]), graph.node("Constant", value_ints=[2, 3]))


@case(since=11)
def constant_sparse(graph: Graph) -> str:
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [2], [1.5, -2.0])
    indices = helper.make_tensor("", TensorProto.INT64, [2], [0, 2])
    return with_constant(graph, sparse_value=helper.make_sparse_tensor(values, indices, [3]))


@case(since=9)
def constantofshape(graph: Graph) -> str:
    data = image(graph)
    value = helper.make_tensor("", TensorProto.FLOAT, [1], [0.5])
    return graph.node("Add", data, graph.node("ConstantOfShape", graph.node("Shape", data), value=value))


@case(since=9)
def constantofshape_of_zeros(graph: Graph) -> str:
    return graph.node("Add", graph.input("data", [2, 3]), graph.node("ConstantOfShape", ints(graph, 2, 3)))


@case(since=11)
def range_(graph: Graph) -> str:
    numbers = [graph.weight(np.array(value, np.float32)) for value in (0, 6, 2)]
    return graph.node("Add", graph.input("data", [3]), graph.node("Range", *numbers))


@case(since=11)
def onehot(graph: Graph) -> str:
    values = floats(graph, 0, 1)
    indices = graph.node("ArgMax", graph.input("data", [2, 5]), axis=1, keepdims=0)
    return graph.node("OneHot", indices, graph.weight(np.array(5, np.int64)), values)


# Chains that compute shapes.


@case()
def shape_gather_concat_reshape(graph: Graph) -> str:
    data = image(graph)
    batch = graph.node("Gather", graph.node("Shape", data), graph.weight(np.array(0, np.int64)), axis=0)
    rows = axes_since(13, graph, "Unsqueeze", batch, [0])
    return graph.node("Reshape", data, graph.node("Concat", rows, ints(graph, -1), axis=0))


@case()
def arithmetic_on_shapes(graph: Graph) -> str:
    data = image(graph, 4)
    shape = graph.node("Shape", data)
    parts = []
    for axis in range(4):
        one = graph.node("Gather", shape, graph.weight(np.array(axis, np.int64)), axis=0)
        if axis == 1:
            one = graph.node("Div", one, graph.weight(np.array(2, np.int64)))
        if axis == 3:
            one = graph.node("Mul", one, graph.weight(np.array(2, np.int64)))
        parts.append(axes_since(13, graph, "Unsqueeze", one, [0]))
    return graph.node("Reshape", data, graph.node("Concat", *parts, axis=0))


@case(since=9)
def expand_by_where_and_equal(graph: Graph) -> str:
    """As PyTorch's exporter writes `expand`."""
    shape = ints(graph, 2, -1, 4)
    ones = graph.node("ConstantOfShape", ints(graph, 3), value=helper.make_tensor("", TensorProto.INT64, [1], [1]))
    minus = graph.node("Mul", ones, graph.weight(np.array(-1, np.int64)))
    sizes = graph.node("Where", graph.node("Equal", shape, minus), ones, shape)
    return graph.node("Expand", graph.input("data", [3, 1]), sizes)


@case(since=15)
def part_of_a_shape(graph: Graph) -> str:
    data = image(graph)
    rest = graph.node("Concat", ints(graph, -1), graph.node("Shape", data, start=2), axis=0)
    return graph.node("Reshape", data, rest)


@case()
def size(graph: Graph) -> str:
    data = image(graph)
    count = graph.node("Cast", graph.node("Size", data), to=TensorProto.FLOAT)
    return graph.node("Div", data, count)


@case()
def weights_that_are_computed(graph: Graph) -> str:
    """Weights that an exporter left to be transposed and cast."""
    weights = graph.node("Transpose", graph.normal(5, 6), perm=[1, 0])
    return graph.node("MatMul", graph.input("data", [2, 6]), graph.node("Mul", weights, scalar(graph, 0.5)))


@case()
def quantised_weights(graph: Graph) -> str:
    weights = graph.weight(graph.random.integers(-99, 99, (4, 3, 3, 3)).astype(np.int8))
    if graph.opset < 10:
        numbers = graph.node("Mul", graph.node("Cast", weights, to=TensorProto.FLOAT), scalar(graph, 0.02))
    else:
        numbers = graph.node("DequantizeLinear", weights, scalar(graph, 0.02), graph.weight(np.array(0, np.int8)))
    return graph.node("Conv", image(graph), numbers)


@case()
def halves_of_weights(graph: Graph) -> str:
    """Weights that are kept in float16."""
    weights = graph.weight((graph.random.standard_normal((4, 3, 3, 3)) * 0.3).astype(np.float16))
    return graph.node("Conv", image(graph), graph.node("Cast", weights, to=TensorProto.FLOAT))


# Graphs.


@case()
def an_output_that_is_an_input(graph: Graph) -> tuple[str, str]:
    data = graph.input("data", [2, 3])
    return data, graph.node("Relu", data)


@case()
def identity_of_an_input(graph: Graph) -> tuple[str, str]:
    data = graph.input("data", [2, 3])
    return graph.node("Identity", data), graph.node("Relu", data)


@case()
def an_output_that_is_a_constant(graph: Graph) -> tuple[str, str]:
    return graph.node("Relu", graph.input("data", [2, 3])), floats(graph, 1, 2, 3)


@case()
def an_output_that_is_computed_from_constants(graph: Graph) -> tuple[str, str]:
    return graph.node("Relu", graph.input("data", [2, 3])), graph.node("Neg", floats(graph, 1, 2, 3))


@case()
def one_output_twice_by_identity(graph: Graph) -> tuple[str, str]:
    relu = graph.node("Relu", graph.input("data", [2, 3]))
    return graph.node("Identity", relu), relu


def branch(name: str, operator: str, data: str) -> onnx.GraphProto:
    node = helper.make_node(operator, [data], [f"{name}_result"])
    return helper.make_graph([node], name, [], [helper.make_tensor_value_info(f"{name}_result", 1, None)])


@case(since=11)
def if_with_a_constant_condition(graph: Graph) -> str:
    data = image(graph)
    chosen = graph.node(
        "If",
        graph.weight(np.array(False)),
        then_branch=branch("then", "Relu", data),
        else_branch=branch("else", "Tanh", data),
    )
    return graph.node("Neg", chosen)


@case(since=13)
def if_that_asks_for_a_shape(graph: Graph) -> str:
    """As PyTorch's exporter writes `squeeze`."""
    data = graph.input("data", [1, 3, 1])
    extent = graph.node("Gather", graph.node("Shape", data), ints(graph, 2), axis=0)
    then = helper.make_node("Squeeze", [data, "axis"], ["then_result"])
    result = helper.make_tensor_value_info("then_result", TensorProto.FLOAT, None)
    axis = numpy_helper.from_array(np.array([2]), "axis")
    return graph.node(
        "If",
        graph.node("Equal", extent, ints(graph, 1)),
        then_branch=helper.make_graph([then], "then", [], [result], [axis]),
        else_branch=branch("else", "Identity", data),
    )


# Values that no float of this size tells apart, infinities, and indices.


def wide(graph: Graph, *shape: int) -> str:
    """int64 values around 2^40."""
    data = graph.node("Cast", graph.input("data", [*shape], TensorProto.INT32), to=TensorProto.INT64)
    return graph.node("Mul", data, graph.weight(np.array(2**40 + 1, np.int64)))


@case(until=9)
def slice_to_the_largest_integer(graph: Graph) -> str:
    return graph.node("Slice", image(graph), starts=[2], ends=[2**63 - 1], axes=[1])


@case(since=12)
def clip_by_integers_of_64_bits(graph: Graph) -> str:
    return graph.node(
        "Clip", wide(graph, 6), graph.weight(np.array(-(2**41), np.int64)), graph.weight(np.array(2**41, np.int64))
    )


@case(since=9)
def onehot_of_integers_of_64_bits(graph: Graph) -> str:
    indices = graph.node("Cast", graph.input("data", [3, 4], TensorProto.INT32), to=TensorProto.INT64)
    return graph.node("OneHot", indices, graph.weight(np.array(5, np.int64)), ints(graph, -(2**40), 2**40))


def minus_infinity(graph: Graph) -> str:
    """-inf in three of four values, and in whole rows."""
    few = graph.node("Relu", graph.node("Sub", image(graph), scalar(graph, 1.5)))
    return graph.node("Log", few)


for _name in ("ReduceMax", "ReduceMin"):

    @case(since=13, until=17)
    def _extreme_of_infinities(graph: Graph, operator: str = _name) -> tuple[str, str]:
        value = graph.node(operator, minus_infinity(graph), axes=[3], keepdims=0)
        return graph.node("Exp", value), graph.node("Cast", graph.node("IsInf", value), to=TensorProto.FLOAT)


for _operator, _sign in (("ArgMax", 1.0), ("ArgMin", -1.0)):

    @case(since=13)
    def _place_among_infinities(graph: Graph, operator: str = _operator, sign: float = _sign) -> str:
        return graph.node(operator, graph.node("Mul", minus_infinity(graph), scalar(graph, sign)), axis=3)


@case(since=10)
def isinf_of_one_sign(graph: Graph) -> tuple[str, str]:
    value = graph.node("Reciprocal", graph.node("Relu", image(graph)))
    both = graph.node("Concat", value, graph.node("Neg", value), axis=1)
    return tuple(  # type: ignore[return-value]
        graph.node("Cast", graph.node("IsInf", both, **{which: 0}), to=TensorProto.FLOAT)
        for which in ("detect_negative", "detect_positive")
    )


@case(since=20)
def maximum_and_minimum_of_truth_values(graph: Graph) -> tuple[str, str]:
    truth = graph.node("Greater", image(graph), scalar(graph, 1.0))
    return tuple(  # type: ignore[return-value]
        graph.node("Cast", graph.node(operator, truth, ints(graph, 3)), to=TensorProto.FLOAT)
        for operator in ("ReduceMax", "ReduceMin")
    )


@case(since=11)
def gather_elements_from_the_end(graph: Graph) -> str:
    return graph.node("GatherElements", graph.input("data", [3, 5]), graph.weight(np.array([[0], [-1], [4]])), axis=1)


@case(since=13)
def gather_nd_from_the_end(graph: Graph) -> str:
    return graph.node("GatherND", image(graph), graph.weight(np.array([[[0, -1, 3], [-1, 2, -8]]])))


@case(since=11)
def scatter_elements_from_the_end(graph: Graph) -> str:
    indices = graph.weight(np.array([[1, -1]]))
    return graph.node("ScatterElements", graph.input("data", [2, 5]), indices, graph.normal(1, 2), axis=1)


@case(since=16)
def scatter_nd_that_adds(graph: Graph) -> str:
    indices = graph.weight(np.array([[0], [-1]]))
    return graph.node("ScatterND", graph.input("data", [4, 5]), indices, graph.normal(2, 5), reduction="add")


@case(since=9)
def compress_by_a_constant(graph: Graph) -> str:
    return graph.node("Compress", image(graph), graph.weight(np.array([True, False, True])), axis=1)


@case(since=13)
def split_into_parts_of_which_one_is_empty(graph: Graph) -> tuple[str, str]:
    first = graph.node("Split", image(graph), ints(graph, 1, 0, 2), outputs=3, axis=1)
    return first, f"{first}_2"


@case(since=14)
def triangles(graph: Graph) -> tuple[str, str]:
    data = graph.input("data", [2, 3, 5], TensorProto.INT32)
    wide_data = graph.node("Cast", data, to=TensorProto.INT64)
    lower = graph.node("Trilu", wide_data, graph.weight(np.array(1, np.int64)), upper=0)
    return lower, graph.node("Trilu", wide_data)


@case(since=13)
def depth_to_space_with_channels_first(graph: Graph) -> str:
    return graph.node("DepthToSpace", image(graph, 12), blocksize=2, mode="CRD")


@case()
def product_of_two_vectors(graph: Graph) -> str:
    return graph.node("MatMul", graph.input("data", [7]), graph.normal(7))


@case(since=12)
def power_of_integers(graph: Graph) -> str:
    base = graph.input("data", [6], TensorProto.INT32)
    return graph.node("Pow", base, graph.weight(np.array([0, 1, 2, 3, 4, 5], np.int32)))


# Statistics, spectra and losses.


@case(since=17)
def layer_normalisation_with_its_statistics(graph: Graph) -> tuple[str, str, str]:
    first = graph.node("LayerNormalization", image(graph), graph.normal(10), graph.normal(10), outputs=3, axis=-1)
    return first, f"{first}_1", f"{first}_2"


@case(since=14)
def batch_normalisation_in_training(graph: Graph) -> tuple[str, str, str]:
    parts = [graph.weight(np.float32(values)) for values in ([1, 2, 3], [0.5, 0, -1], [0, 1, 0], [1, 2, 0.5])]
    first = graph.node("BatchNormalization", image(graph), *parts, outputs=3, training_mode=1, momentum=0.7)
    return first, f"{first}_1", f"{first}_2"


@case(since=9)
def batch_normalisation_by_computed_statistics(graph: Graph) -> str:
    data = image(graph)
    mean = graph.node("Reshape", graph.node("GlobalAveragePool", data), ints(graph, 3))
    return graph.node("BatchNormalization", data, floats(graph, 1, 2, 3), mean, mean, graph.node("Exp", mean))


@case(since=17)
def fourier_transforms(graph: Graph) -> tuple[str, str]:
    data = graph.input("data", [2, 9, 1])
    if graph.opset < 20:
        half = graph.node("DFT", data, axis=1, onesided=1)
        return half, graph.node("DFT", graph.node("DFT", data, axis=1), graph.weight(np.array(6)), axis=1, inverse=1)
    axis = graph.weight(np.array(1))
    half = graph.node("DFT", data, "", axis, onesided=1)
    return half, graph.node("DFT", graph.node("DFT", data, "", axis), graph.weight(np.array(6)), axis, inverse=1)


@case(since=17)
def short_time_fourier_transform(graph: Graph) -> str:
    window = graph.weight(np.hanning(8).astype(np.float32))
    return graph.node("STFT", graph.input("data", [1, 40, 1]), graph.weight(np.array(4)), window, onesided=1)


@case(since=18)
def columns_to_image(graph: Graph) -> str:
    data = graph.input("data", [1, 18, 15])
    return graph.node("Col2Im", data, ints(graph, 8, 9), ints(graph, 3, 3), pads=[0, 1, 0, 1], strides=[2, 2])


@case(since=18)
def crop_and_pad_around_the_centre(graph: Graph) -> str:
    return graph.node("CenterCropPad", image(graph), ints(graph, 5, 13), axes=[2, 3])


@case(since=13)
def softmax_cross_entropy(graph: Graph) -> str:
    labels = graph.weight(np.array([1, 0, 4]))
    return graph.node("SoftmaxCrossEntropyLoss", graph.input("data", [3, 5]), labels, graph.normal(5))


@case(since=9)
def counts_of_word_pairs(graph: Graph) -> str:
    words = graph.input("data", [2, 12], TensorProto.INT32)
    pool = {"pool_int64s": [2, 3, 0, 0, 1, -1], "ngram_counts": [0, 2], "ngram_indexes": [1, 0, 3, 2]}
    limits = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 3}
    return graph.node("TfIdfVectorizer", words, mode="TF", **pool, **limits)


# Integer products.


def rounded(graph: Graph, *shape: int) -> str:
    """Quantised values of the network's input."""
    data = graph.input("data", [*shape])
    return graph.node("QuantizeLinear", data, scalar(graph, 0.02), graph.weight(np.array(120, np.uint8)))


def small_weights(graph: Graph, *shape: int) -> str:
    return graph.weight(graph.random.integers(-100, 100, shape).astype(np.int8))


def quantised_result(graph: Graph, operator: str, data: str, weights: str, *bias: str, **attributes: int) -> str:
    given = [scalar(graph, 0.02), graph.weight(np.array(120, np.uint8)), weights, scalar(graph, 0.01)]
    result = [graph.weight(np.array(0, np.int8)), scalar(graph, 0.3), graph.weight(np.array(7, np.uint8))]
    return graph.node(operator, data, *given, *result, *bias, **attributes)


@case(since=13)
def matrix_product_of_integers(graph: Graph) -> str:
    return quantised_result(graph, "QLinearMatMul", rounded(graph, 4, 6), small_weights(graph, 6, 5))


@case(since=13)
def convolution_of_quantised_values(graph: Graph) -> str:
    bias = graph.weight(np.array([50, -300, 0, 1000], np.int32))
    weights = small_weights(graph, 4, 3, 3, 3)
    return quantised_result(graph, "QLinearConv", rounded(graph, 1, 3, 8, 8), weights, bias, pads=[1, 1, 1, 1])


@case(since=13)
def convolution_of_integers(graph: Graph) -> str:
    zero = graph.weight(np.array(120, np.uint8))
    weights = graph.weight(graph.random.integers(0, 200, (4, 3, 3, 3)).astype(np.uint8))
    return graph.node("ConvInteger", rounded(graph, 1, 3, 8, 8), weights, zero, pads=[1, 1, 1, 1])


# Loops.


@case(since=13)
def loop_of_known_length(graph: Graph) -> tuple[str, str]:
    body = Graph(opset=graph.opset)
    value = body.node("Mul", "state", body.node("Cast", "turn", to=TensorProto.FLOAT))
    going, result = body.node("Identity", "holds"), body.node("Add", value, "state")
    scalars = [("turn", TensorProto.INT64), ("holds", TensorProto.BOOL)]
    inner = helper.make_graph(
        body.nodes,
        "body",
        [
            *(helper.make_tensor_value_info(name, kind, []) for name, kind in scalars),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [5]),
        ],
        [
            helper.make_tensor_value_info(going, TensorProto.BOOL, []),
            helper.make_tensor_value_info(result, TensorProto.FLOAT, [5]),
            helper.make_tensor_value_info(value, TensorProto.FLOAT, [5]),
        ],
    )
    count, holds = graph.weight(np.array(4)), graph.weight(np.array(True))
    first = graph.node("Loop", count, holds, graph.input("data", [5]), outputs=2, body=inner)
    return first, f"{first}_1"


@case(since=9)
def scan_backwards(graph: Graph) -> tuple[str, str]:
    body = Graph(opset=graph.opset)
    total = body.node("Add", "state", "row")
    out = body.node("Identity", total)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("state", "row", total, out)]
    inner = helper.make_graph(body.nodes, "body", values[:2], values[2:])
    start, rows = graph.weight(np.zeros(4, np.float32)), graph.input("data", [6, 4])
    first = graph.node("Scan", start, rows, outputs=2, body=inner, num_scan_inputs=1, scan_input_directions=[1])
    return first, f"{first}_1"
