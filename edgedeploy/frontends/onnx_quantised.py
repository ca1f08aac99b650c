"""Quantised operators, written out as float operators between DequantizeLinear and QuantizeLinear.

So one form is left of all that ONNX has for a quantised layer, of which the compiler makes integers again. What
onnxruntime 1.32's own operators compute, found by comparing every value; s are scales, z zero points, a and b data, y
the result, f32 is a rounding to float32, and clip goes to the range of the dtype, int8 or uint8:

- QLinearConv, QLinearMatMul, QGemm: `clip(rint(f32(sum + bias) * scale) + z_y)`, `scale = f32(s_a * s_b) / s_y`, of
  exact sums in int32.
- QLinearAdd: `clip(rint(fma(a, s_a / s_y, fma(b, s_b / s_y, z_y - (s_a / s_y * z_a + s_b / s_y * z_b)))))`. It rounds
  after the zero point was added; pairs around a float Add differ from it in 4 of 1.3 million values, by one step.
- QLinearMul: `clip(rint(f32((a - z_a) * (b - z_b) * scale) + z_y))`, `scale = f32(s_a * s_b) / s_y`. It rounds after
  the zero point was added; pairs differ in up to 2 of 1,000 values, by one step, for products between two steps.
- QLinearAveragePool, QLinearConcat, QLinearGlobalAveragePool, QLinearLeakyRelu, QLinearSigmoid, QLinearSoftmax and
  QLinearWhere: what pairs around the float operator compute.

Inputs and attributes: ONNX's Operators.md, and onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from edgedeploy.frontends.onnx_written import Writer, Written

# What holds integers of fewer bits, of which networks have weights; older packages of ONNX do not know all of them.
_WIDE = {
    getattr(TensorProto, narrow): wide
    for narrow, wide in {
        "INT2": TensorProto.INT8,
        "INT4": TensorProto.INT8,
        "UINT2": TensorProto.UINT8,
        "UINT4": TensorProto.UINT8,
    }.items()
    if hasattr(TensorProto, narrow)
}

_RANGES = {
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT8: (0, 255),
    TensorProto.INT16: (-32768, 32767),
    TensorProto.UINT16: (0, 65535),
}


def _dequantised(written: Written, place: int, axis: int = 0) -> str:
    """The float32 values of an input that its scale and its zero point follow, one or one for each place on an axis."""
    data, zero = written.inputs[place], written.given(place + 2)
    scale = _as_float(written, written.inputs[place + 1])
    if len(written.shape(written.inputs[place + 1])) > 1:  # one for each row of each matrix
        centred = _as_float(written, data)
        centred = written.add("Sub", centred, _as_float(written, zero)) if zero else centred
        return written.add("Mul", centred, scale)
    return written.add("DequantizeLinear", data, scale, zero, axis=axis)


def _quantised(written: Written, value: str, place: int) -> str:
    """A value in integers, by the scale and the zero point at this place of the inputs."""
    zero = written.given(place + 1) or written.weight(0, written.inputs[0])
    return written.add("QuantizeLinear", value, _as_float(written, written.inputs[place]), zero)


def _as_float(written: Written, name: str) -> str:
    """An input in float32."""
    return name if written.type(name) == TensorProto.FLOAT else written.add("Cast", name, to=TensorProto.FLOAT)


def _bias(written: Written, place: int, scales: Sequence[int], axis: int) -> list[str]:
    """An int32 bias, whose scale is the product of those of data and weights; none where it is left out."""
    if not written.given(place):
        return []
    scale = written.add("Mul", *(_as_float(written, written.inputs[each]) for each in scales))
    return [written.add("DequantizeLinear", written.inputs[place], scale, axis=axis)]


def _of_channels(written: Written, operator: str, data: str, *others: str) -> str:
    """An operator on feature maps with the node's attributes, of which one says that channels come last."""
    if not written.attributes.pop("channels_last", 0):
        return written.add(operator, data, *others, **written.attributes)
    kernel = written.attributes.get("kernel_shape")
    rank = len(kernel) + 2 if kernel else len(written.shape(written.inputs[0]))
    first = written.add("Transpose", data, perm=[0, rank - 1, *range(1, rank - 1)])
    made = written.add(operator, first, *others, **written.attributes)
    return written.add("Transpose", made, perm=[0, *range(2, rank), 1])


def _between(operator: str) -> Writer:
    """An operator of one quantised input, or of two: x, s_x, z_x, perhaps a second one, s_y, z_y."""

    def write(written: Written) -> Sequence[str]:
        count = (len(written.inputs) - 1) // 3
        data, *others = (_dequantised(written, 3 * place) for place in range(count))
        return [_quantised(written, _of_channels(written, operator, data, *others), 3 * count)]

    return write


def _convolution(written: Written) -> Sequence[str]:
    """QLinearConv: x, s_x, z_x, w, s_w, z_w, s_y, z_y, bias."""
    data, weights = _dequantised(written, 0), _dequantised(written, 3, axis=0)
    bias = _bias(written, 8, (1, 4), axis=0)
    return [_quantised(written, _of_channels(written, "Conv", data, weights, *bias), 6)]


def _matrix_product(written: Written) -> Sequence[str]:
    """QLinearMatMul: a, s_a, z_a, b, s_b, z_b, s_y, z_y; one scale for each row of a, or column of b, perhaps."""
    made = written.add("MatMul", _dequantised(written, 0, axis=-2), _dequantised(written, 3, axis=-1))
    return [_quantised(written, made, 6)]


def _gemm(written: Written) -> Sequence[str]:
    """QGemm: a, s_a, z_a, b, s_b, z_b, bias, s_y, z_y; float without the last two. Alpha scales the bias too."""
    given = written.attributes
    sides = _dequantised(written, 0), _dequantised(written, 3, axis=0 if given.get("transB") else 1)
    made = written.add("Gemm", *sides, *_bias(written, 6, (1, 4), axis=-1), beta=given.get("alpha", 1.0), **given)
    return [_quantised(written, made, 7) if written.given(7) else made]


def _concatenation(written: Written) -> Sequence[str]:
    """QLinearConcat: s_y, z_y, then x, s_x, z_x of each input."""
    parts = [_dequantised(written, place) for place in range(2, len(written.inputs), 3)]
    return [_quantised(written, written.add("Concat", *parts, **written.attributes), 0)]


def _choice(written: Written) -> Sequence[str]:
    """QLinearWhere: condition, x, s_x, z_x, y, s_y, z_y, s_z, z_z."""
    made = written.add("Where", written.inputs[0], _dequantised(written, 1), _dequantised(written, 4))
    return [_quantised(written, made, 7)]


def _softmax(written: Written) -> Sequence[str]:
    """QLinearSoftmax, with the meaning that Softmax has in the opset that an attribute names, not in the model's."""
    given = written.attributes
    data, axis, flat = _dequantised(written, 0), given.get("axis", -1), given.get("opset", 13) < 13
    if axis == -1:  # one axis in either way
        made = written.add("Softmax", data, axis=-1)
    elif flat:
        rows = written.add("Softmax", written.add("Flatten", data, axis=axis), axis=1)
        made = written.add("Reshape", rows, written.weight(written.shape(written.inputs[0])))
    else:
        rank = len(written.shape(written.inputs[0]))
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        turned = written.add("Softmax", written.add("Transpose", data, perm=order), axis=-1)
        made = written.add("Transpose", turned, perm=order)
    return [_quantised(written, made, 3)]


def _pool_of_last(written: Written) -> Sequence[str]:
    """NhwcMaxPool: MaxPool with channels last."""
    written.attributes["channels_last"] = 1
    return [_of_channels(written, "MaxPool", *written.inputs)]


def _plain(operator: str) -> Writer:
    """An operator that ONNX has too: there since another opset, or for fewer types."""
    return lambda written: [written.add(operator, *written.inputs, **written.attributes)]


def _product_in_float(written: Written) -> Sequence[str]:
    """MatMulIntegerToFloat: a, b, s_a, s_b, z_a, z_b, bias."""
    data, _, data_scale, weights_scale = written.inputs[:4]
    data_zero, weights_zero, bias = (written.given(place) for place in (4, 5, 6))
    return [_scaled_product(written, data, data_zero, weights_zero, data_scale, weights_scale, bias)]


def _dynamic_product(written: Written) -> Sequence[str]:
    """DynamicQuantizeMatMul: a in float, b, s_b, z_b, bias."""
    data, scale, zero = written.several(3, "DynamicQuantizeLinear", written.inputs[0])
    return [_scaled_product(written, data, zero, written.given(3), scale, written.inputs[2], written.given(4))]


def _scaled_product(
    written: Written, data: str, data_zero: str, weights_zero: str, data_scale: str, weights_scale: str, bias: str
) -> str:
    summed = written.add("MatMulInteger", data, written.inputs[1], data_zero, weights_zero)
    scale = written.add("Mul", data_scale, weights_scale)
    made = written.add("Mul", written.add("Cast", summed, to=TensorProto.FLOAT), scale)
    return written.add("Add", made, bias) if bias else made


def _dequantisation(written: Written) -> Sequence[str] | None:
    """DequantizeLinear of less than 8 bits, by those of 8; with a scale for each block of an axis, by arithmetic."""
    kind, block = written.type(written.inputs[0]), written.attributes.get("block_size")
    wide = _WIDE.get(kind)
    data, zero = written.inputs[0], written.given(2)
    if wide:
        data = written.add("Cast", data, to=wide)
        zero = zero and written.add("Cast", zero, to=wide)
    if not block:
        return [written.add("DequantizeLinear", data, written.inputs[1], zero, **written.attributes)] if wide else None
    scale, *zeros = _of_blocks(written, [written.inputs[1], *filter(None, [zero])])
    value = written.add("Cast", data, to=TensorProto.FLOAT)
    value = written.add("Sub", value, *zeros) if zeros else value
    kind = written.attributes.get("output_dtype") or written.type(written.inputs[1])
    return [written.add("Cast", written.add("Mul", value, scale), to=kind)]


def _quantisation(written: Written) -> Sequence[str] | None:
    """QuantizeLinear with a scale for each block of an axis, by arithmetic."""
    zero, stated = written.given(2), written.attributes.get("output_dtype")
    kind = stated or (written.type(zero) if zero else TensorProto.UINT8)
    if not written.attributes.get("block_size") or kind not in _RANGES:
        return None
    scale, *zeros = _of_blocks(written, [written.inputs[1], *filter(None, [zero])])
    value = written.add("Round", written.add("Div", _as_float(written, written.inputs[0]), scale))
    value = written.add("Add", value, *zeros) if zeros else value
    limits = [written.weight(limit, dtype="float32") for limit in _RANGES[kind]]
    return [written.add("Cast", written.add("Clip", value, *limits), to=kind)]


def _of_blocks(written: Written, parameters: Sequence[str]) -> list[str]:
    """For each value of the first input what its block has, in float32."""
    axis, block = written.attributes.get("axis", 1), written.attributes["block_size"]
    places = written.weight([place // block for place in range(written.shape(written.inputs[0])[axis])])
    wide = [written.add("Cast", each, to=TensorProto.FLOAT) for each in parameters]
    return [written.add("Gather", each, places, axis=axis) for each in wide]


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
    "NhwcMaxPool": _pool_of_last,
    "QGemm": _gemm,
    "QLinearAdd": _between("Add"),
    "QLinearAveragePool": _between("AveragePool"),
    "QLinearConcat": _concatenation,
    "QLinearConv": _convolution,
    "QLinearGlobalAveragePool": _between("GlobalAveragePool"),
    "QLinearLeakyRelu": _between("LeakyRelu"),
    "QLinearMul": _between("Mul"),
    "QLinearSigmoid": _between("Sigmoid"),
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _choice,
    "QuantizeLinear": _plain("QuantizeLinear"),
}
