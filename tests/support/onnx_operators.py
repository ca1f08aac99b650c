"""Tiny ONNX networks, one for each use of an operator, at any opset from 7 to 21: a table, and what builds it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.numpy_helper import from_array as tensor
from onnx.parser import parse_graph

from support.networks import Graph

OPSETS = range(7, 22)


@dataclass(frozen=True, eq=False)
class Input:
    shape: tuple[int, ...]
    dtype: int = TensorProto.FLOAT
    name: str = "data"


@dataclass(frozen=True, eq=False)
class Node:
    """An operator, which stands for its first output; `node[1]` is its second one."""

    operator: str
    inputs: "tuple[Value, ...]"
    keywords: dict[str, Any]
    outputs: int

    def __getitem__(self, index: int) -> "Output":
        return Output(self, index)


class Output(NamedTuple):
    node: Node
    index: int


# Weights that are drawn when the network is made.
Drawn = Callable[[np.random.Generator], np.ndarray]

# Numbers are weights, of float32 or int64 if they have no dtype of their own; "" leaves an input out.
Value = Input | Drawn | Node | Output | np.ndarray | np.generic | float | list[float] | str


class _Operators:
    """`op.Conv(data, weights, pads=[1, 1, 1, 1])` is a node.

    A keyword is an attribute, or the input of that name in opsets where it is one: the axes of a sum, for example.
    """

    def __getattr__(self, operator: str) -> Callable[..., Node]:
        return lambda *inputs, outputs=1, **keywords: Node(operator, inputs, keywords, outputs)


op = _Operators()

# Inputs that were attributes of another name before.
_RENAMED = {"value": "constant_value"}


@dataclass
class _Builder:
    """Adds nodes to a graph, each once."""

    graph: Graph
    names: dict[Input | Drawn | Node, str] = field(default_factory=dict)

    def name(self, value: Value) -> str:
        match value:
            case str():
                return value
            case Output():
                return f"{self.name(value.node)}_{value.index}"
            case float() | list():
                array = np.array(value)
                return self.graph.weight(array.astype(np.float32) if array.dtype.kind == "f" else array)
            case int() | np.ndarray() | np.generic():
                return self.graph.weight(np.asarray(value))
        if value not in self.names:
            self.names[value] = self._added(value)
        return self.names[value]

    def _added(self, value: Input | Drawn | Node) -> str:
        match value:
            case Input():
                return self.graph.input(value.name, list(value.shape), value.dtype)
            case Node():
                return self._node(value)
        return self.graph.weight(value(self.graph.random))

    def _node(self, node: Node) -> str:
        schema = onnx.defs.get_schema(node.operator, self.graph.opset)
        attributes = {name: value for name, value in node.keywords.items() if name in schema.attributes}
        others = {_RENAMED.get(name, name): value for name, value in node.keywords.items() if name not in attributes}
        places = [each.name.lower() for each in schema.inputs]
        if len(node.inputs) > schema.max_input or not others.keys() <= {*places}:
            raise onnx.defs.SchemaError(f"{node.operator} has no such inputs")
        inputs, others = list(node.inputs), {places.index(name): value for name, value in others.items()}
        for place in range(len(inputs), max(others, default=-1) + 1):
            is_optional = schema.inputs[place].option == onnx.defs.OpSchema.FormalParameterOption.Optional
            inputs.append(others.get(place, "" if is_optional else []))
        return self.graph.node(node.operator, *map(self.name, inputs), outputs=node.outputs, **attributes)


def _knows(opset: int, outputs: list[Value]) -> bool:
    """Whether an opset has the operators of outputs, with their keywords."""
    try:
        [*map(_Builder(Graph(opset=opset)).name, outputs)]
    except onnx.defs.SchemaError:
        return False
    return True


@dataclass(frozen=True)
class Case:
    """A network of one operator, or of the few that belong together, in the opsets that have it, oldest first."""

    name: str
    opsets: list[int]
    outputs: list[Value]

    def model(self, opset: int) -> onnx.ModelProto:
        builder = _Builder(Graph(opset=opset))
        model = builder.graph.model(*map(builder.name, self.outputs))
        for value in model.graph.output:  # some are integers
            value.ClearField("type")
        return onnx.shape_inference.infer_shapes(model)


CASES: list[Case] = []


class Since(NamedTuple):
    """What only opsets from a first one to a last one have, though others know its operators and keywords."""

    first: int
    given: Value | tuple[Value, ...]
    last: int = OPSETS[-1]


def add(**cases: Value | tuple[Value, ...] | Since) -> None:
    """Cases by name, with what they give: a value, several, or all outputs of a node."""
    for name, case in cases.items():
        first, given, last = case if isinstance(case, Since) else Since(OPSETS[0], case)
        outputs = [*given] if isinstance(given, tuple) and not isinstance(given, Output) else [given]
        if isinstance(given, Node):
            outputs += [given[index] for index in range(1, given.outputs)]
        CASES.append(Case(name, [opset for opset in range(first, last + 1) if _knows(opset, outputs)], outputs))


def image(channels: int = 3, rows: int = 8, columns: int = 10) -> Input:
    return Input((1, channels, rows, columns))


def data(*shape: int) -> Input:
    return Input(shape)


def integers(*shape: int) -> Input:
    return Input(shape, TensorProto.INT32)


def normal(*shape: int, dtype: type = np.float32) -> Drawn:
    return lambda random: (random.standard_normal(shape) * 0.3).astype(dtype)


def positive(*shape: int) -> Drawn:
    return lambda random: random.uniform(0.5, 2, shape).astype(np.float32)


def int8(*shape: int) -> Drawn:
    return lambda random: random.integers(-100, 100, shape).astype(np.int8)


def uint8(*shape: int) -> Drawn:
    return lambda random: random.integers(0, 200, shape).astype(np.uint8)


def where(transformation: str) -> dict[str, str]:
    return {"coordinate_transformation_mode": transformation}


to_float, to_int64 = partial(op.Cast, to=TensorProto.FLOAT), partial(op.Cast, to=TensorProto.INT64)

IMAGE = image()
POSITIVE = op.Exp(IMAGE)
KERNEL = (normal(4, 3, 3, 3), normal(4))
FOUR = image(4)

# Operators of one input.
add(
    leakyrelu_with_a_steep_slope=op.LeakyRelu(IMAGE, alpha=1.5),
    hardsigmoid_of_keras=op.HardSigmoid(IMAGE, alpha=1 / 6, beta=0.5),
    gelu_by_tanh=op.Gelu(IMAGE, approximate="tanh"),
)
UNARY = """
    Abs Ceil Cos Elu Exp Floor HardSigmoid Identity LeakyRelu Neg Relu Selu Sigmoid Sin Softplus Softsign Tan Tanh
    Sinh Cosh Sign Erf Shrink ThresholdedRelu Round HardSwish Mish Gelu
"""
add(**{_name.lower(): getattr(op, _name)(IMAGE) for _name in UNARY.split()})
add(**{_name.lower(): getattr(op, _name)(POSITIVE) for _name in ("Log", "Sqrt", "Reciprocal")})

# Operators of two tensors, broadcast.
add(
    constant_minus_tensor=op.Sub(1.0, IMAGE),
    constant_by_tensor=op.Div(1.0, POSITIVE),
    pow=op.Pow(op.Abs(IMAGE), 1.5),
    square=op.Pow(IMAGE, 2.0),
    fifth_power=op.Pow(IMAGE, 5.0),
    inverse_square=op.Pow(POSITIVE, -2.0),
    power_of_another_tensor=op.Pow(IMAGE, op.Floor(op.Mul(IMAGE, 3.0))),
    prelu_of_one_slope=op.PRelu(IMAGE, [0.2]),
    division_of_integers=op.Div(integers(9), np.int32(2)),
    mod_of_floats=op.Mod(IMAGE, 0.7, fmod=1),
    mod_of_integers=op.Mod(integers(9), np.int32(3)),
    square_by_an_integer=Since(12, op.Pow(IMAGE, [2])),
    power_of_integers=Since(12, op.Pow(integers(6), np.int32([0, 1, 2, 3, 4, 5]))),
)
for _name in ("Add", "Sub", "Mul", "Div", "PRelu"):
    add(**{f"{_name.lower()}_of_channels": getattr(op, _name)(IMAGE, np.float32([[[0.5]], [[2.0]], [[-1.5]]]))})

# Clip, Min, Max, Sum, Mean.
# Values that no float of this size tells apart.
WIDE = op.Mul(to_int64(integers(6)), 2**40 + 1)
add(
    clip_to_six=op.Clip(IMAGE, min=0.0, max=6.0),
    clip_from_below=op.Clip(IMAGE, min=-0.5),
    clip_from_above=op.Clip(IMAGE, max=0.5),
    clip_without_bounds=op.Clip(IMAGE),
    min_of_one=op.Min(IMAGE),
    sum_of_three=op.Sum(IMAGE, op.Relu(IMAGE), op.Tanh(IMAGE)),
    mean_of_two=op.Mean(IMAGE, op.Relu(IMAGE)),
    max_of_three=Since(8, op.Max(IMAGE, op.Neg(IMAGE), 0.1)),
    clip_of_integers=Since(12, op.Clip(integers(5), np.int32(0), np.int32(3))),
    clip_by_integers_of_64_bits=Since(12, op.Clip(WIDE, -(2**41), 2**41)),
)

# Convolutions.
TRANSPOSED = (normal(3, 4, 3, 3), normal(4))
INNER = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
add(
    conv=op.Conv(IMAGE, *KERNEL),
    conv_with_strides_and_uneven_pads=op.Conv(IMAGE, *KERNEL, pads=[0, 1, 2, 3], strides=[2, 1]),
    conv_with_dilations=op.Conv(IMAGE, *KERNEL, dilations=[2, 2], pads=[2, 2, 2, 2]),
    conv_same_upper=op.Conv(image(rows=7), *KERNEL, auto_pad="SAME_UPPER", strides=[2, 2]),
    conv_same_lower=op.Conv(image(rows=7), normal(4, 3, 4, 4), normal(4), auto_pad="SAME_LOWER", strides=[2, 2]),
    conv_valid=op.Conv(IMAGE, *KERNEL, auto_pad="VALID"),
    conv_of_each_channel=op.Conv(IMAGE, normal(3, 1, 3, 3), normal(3), group=3, pads=[1, 1, 1, 1]),
    conv_of_groups=op.Conv(FOUR, normal(6, 2, 3, 3), normal(6), group=2),
    conv_of_each_channel_twice=op.Conv(IMAGE, normal(6, 1, 3, 3), normal(6), group=3),
    conv_in_one_dimension=op.Conv(data(1, 3, 12), normal(4, 3, 3), normal(4), pads=[1, 1]),
    conv_in_three_dimensions=op.Conv(data(1, 2, 4, 5, 6), normal(3, 2, 3, 3, 3), pads=[1] * 6),
    convtranspose=op.ConvTranspose(IMAGE, normal(3, 4, 2, 2), normal(4), strides=[2, 2]),
    convtranspose_with_output_padding=op.ConvTranspose(IMAGE, *TRANSPOSED, **INNER, output_padding=[1, 1]),
    convtranspose_with_output_shape=op.ConvTranspose(IMAGE, *TRANSPOSED, strides=[2, 2], output_shape=[16, 20]),
    convtranspose_same_upper=op.ConvTranspose(IMAGE, *TRANSPOSED, strides=[2, 2], auto_pad="SAME_UPPER"),
    convtranspose_of_groups=op.ConvTranspose(FOUR, normal(4, 2, 3, 3), normal(4), strides=[2, 2], group=2),
    convtranspose_of_each_channel=op.ConvTranspose(IMAGE, normal(3, 1, 4, 4), normal(3), **INNER, group=3),
    convtranspose_with_dilations=op.ConvTranspose(IMAGE, *TRANSPOSED, dilations=[2, 2]),
    convtranspose_in_one_dimension=op.ConvTranspose(data(1, 3, 9), normal(3, 4, 4), strides=[2], pads=[1, 1]),
)

# Pooling.
THREE = {"kernel_shape": [3, 3], "strides": [2, 2]}
PADDED = {**THREE, "pads": [1, 1, 1, 1]}
TWO = {"kernel_shape": [2, 2], "strides": [2, 2]}
add(
    maxpool=op.MaxPool(IMAGE, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 0]),
    maxpool_same_upper=op.MaxPool(image(rows=7), **TWO, auto_pad="SAME_UPPER"),
    maxpool_same_upper_stride_one=op.MaxPool(IMAGE, kernel_shape=[2, 2], auto_pad="SAME_UPPER"),
    maxpool_same_lower=op.MaxPool(image(rows=7), **TWO, auto_pad="SAME_LOWER"),
    maxpool_in_one_dimension=op.MaxPool(data(1, 3, 9), kernel_shape=[3], strides=[2]),
    averagepool=op.AveragePool(IMAGE, **PADDED),
    averagepool_that_counts_the_padding=op.AveragePool(IMAGE, **PADDED, count_include_pad=1),
    averagepool_same_upper=op.AveragePool(image(rows=7), **THREE, auto_pad="SAME_UPPER"),
    averagepool_of_everything=op.AveragePool(IMAGE, kernel_shape=[8, 10]),
    globalaveragepool=op.GlobalAveragePool(IMAGE),
    globalaveragepool_in_one_dimension=op.GlobalAveragePool(data(1, 3, 9)),
    globalmaxpool=op.GlobalMaxPool(IMAGE),
    lppool=op.LpPool(IMAGE, **TWO, p=2),
    maxpool_that_rounds_up=op.MaxPool(IMAGE, **THREE, ceil_mode=1),
    maxpool_with_dilations=op.MaxPool(IMAGE, kernel_shape=[2, 2], dilations=[2, 2]),
    averagepool_that_rounds_up=op.AveragePool(IMAGE, **THREE, ceil_mode=1),
    averagepool_with_dilations=op.AveragePool(IMAGE, kernel_shape=[2, 2], dilations=[2, 2]),
    averagepool_that_rounds_up_and_counts_the_padding=Since(
        19, op.AveragePool(IMAGE, **PADDED, ceil_mode=1, count_include_pad=1)
    ),
)

# Normalisation, statistics and losses.
STATISTICS = [positive(3) for _ in range(4)]
MEAN = op.Reshape(op.GlobalAveragePool(IMAGE), [3])
add(
    batchnormalization=op.BatchNormalization(IMAGE, positive(3), normal(3), normal(3), positive(3)),
    batchnormalization_with_epsilon=op.BatchNormalization(IMAGE, *STATISTICS, epsilon=0.1, momentum=0.5),
    instancenormalization=op.InstanceNormalization(IMAGE, normal(3), normal(3)),
    lrn=op.LRN(image(7), size=5, alpha=0.1, beta=0.75, bias=2.0),
    lpnormalization=op.LpNormalization(IMAGE, axis=1, p=2),
    dropout=op.Dropout(IMAGE, ratio=0.3),
    batchnormalization_with_spatial_one=op.BatchNormalization(IMAGE, *STATISTICS, spatial=1),
    meanvariancenormalization=op.MeanVarianceNormalization(IMAGE, axes=[2, 3]),
    batch_normalisation_in_training=op.BatchNormalization(IMAGE, *STATISTICS, outputs=3, training_mode=1, momentum=0.7),
    layernormalization=op.LayerNormalization(data(2, 5, 6), normal(6), normal(6), axis=-1),
    layer_normalisation_with_its_statistics=op.LayerNormalization(IMAGE, normal(10), normal(10), outputs=3, axis=-1),
    batch_normalisation_by_computed_statistics=Since(
        9, op.BatchNormalization(IMAGE, positive(3), MEAN, MEAN, op.Exp(MEAN))
    ),
    dropout_with_a_mask_nobody_reads=Since(10, op.Relu(op.Dropout(IMAGE, outputs=2))),
    softmax_cross_entropy=Since(13, op.SoftmaxCrossEntropyLoss(data(3, 5), [1, 0, 4], normal(5))),
    groupnormalization_of_each_group=Since(
        18, op.GroupNormalization(image(6), normal(3), normal(3), num_groups=3), last=20
    ),
    groupnormalization=Since(21, op.GroupNormalization(image(6), normal(6), normal(6), num_groups=3)),
)

# Softmax: up to opset 12 over all axes from `axis` on, flattened; the default is 1, from 13 on -1.
add(
    softmax=op.Softmax(IMAGE),
    softmax_of_channels=op.Softmax(IMAGE, axis=1),
    softmax_of_the_last_axis=op.Softmax(IMAGE, axis=3),
    logsoftmax=op.LogSoftmax(IMAGE, axis=2),
    hardmax=op.Hardmax(data(2, 5)),
    softmax_from_the_end=Since(11, op.Softmax(IMAGE, axis=-1)),
)

# Dense layers.
PAIR = data(2, 6)
add(
    gemm=op.Gemm(PAIR, normal(6, 5), normal(5)),
    gemm_with_factors=op.Gemm(PAIR, normal(5, 6), normal(5), transB=1, alpha=0.5, beta=2.0),
    gemm_of_a_transposed_input=op.Gemm(data(6, 2), normal(6, 5), normal(2, 1), transA=1),
    gemm_with_a_scalar_bias=op.Gemm(PAIR, normal(6, 5), 0.7),
    matmul=op.MatMul(PAIR, normal(6, 5)),
    matmul_of_a_batch=op.MatMul(data(3, 2, 6), Input((3, 6, 4), name="other")),
    matmul_of_a_vector=op.MatMul(PAIR, normal(6)),
    product_of_two_vectors=op.MatMul(data(7), normal(7)),
    einsum=op.Einsum(data(2, 3, 4), normal(4, 5), equation="abc,cd->abd"),
    gemm_without_bias=Since(11, op.Gemm(PAIR, normal(6, 5))),
    gemm_with_an_empty_bias=Since(11, op.Gemm(PAIR, normal(6, 5), "", alpha=3.0)),
)

# Reductions.
TRUTH = op.Greater(IMAGE, 1.0)
LARGEST, SMALLEST = to_float(op.ReduceMax(TRUTH, axes=[3])), to_float(op.ReduceMin(TRUTH, axes=[3]))
add(
    reducemean_of_negative_axes=Since(11, op.ReduceMean(IMAGE, axes=[-1, -2], keepdims=0)),
    reducesum_of_no_axes=op.ReduceSum(IMAGE, noop_with_empty_axes=1),
    reducemean_of_no_axes=op.ReduceMean(IMAGE, np.zeros(0, np.int64), noop_with_empty_axes=1),
    argmax=op.ArgMax(IMAGE, axis=1),
    argmin_without_keeping=op.ArgMin(IMAGE, axis=2, keepdims=0),
    topk=op.TopK(data(2, 9), [3], outputs=2),
    maximum_and_minimum_of_truth_values=Since(20, (LARGEST, SMALLEST)),
    topk_by_an_attribute=Since(7, op.TopK(data(2, 9), k=3, outputs=2), last=9),
)
for _name in ("Mean", "Max", "Min", "Sum", "Prod", "SumSquare", "L1", "L2", "LogSumExp", "LogSum"):
    for _title, _keywords in {
        "pixels": {"axes": [2, 3]},
        "channels_without_keeping": {"axes": [1], "keepdims": 0},
        "everything": {},
        "everything_without_keeping": {"keepdims": 0},
    }.items():
        add(**{f"reduce{_name.lower()}_of_{_title}": getattr(op, f"Reduce{_name}")(POSITIVE, **_keywords)})

# -inf in three of four values, and in whole rows.
MINUS_INFINITY = op.Log(op.Relu(op.Sub(IMAGE, 1.5)))
for _name, _sign in (("Max", 1.0), ("Min", -1.0)):
    _value = getattr(op, f"Reduce{_name}")(MINUS_INFINITY, axes=[3], keepdims=0)
    _infinities = (op.Exp(_value), to_float(op.IsInf(_value)))
    add(**{f"reduce{_name.lower()}_of_infinities": Since(13, _infinities, last=17)})
    _place = getattr(op, f"Arg{_name}")(op.Mul(MINUS_INFINITY, _sign), axis=3)
    add(**{f"arg{_name.lower()}_among_infinities": Since(13, _place)})

# Shapes.
PARTS = op.Split(IMAGE, [1, 0, 2], outputs=3, axis=1)
WIDTHS = [0, 0, 1, 2, 0, 0, 3, 4]
add(
    reshape=op.Reshape(IMAGE, [0, -1]),
    reshape_that_keeps_two=op.Reshape(IMAGE, [0, 0, 80]),
    reshape_by_the_shape_of_another=op.Reshape(op.Flatten(IMAGE), op.Shape(IMAGE)),
    flatten=op.Flatten(IMAGE),
    flatten_from_the_second=op.Flatten(IMAGE, axis=2),
    flatten_all=op.Flatten(IMAGE, axis=0),
    squeeze=op.Squeeze(op.GlobalAveragePool(IMAGE), axes=[2, 3]),
    squeeze_all=op.Squeeze(data(1, 3, 1, 2)),
    unsqueeze=op.Unsqueeze(data(3, 4), axes=[0, 3]),
    transpose=op.Transpose(IMAGE, perm=[0, 2, 3, 1]),
    transpose_backwards=op.Transpose(IMAGE),
    concat=op.Concat(IMAGE, op.Relu(IMAGE), axis=1),
    split=op.Split(FOUR, split=[1, 3], axis=1, outputs=2),
    split_in_three=op.Split(FOUR, split=[1, 1, 2], axis=1, outputs=3),
    reshape_with_allowzero=op.Reshape(IMAGE, [3, -1], allowzero=1),
    split_into_parts_of_which_one_is_empty=(PARTS, PARTS[2]),
    split_by_number=op.Split(FOUR, axis=1, outputs=2, num_outputs=2),
    split_with_a_rest=op.Split(image(7), axis=1, outputs=3, num_outputs=3),
    slice=op.Slice(IMAGE, starts=[1, 2], ends=[3, 9], axes=[1, 3]),
    slice_to_the_end=op.Slice(IMAGE, starts=[2], ends=[2**31 - 1], axes=[2]),
    slice_with_negative_bounds=op.Slice(IMAGE, starts=[-5], ends=[-1], axes=[3]),
    slice_without_axes=op.Slice(data(5, 6), starts=[1, 0], ends=[4, 2]),
    slice_with_steps=op.Slice(IMAGE, starts=[0, 1], ends=[8, 10], axes=[2, 3], steps=[2, 2]),
    slice_backwards=op.Slice(IMAGE, starts=[-1], ends=[-(2**31)], axes=[3], steps=[-1]),
    pad=op.Pad(IMAGE, pads=WIDTHS),
    pad_with_a_value=op.Pad(IMAGE, pads=[0, 1, 1, 1, 0, 0, 1, 1], value=0.5),
    pad_reflect=op.Pad(IMAGE, pads=WIDTHS, mode="reflect"),
    pad_edge=op.Pad(IMAGE, pads=WIDTHS, mode="edge"),
    pad_that_cuts=op.Pad(IMAGE, pads=[0, 0, -1, 0, 0, 0, 2, -1]),
    pad_of_named_axes=op.Pad(IMAGE, [1, 2, 0, 3], 0.25, [2, -1]),
    pad_of_named_axes_reflect=op.Pad(IMAGE, [1, 2, 0, 3], "", [2, 3], mode="reflect"),
    crop_and_pad_around_the_centre=op.CenterCropPad(IMAGE, [5, 13], axes=[2, 3]),
    tile=op.Tile(data(2, 3), [2, 3]),
    expand=op.Expand(data(3, 1), [2, 1, 4]),
    flatten_from_the_end=Since(11, op.Flatten(IMAGE, axis=-1)),
    squeeze_from_the_end=Since(11, op.Squeeze(data(1, 3, 2, 1), axes=[-1])),
    unsqueeze_from_the_end=Since(11, op.Unsqueeze(data(3, 4), axes=[-1])),
    concat_from_the_end=Since(11, op.Concat(IMAGE, op.Relu(IMAGE), normal(1, 3, 8, 2), axis=-1)),
    split_evenly=Since(7, op.Split(FOUR, axis=1, outputs=2), last=17),
    slice_to_the_largest_integer=Since(7, op.Slice(IMAGE, starts=[2], ends=[2**63 - 1], axes=[1]), last=9),
    pad_wrap=Since(19, op.Pad(IMAGE, WIDTHS, mode="wrap")),
)

# Indices.
CORNERS = np.array([[0, 1], [2, 0]])
TRIANGLE = to_int64(integers(2, 3, 5))
add(
    gather=op.Gather(IMAGE, [2, 0], axis=1),
    gather_one=op.Gather(IMAGE, 1, axis=1),
    compress_by_a_constant=op.Compress(IMAGE, np.array([True, False, True]), axis=1),
    onehot_of_integers_of_64_bits=op.OneHot(to_int64(integers(3, 4)), 5, [-(2**40), 2**40]),
    gatherelements=op.GatherElements(data(3, 2), CORNERS, axis=0),
    gather_elements_from_the_end=op.GatherElements(data(3, 5), np.array([[0], [-1], [4]]), axis=1),
    gathernd=op.GatherND(data(3, 4), np.array([[0, 1], [2, 3]])),
    scatterelements=op.ScatterElements(data(3, 2), CORNERS, normal(2, 2), axis=0),
    scatter_elements_from_the_end=op.ScatterElements(data(2, 5), np.array([[1, -1]]), normal(1, 2), axis=1),
    scatternd=op.ScatterND(data(4, 3), np.array([[1], [2]]), normal(2, 3)),
    scatter_nd_that_adds=op.ScatterND(data(4, 5), np.array([[0], [-1]]), normal(2, 5), reduction="add"),
    depthtospace=op.DepthToSpace(image(8), blocksize=2),
    spacetodepth=op.SpaceToDepth(IMAGE, blocksize=2),
    depthtospace_crd=op.DepthToSpace(image(8), blocksize=2, mode="CRD"),
    cumsum=op.CumSum(data(3, 4), 1),
    trilu=op.Trilu(data(4, 4), upper=0),
    triangles=(op.Trilu(TRIANGLE, 1, upper=0), op.Trilu(TRIANGLE)),
    columns_to_image=op.Col2Im(data(1, 18, 15), [8, 9], [3, 3], pads=[0, 1, 0, 1], strides=[2, 2]),
    gather_from_the_end=Since(11, op.Gather(IMAGE, -1, axis=-2)),
    onehot=Since(11, op.OneHot(op.ArgMax(data(2, 5), axis=1, keepdims=0), 5, [0.0, 1.0])),
    gather_nd_from_the_end=Since(13, op.GatherND(IMAGE, np.array([[[0, -1, 3], [-1, 2, -8]]]))),
)

# Kinds and comparisons.
LARGE, SMALL = op.Greater(IMAGE, 0.3), op.Less(IMAGE, 0.3)
INFINITE = op.Reciprocal(op.Relu(IMAGE))
BOTH_INFINITIES = op.Concat(INFINITE, op.Neg(INFINITE), axis=1)
IS_ABOVE, IS_BELOW = op.IsInf(BOTH_INFINITIES, detect_negative=0), op.IsInf(BOTH_INFINITIES, detect_positive=0)
add(
    cast=to_float(op.Cast(IMAGE, to=TensorProto.INT32)),
    cast_to_bytes=op.Cast(op.Mul(op.Sigmoid(IMAGE), 200.0), to=TensorProto.UINT8),
    less=to_float(op.Less(IMAGE, 0.2)),
    equal=to_float(op.Equal(integers(5), np.int32(1))),
    logic=to_float(op.Xor(op.Or(op.And(LARGE, SMALL), op.Not(SMALL)), SMALL)),
    where=op.Where(op.Greater(IMAGE, 0.0), IMAGE, POSITIVE),
    isnan=to_float(op.IsNaN(op.Log(IMAGE))),
    isinf_of_one_sign=(to_float(IS_ABOVE), to_float(IS_BELOW)),
    lessorequal=to_float(op.LessOrEqual(IMAGE, 0.2)),
    castlike=op.CastLike(integers(5), 0.0),
)

# Resize, and Upsample before it.
TWICE, UNEVEN = [1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 1.3, 1.7]
POOLED = op.MaxPool(IMAGE, **TWO)
ITS_SIZE = op.Concat(op.Slice(op.Shape(POOLED), [0], [2], [0]), op.Slice(op.Shape(IMAGE), [2], [4], [0]), axis=0)
add(
    upsample=Since(7, op.Upsample(IMAGE, scales=TWICE, mode="nearest"), last=9),
    upsample_linear=Since(7, op.Upsample(IMAGE, scales=TWICE, mode="linear"), last=9),
    upsample_by_a_fraction=Since(7, op.Upsample(IMAGE, scales=[1.0, 1.0, 1.5, 1.5], mode="nearest"), last=9),
    resize_nearest=op.Resize(IMAGE, scales=TWICE, mode="nearest"),
    resize_linear=op.Resize(IMAGE, scales=TWICE, mode="linear"),
    resize_nearest_smaller=op.Resize(IMAGE, scales=[1.0, 1.0, 0.5, 0.5], mode="nearest"),
    resize_linear_smaller=op.Resize(IMAGE, scales=[1.0, 1.0, 0.6, 0.6], mode="linear"),
    resize_nearest_by_a_fraction=op.Resize(IMAGE, scales=UNEVEN, mode="nearest"),
    resize_cubic_of_pytorch=op.Resize(IMAGE, scales=TWICE, mode="cubic", **where("half_pixel"), cubic_coeff_a=-0.75),
    resize_of_one_row=op.Resize(data(1, 3, 1, 1), [], [], [1, 3, 4, 4], mode="linear", **where("pytorch_half_pixel")),
    gridsample=op.GridSample(IMAGE, Input((1, 4, 5, 2), name="grid")),
    resize_of_named_axes=op.Resize(IMAGE, scales=[2.0, 2.0], mode="nearest", axes=[2, 3]),
    resize_not_larger=op.Resize(
        IMAGE, sizes=[16, 16], mode="linear", axes=[2, 3], keep_aspect_ratio_policy="not_larger"
    ),
    resize_with_antialias=op.Resize(IMAGE, scales=[1.0, 1.0, 0.5, 0.5], mode="linear", antialias=1),
    resize_by_a_computed_size=Since(13, op.Resize(POOLED, sizes=ITS_SIZE, mode="linear")),
    resize_half_pixel_symmetric=Since(
        19, op.Resize(IMAGE, scales=UNEVEN, mode="linear", **where("half_pixel_symmetric"))
    ),
)
for _transform in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
    for _mode in ("nearest", "linear", "cubic"):
        for _title, _sizes in (("sizes", [1, 3, 15, 7]), ("one_row", [1, 3, 1, 7])):
            _resize = op.Resize(IMAGE, sizes=_sizes, mode=_mode, **where(_transform))
            add(**{f"resize_to_{_title}_{_mode}_{_transform}": _resize})
    for _rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        _how = {"mode": "nearest", "nearest_mode": _rounding, **where(_transform)}
        _name = f"resize_nearest_{_rounding}_{_transform}"
        if _transform != "pytorch_half_pixel":
            add(**{_name: op.Resize(IMAGE, scales=[1.0, 1.0, 2.0, 1.5], **_how)})
        add(**{f"{_name}_half_way": op.Resize(data(1, 1, 20, 28), sizes=[1, 1, 6, 8], **_how)})

# Constants.
TRIPLE = data(3)
SPARSE = helper.make_sparse_tensor(
    helper.make_tensor("sparse", TensorProto.FLOAT, [2], [1.5, -2.0]),
    helper.make_tensor("", TensorProto.INT64, [2], [0, 2]),
    [3],
)
add(
    constant_tensor=op.Mul(TRIPLE, op.Constant(value=tensor(np.float32([1, 2, 3])))),
    constantofshape=op.Add(IMAGE, op.ConstantOfShape(op.Shape(IMAGE), value=tensor(np.float32([0.5])))),
    constantofshape_of_zeros=op.Add(data(2, 3), op.ConstantOfShape([2, 3])),
    constant_sparse=op.Mul(TRIPLE, op.Constant(sparse_value=SPARSE)),
    range=op.Add(TRIPLE, op.Range(0.0, 6.0, 2.0)),
    constant_float=op.Mul(TRIPLE, op.Constant(value_float=2.5)),
    constant_zero=op.Add(TRIPLE, op.Constant(value_float=0.0)),
    constant_floats=op.Mul(TRIPLE, op.Constant(value_floats=[1.0, 2.0, 3.0])),
    constant_int=op.Mul(TRIPLE, to_float(op.Constant(value_int=3))),
    constant_ints=op.Reshape(data(6), op.Constant(value_ints=[2, 3])),
)

# Chains that compute shapes.
FIRST_SIZE = op.Unsqueeze(op.Gather(op.Shape(IMAGE), 0, axis=0), axes=[0])
SHAPE_OF_FOUR = op.Shape(FOUR)
BATCH, CHANNELS, ROWS, COLUMNS = (op.Gather(SHAPE_OF_FOUR, axis, axis=0) for axis in range(4))
HALVED_AND_DOUBLED = [op.Unsqueeze(value, axes=[0]) for value in (BATCH, op.Div(CHANNELS, 2), ROWS, op.Mul(COLUMNS, 2))]
# `expand`, as PyTorch's exporter writes it.
ONES = op.ConstantOfShape([3], value=tensor(np.array([1])))
WANTED = np.array([2, -1, 4])
add(
    expand_by_where_and_equal=op.Expand(data(3, 1), op.Where(op.Equal(WANTED, op.Mul(ONES, -1)), ONES, WANTED)),
    quantised_weights=op.Conv(IMAGE, op.DequantizeLinear(int8(4, 3, 3, 3), 0.02, np.int8(0))),
    part_of_a_shape=op.Reshape(IMAGE, op.Concat([-1], op.Shape(IMAGE, start=2), axis=0)),
    shape_gather_concat_reshape=op.Reshape(IMAGE, op.Concat(FIRST_SIZE, [-1], axis=0)),
    arithmetic_on_shapes=op.Reshape(FOUR, op.Concat(*HALVED_AND_DOUBLED, axis=0)),
    size=op.Div(IMAGE, to_float(op.Size(IMAGE))),
    weights_that_are_computed=op.MatMul(PAIR, op.Mul(op.Transpose(normal(5, 6), perm=[1, 0]), 0.5)),
    halves_of_weights=op.Conv(IMAGE, to_float(normal(4, 3, 3, 3, dtype=np.float16))),
    quantised_weights_that_are_cast=Since(7, op.Conv(IMAGE, op.Mul(to_float(int8(4, 3, 3, 3)), 0.02)), last=9),
)

# Graphs.
SIX = data(2, 3)
RELU = op.Relu(SIX)
THEN_RELU = parse_graph("then () => (float[] then_result) { then_result = Relu(data) }")
ELSE_TANH = parse_graph("else () => (float[] else_result) { else_result = Tanh(data) }")
# `squeeze`, as PyTorch's exporter writes it.
THEN_SQUEEZE = parse_graph(
    "then () => (float[] then_result) <int64[1] axis = {2}> { then_result = Squeeze(data, axis) }"
)
ELSE_IDENTITY = parse_graph("else () => (float[] else_result) { else_result = Identity(data) }")
EXTENT = op.Gather(op.Shape(data(1, 3, 1)), [2], axis=0)
LOOP = parse_graph(
    """body (int64 turn, bool holds, float[5] state) => (bool going, float[5] result, float[5] value) {
        number = Cast<to = 1>(turn)
        value = Mul(state, number)
        going = Identity(holds)
        result = Add(value, state)
    }"""
)
SCAN = parse_graph(
    """body (float[4] state, float[4] row) => (float[4] total, float[4] out) {
        total = Add(state, row)
        out = Identity(total)
    }"""
)
add(
    an_output_that_is_an_input=(SIX, RELU),
    identity_of_an_input=(op.Identity(SIX), RELU),
    an_output_that_is_a_constant=(RELU, [1.0, 2.0, 3.0]),
    an_output_that_is_computed_from_constants=(RELU, op.Neg([1.0, 2.0, 3.0])),
    one_output_twice_by_identity=(op.Identity(RELU), RELU),
    scan_backwards=op.Scan(
        np.zeros(4, np.float32), data(6, 4), outputs=2, body=SCAN, num_scan_inputs=1, scan_input_directions=[1]
    ),
    if_with_a_constant_condition=Since(
        11, op.Add(op.If(np.array(False), then_branch=THEN_RELU, else_branch=ELSE_TANH), IMAGE)
    ),
    if_that_asks_for_a_shape=Since(
        13, op.If(op.Equal(EXTENT, [1]), then_branch=THEN_SQUEEZE, else_branch=ELSE_IDENTITY)
    ),
    loop_of_known_length=Since(13, op.Loop(4, np.array(True), data(5), outputs=2, body=LOOP)),
)

# Spectra, and counts.
SIGNAL = data(2, 9, 1)
WORDS = {"pool_int64s": [2, 3, 0, 0, 1, -1], "ngram_counts": [0, 2], "ngram_indexes": [1, 0, 3, 2]}
PAIRS = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 3}
add(
    fourier_transforms=(op.DFT(SIGNAL, axis=1, onesided=1), op.DFT(op.DFT(SIGNAL, axis=1), 6, axis=1, inverse=1)),
    short_time_fourier_transform=op.STFT(data(1, 40, 1), 4, np.hanning(8).astype(np.float32), onesided=1),
    counts_of_word_pairs=op.TfIdfVectorizer(integers(2, 12), mode="TF", **WORDS, **PAIRS),
)

# Integer products.
LEVELS = (0.02, np.uint8(120))
RESULT = (np.int8(0), 0.3, np.uint8(7))
HALVES, BIAS = op.Cast(data(2, 3), to=TensorProto.FLOAT16), np.int32([50, -300, 0, 1000])
MATRIX, PIXELS = op.QuantizeLinear(data(4, 6), *LEVELS), op.QuantizeLinear(data(1, 3, 8, 8), *LEVELS)
PRODUCT = op.QLinearMatMul(MATRIX, *LEVELS, int8(6, 5), 0.01, *RESULT)
CONVOLUTION = op.QLinearConv(PIXELS, *LEVELS, int8(4, 3, 3, 3), 0.01, *RESULT, BIAS, pads=[1, 1, 1, 1])
SUMS = op.ConvInteger(PIXELS, uint8(4, 3, 3, 3), np.uint8(120), pads=[1, 1, 1, 1])
add(
    quantizelinear_of_a_tiny_scale=op.QuantizeLinear(data(2, 3), np.float32(1e-38), np.uint8(3)),
    quantizelinear_of_float16=Since(21, op.QuantizeLinear(HALVES, np.float16(0.1), np.uint16(300))),
    matrix_product_of_integers=Since(13, PRODUCT),
    convolution_of_quantised_values=Since(13, CONVOLUTION),
    convolution_of_integers=Since(13, SUMS),
)
