"""Quantised operators, written out as float operators between DequantizeLinear and QuantizeLinear.

Of ONNX's many forms of a quantised layer, one is left, which the compiler turns into integers again. onnxruntime 1.32's
own operators compute the following, found by comparing every value; s are scales, z zero points, a and b data, y the
result, f32 rounds to float32, and clip goes to the range of the dtype, int8 or uint8:

- QLinearConv, QLinearMatMul, QGemm: `clip(rint(f32(sum + bias) * scale) + z_y)`, `scale = f32(s_a * s_b) / s_y`, of
  exact sums in int32.
- QLinearAdd: `clip(rint(fma(a, s_a / s_y, fma(b, s_b / s_y, z_y - (s_a / s_y * z_a + s_b / s_y * z_b)))))`. It rounds
  after the zero point was added; pairs around a float Add differ from it in 4 of 1.3 million values, by one step.
- QLinearMul: `clip(rint(f32((a - z_a) * (b - z_b) * scale) + z_y))`, `scale = f32(s_a * s_b) / s_y`. It rounds after
  the zero point was added; pairs differ in up to 2 of 1,000 values, by one step, for products between two steps.
- QLinearAveragePool, QLinearConcat, QLinearGlobalAveragePool, QLinearLeakyRelu, QLinearSigmoid, QLinearSoftmax and
  QLinearWhere: the same as pairs around the float operator.

Inputs and attributes: ONNX's Operators.md, and onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgedeploy.frontends.onnx.nodes import NodeBuilder, Part, Rule, Writer

# Types of 8 bits for weights of fewer bits; older packages of ONNX do not know all of them.
_WIDE = {
    getattr(TensorProto, f"{sign}INT{bits}"): getattr(TensorProto, f"{sign}INT8")
    for sign in ("", "U")
    for bits in (2, 4)
    if hasattr(TensorProto, f"{sign}INT{bits}")
}

_BY_BLOCKS = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16)


def _dequantised(build: NodeBuilder, place: int, axis: int = 0) -> str:
    """The float32 values of an input, whose scale and zero point follow it: one, or one for each place on an axis."""
    data, zero = build.inputs[place], build.optional(place + 2)
    scale = _as_float(build, build.inputs[place + 1])
    if len(build.shape(build.inputs[place + 1])) > 1:  # one for each row of each matrix
        centred = _as_float(build, data)
        centred = build.add("Sub", centred, _as_float(build, zero)) if zero else centred
        return build.add("Mul", centred, scale)
    return build.add("DequantizeLinear", data, scale, zero, axis=axis)


def _quantised(build: NodeBuilder, value: str, place: int) -> str:
    """A value in integers, by the scale and zero point among the inputs at this place."""
    zero = build.optional(place + 1) or build.weight(0, build.inputs[0])
    return build.add("QuantizeLinear", value, _as_float(build, build.inputs[place]), zero)


def _as_float(build: NodeBuilder, name: str) -> str:
    return name if build.type(name) == TensorProto.FLOAT else build.cast(name)


def _bias(build: NodeBuilder, place: int, scales: Sequence[int], axis: int) -> list[str]:
    """An int32 bias, whose scale is the product of those of data and weights; empty if it is left out."""
    if not build.optional(place):
        return []
    scale = build.add("Mul", *(_as_float(build, build.inputs[each]) for each in scales))
    return [build.add("DequantizeLinear", build.inputs[place], scale, axis=axis)]


def _of_channels(build: NodeBuilder, operator: str, data: str, *others: str) -> str:
    """An operator on feature maps with the node's attributes, one of which may put channels last."""
    if not build.attributes.pop("channels_last", 0):
        return build.add(operator, data, *others, **build.attributes)
    kernel = build.attributes.get("kernel_shape")
    rank = len(kernel) + 2 if kernel else len(build.shape(build.inputs[0]))
    first = build.add("Transpose", data, perm=[0, rank - 1, *range(1, rank - 1)])
    made = build.add(operator, first, *others, **build.attributes)
    return build.add("Transpose", made, perm=[0, *range(2, rank), 1])


def _between(build: NodeBuilder) -> Sequence[str]:
    """An operator of one quantised input, or of two: x, s_x, z_x, perhaps a second one, s_y, z_y."""
    operator, count = build.operator.removeprefix("QLinear"), (len(build.inputs) - 1) // 3
    data, *others = (_dequantised(build, 3 * place) for place in range(count))
    return [_quantised(build, _of_channels(build, operator, data, *others), 3 * count)]


def _convolution(build: NodeBuilder) -> Sequence[str]:
    """QLinearConv: x, s_x, z_x, w, s_w, z_w, s_y, z_y, bias."""
    data, weights = _dequantised(build, 0), _dequantised(build, 3, axis=0)
    bias = _bias(build, 8, (1, 4), axis=0)
    return [_quantised(build, _of_channels(build, "Conv", data, weights, *bias), 6)]


def _matrix_product(build: NodeBuilder) -> Sequence[str]:
    """QLinearMatMul: a, s_a, z_a, b, s_b, z_b, s_y, z_y; one scale for each row of a, or column of b, perhaps."""
    made = build.add("MatMul", _dequantised(build, 0, axis=-2), _dequantised(build, 3, axis=-1))
    return [_quantised(build, made, 6)]


def _gemm(build: NodeBuilder) -> Sequence[str]:
    """QGemm: a, s_a, z_a, b, s_b, z_b, bias, s_y, z_y; float without the last two. Alpha scales the bias too."""
    given = build.attributes
    sides = _dequantised(build, 0), _dequantised(build, 3, axis=0 if given.get("transB") else 1)
    made = build.add("Gemm", *sides, *_bias(build, 6, (1, 4), axis=-1), beta=given.get("alpha", 1.0), **given)
    return [_quantised(build, made, 7) if build.optional(7) else made]


def _concatenation(build: NodeBuilder) -> Sequence[str]:
    """QLinearConcat: s_y, z_y, then x, s_x, z_x of each input."""
    parts = [_dequantised(build, place) for place in range(2, len(build.inputs), 3)]
    return [_quantised(build, build.add("Concat", *parts, **build.attributes), 0)]


def _choice(build: NodeBuilder) -> Sequence[str]:
    """QLinearWhere: condition, x, s_x, z_x, y, s_y, z_y, s_z, z_z."""
    made = build.add("Where", build.inputs[0], _dequantised(build, 1), _dequantised(build, 4))
    return [_quantised(build, made, 7)]


def _softmax(build: NodeBuilder) -> Sequence[str]:
    """QLinearSoftmax, which means Softmax of the opset that an attribute names, not of the model's."""
    given = build.attributes
    data, axis, flat = _dequantised(build, 0), given.get("axis", -1), given.get("opset", 13) < 13
    if axis == -1:  # one axis in both
        made = build.add("Softmax", data, axis=-1)
    elif flat:
        rows = build.add("Softmax", build.add("Flatten", data, axis=axis), axis=1)
        made = build.reshape(rows, build.shape(build.inputs[0]))
    else:
        order = list(range(len(build.shape(build.inputs[0]))))
        order[axis], order[-1] = order[-1], order[axis]
        turned = build.add("Softmax", build.add("Transpose", data, perm=order), axis=-1)
        made = build.add("Transpose", turned, perm=order)
    return [_quantised(build, made, 3)]


def _max_pool_nhwc(build: NodeBuilder) -> Sequence[str]:
    build.attributes["channels_last"] = 1
    return [_of_channels(build, "MaxPool", *build.inputs)]


def _plain(operator: str) -> Writer:
    """An operator that ONNX has too, since another opset or for fewer types."""
    return lambda build: [build.add(operator, *build.inputs, **build.attributes)]


def _product_in_float(build: NodeBuilder) -> Sequence[str]:
    """MatMulIntegerToFloat: a, b, s_a, s_b, z_a, z_b, bias."""
    return _scaled_product(build, build.inputs[0], build.inputs[2], build.optional(4), (3, 5, 6))


def _dynamic_product(build: NodeBuilder) -> Sequence[str]:
    """DynamicQuantizeMatMul: a in float, b, s_b, z_b, bias."""
    data, scale, zero = build.several(3, "DynamicQuantizeLinear", build.inputs[0])
    return _scaled_product(build, data, scale, zero, (2, 3, 4))


def _scaled_product(build: NodeBuilder, data: str, scale: str, zero: str, places: Sequence[int]) -> Sequence[str]:
    """The product of integers with the second input, whose scale, zero point and bias are at `places`."""
    weights_scale, weights_zero, bias = (build.optional(place) for place in places)
    summed = build.add("MatMulInteger", data, build.inputs[1], zero, weights_zero)
    made = build.add("Mul", build.cast(summed), build.add("Mul", scale, weights_scale))
    return [build.add("Add", made, bias) if bias else made]


def _dequantisation(build: NodeBuilder) -> Sequence[str] | None:
    """DequantizeLinear of less than 8 bits, as 8 bits; with a scale for each block of an axis, by arithmetic."""
    kind, block = build.type(build.inputs[0]), build.attributes.get("block_size")
    wide = _WIDE.get(kind)
    data, zero = build.inputs[0], build.optional(2)
    if wide:
        data = build.cast(data, wide)
        zero = zero and build.cast(zero, wide)
    if not block:
        return [build.add("DequantizeLinear", data, build.inputs[1], zero, **build.attributes)] if wide else None
    scale, *zeros = _of_blocks(build, [build.inputs[1], *filter(None, [zero])])
    value = build.cast(data)
    value = build.add("Sub", value, *zeros) if zeros else value
    kind = build.attributes.get("output_dtype") or build.type(build.inputs[1])
    return [build.add("Cast", build.add("Mul", value, scale), to=kind)]


def _quantisation(build: NodeBuilder) -> Sequence[str] | None:
    """QuantizeLinear with a scale for each block of an axis, by arithmetic."""
    zero, stated = build.optional(2), build.attributes.get("output_dtype")
    kind = stated or (build.type(zero) if zero else TensorProto.UINT8)
    if not build.attributes.get("block_size") or kind not in _BY_BLOCKS:
        return None
    scale, *zeros = _of_blocks(build, [build.inputs[1], *filter(None, [zero])])
    value = build.add("Round", build.add("Div", _as_float(build, build.inputs[0]), scale))
    value = build.add("Add", value, *zeros) if zeros else value
    limits = np.iinfo(helper.tensor_dtype_to_np_dtype(kind))
    ends = [build.weight(end, dtype="float32") for end in (limits.min, limits.max)]
    return [build.add("Cast", build.add("Clip", value, *ends), to=kind)]


def _of_blocks(build: NodeBuilder, parameters: Sequence[str]) -> list[str]:
    """Parameters of blocks as float32, repeated for each value of the first input."""
    axis, block = build.attributes.get("axis", 1), build.attributes["block_size"]
    places = build.weight([place // block for place in range(build.shape(build.inputs[0])[axis])])
    wide = [build.cast(each) for each in parameters]
    return [build.add("Gather", each, places, axis=axis) for each in wide]


QUANTISED: dict[str, Writer] = {
    "DequantizeLinear": _dequantisation,
    "QLinearConv": _convolution,
    "QLinearMatMul": _matrix_product,
    "QuantizeLinear": _quantisation,
}

QUANTISED_CONTRIB: dict[str, Writer] = {
    "DequantizeLinear": _plain("DequantizeLinear"),
    "DynamicQuantizeMatMul": _dynamic_product,
    "MatMulIntegerToFloat": _product_in_float,
    "NhwcMaxPool": _max_pool_nhwc,
    "QGemm": _gemm,
    **dict.fromkeys(("QLinearAdd", "QLinearAveragePool", "QLinearGlobalAveragePool"), _between),
    **dict.fromkeys(("QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid"), _between),
    "QLinearConcat": _concatenation,
    "QLinearConv": _convolution,
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _choice,
    "QuantizeLinear": _plain("QuantizeLinear"),
}


# Operators that move or compare values of their first input; Concat does so with all of its inputs.
_MOVING = {
    "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "MaxPool", "Pad",
    "Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip


def between_pairs(graph: onnx.GraphProto) -> Rule:
    """Makes each operator that moves quantised values compute in float, between DequantizeLinear and QuantizeLinear.

    onnxruntime's quantiser leaves MaxPool, Resize, Transpose and the like on integers next to quantised operators.
    Between pairs they are layers like any other. Copies and maxima are the same either way. Resize by interpolation is
    not: onnxruntime cuts off the fractions of integers, a bias of half a step; here they are rounded. The graph's nodes
    are in topological order, its constants among the initialisers.
    """
    constants = {weight.name: weight for weight in graph.initializer}
    known: dict[str, tuple[str, str]] = {}  # names of scale and zero point by value

    def are_single(names: Sequence[str]) -> bool:
        return all(name in constants and list(constants[name].dims) in ([], [1]) for name in names)

    def rule(node: onnx.NodeProto, number: int) -> Part | None:
        if node.op_type == "QuantizeLinear" and len(node.input) == 3 and are_single(node.input[1:]):
            known[node.output[0]] = (node.input[1], node.input[2])
        if node.op_type not in _MOVING:
            return None
        data = list(node.input[: None if node.op_type == "Concat" else 1])
        found = {known.get(name) for name in data if name not in constants}
        quantisation = found.pop() if len(found) == 1 else None
        pads = node.op_type == "Pad"
        if quantisation is None or (pads and not are_single(list(filter(None, node.input[2:3])))):
            return None
        inner, before, after, weights = deepcopy(node), [], [], []
        for place, name in enumerate(data):
            inner.input[place] = f"{node.output[0]}/float/{place}"
            before.append(helper.make_node("DequantizeLinear", [name, *quantisation], [inner.input[place]]))
        for place, name in enumerate(node.output if node.op_type == "Split" else node.output[:1]):
            known[name] = quantisation
            inner.output[place] = f"{name}/float"
            after.append(helper.make_node("QuantizeLinear", [inner.output[place], *quantisation], [name]))
        if pads:
            scale, zero, *stated = (
                numpy_helper.to_array(constants[name]).reshape(())
                for name in (*quantisation, *filter(None, node.input[2:3]))
            )
            edge = (stated[0].astype(np.int64) if stated else 0) - zero.astype(np.int64)
            value = edge.astype(np.float32) * scale.astype(np.float32)
            inner.input.extend([""] * (3 - len(inner.input)))
            inner.input[2] = f"{node.output[0]}/float edge"
            weights.append(numpy_helper.from_array(np.asarray(value, scale.dtype), inner.input[2]))
        return [*before, inner, *after], weights

    return rule
