"""Operators of ONNX in Relax, where TVM's importer lacks them, errs, or makes forms that the compiler cannot use.

TVM 0.27 turns `Clip`, `Max`, `Min`, `Sum` and `Pad` into chains of generic operators and opaque calls that stop
layout conversion and fusion. Here they become the plain Relax operators they are. Others it knows only as later
opsets write them, or not at all. The meaning of each is that of ONNX's Operators.md and Changelog.md.

A translation takes the importer, the node's inputs (None for one left out) and its attributes, and returns an
expression, or None where TVM's own importer is to translate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto
from tvm import relax

from edgedeploy.compile.expressions import constant_value
from edgedeploy.frontends.onnx_resize import resize, upsample

Translation = Callable[[Any, list[Any], dict[str, Any]], Any]


def _shape(value: Any) -> list[int]:
    return [int(size) for size in value.ty.shape]


def _input(inputs: list[Any], index: int) -> Any:
    """An input that may be left out, at the end or by an empty name."""
    return inputs[index] if index < len(inputs) else None


def _integers(inputs: list[Any], index: int) -> list[int] | None:
    """The values of a constant input of integers."""
    value = constant_value(_input(inputs, index))
    return None if value is None else [int(each) for each in value.ravel()]


def _clip(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Clip with constant bounds: attributes up to opset 6, inputs from opset 11 on."""
    bounds: list[Any] = [attr.get("min"), attr.get("max")]
    for index, value in enumerate(inputs[1:3]):
        if value is not None:
            bounds[index] = constant_value(value)
            if bounds[index] is None or np.isnan(bounds[index]).any():
                return None
    result, dtype = inputs[0], str(inputs[0].ty.dtype)
    if bounds[0] is not None:
        lowest = np.asarray(bounds[0], dtype).reshape(())
        result = relax.op.nn.relu(result) if lowest == 0 else relax.op.maximum(result, relax.const(lowest))
    if bounds[1] is not None:
        result = relax.op.minimum(importer.bb.normalize(result), relax.const(np.asarray(bounds[1], dtype).reshape(())))
    return result


def _pairwise(operator: Callable[[Any, Any], Any]) -> Translation:
    """Max, Min and Sum of any number of tensors."""

    def translate(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
        result = inputs[0]
        for value in inputs[1:]:
            result = importer.bb.normalize(operator(result, value))
        return result

    return translate


def _mean(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    total = _pairwise(relax.op.add)(importer, inputs, attr)
    return relax.op.multiply(total, relax.const(1 / len(inputs), str(total.ty.dtype)))


def _leaky_relu(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """max(x, a x) for 0 <= a <= 1: two elementwise operators, which keep any layout."""
    slope = float(attr.get("alpha", 0.01))
    if not 0 <= slope <= 1:
        return None
    scaled = importer.bb.emit(relax.op.multiply(inputs[0], relax.const(slope, str(inputs[0].ty.dtype))))
    return relax.op.maximum(inputs[0], scaled)


def _pad(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Pad with a constant on all axes; widths are an attribute up to opset 10. Widths of zero do nothing."""
    if attr.get("mode", b"constant") != b"constant" or _input(inputs, 3) is not None:
        return None
    widths: np.ndarray | None
    value: np.ndarray | None
    if "pads" in attr:
        widths, value = np.asarray(attr["pads"]), np.asarray(attr.get("value", 0.0))
    else:
        widths = constant_value(inputs[1])
        value = np.asarray(0.0) if _input(inputs, 2) is None else constant_value(inputs[2])
    if widths is None or value is None or (widths < 0).any():
        return None
    if not widths.any():
        return inputs[0]
    interleaved = [int(width) for pair in zip(*np.split(widths, 2), strict=True) for width in pair]
    return relax.op.nn.pad(inputs[0], interleaved, pad_mode="constant", pad_value=float(value.item()))


def _batch_normalisation(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, as one product and one sum with constants."""
    gamma, beta, mean, variance = (constant_value(value) for value in inputs[1:5])
    if gamma is None or beta is None or mean is None or variance is None or attr.get("training_mode", 0):
        return None
    # float16 is computed in float32; relax.const would take float64 for float32.
    dtype = str(inputs[0].ty.dtype)
    wide = np.float64 if dtype == "float64" else np.float32
    gamma, beta, mean, variance = (value.astype(wide) for value in (gamma, beta, mean, variance))
    scale = gamma / np.sqrt(variance + wide(attr.get("epsilon", 1e-5)))
    shape = (1, -1) + (1,) * (len(inputs[0].ty.shape) - 2)
    scaled = importer.bb.emit(relax.op.multiply(inputs[0], relax.const(scale.reshape(shape), dtype)))
    return relax.op.add(scaled, relax.const((beta - mean * scale).reshape(shape), dtype))


def _dropout(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Dropout at inference; its mask, if somebody reads it, is TVM's business."""
    return inputs[0] if attr["tvm_custom"]["num_outputs"] == 1 else None


def _squeeze(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Squeeze as a reshape; axes are an attribute up to opset 12."""
    shape = _shape(inputs[0])
    axes = list(attr["axes"]) if "axes" in attr else _integers(inputs, 1)
    if axes is None:
        axes = [axis for axis, size in enumerate(shape) if size == 1]
    gone = {axis % len(shape) for axis in axes}
    if any(shape[axis] != 1 for axis in gone):
        raise ValueError(f"axes {axes} of shape {shape} are not all one long")
    return relax.op.reshape(inputs[0], [size for axis, size in enumerate(shape) if axis not in gone])


def _unsqueeze(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Unsqueeze as a reshape; axes are an attribute up to opset 12."""
    axes = list(attr["axes"]) if "axes" in attr else _integers(inputs, 1)
    if axes is None:
        return None
    sizes = iter(_shape(inputs[0]))
    rank = len(_shape(inputs[0])) + len(axes)
    new = {axis + rank if axis < 0 else axis for axis in axes}
    if len(new) < len(axes) or not new <= set(range(rank)):
        raise ValueError(f"axes {axes} do not fit a result of rank {rank}")
    return relax.op.reshape(inputs[0], [1 if axis in new else next(sizes) for axis in range(rank)])


def _gather(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Gather by constant indices, which may count from the end."""
    indices = constant_value(inputs[1])
    if indices is None or not hasattr(inputs[0].ty, "dtype"):
        return None
    axis = int(attr.get("axis", 0))
    size = _shape(inputs[0])[axis]
    if ((indices < -size) | (indices >= size)).any():
        raise ValueError(f"an index is beyond axis {axis} of {size}")
    return relax.op.take(inputs[0], relax.const(np.where(indices < 0, indices + size, indices).astype("int64")), axis)


def _cast(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Cast of floats to the usual integers; what no such integer stands for gives any value."""
    wide = attr["to"] in (TensorProto.INT32, TensorProto.INT64)
    if (
        not wide
        or not str(getattr(inputs[0].ty, "dtype", "")).startswith("float")
        or constant_value(inputs[0]) is not None
    ):
        return None
    return relax.op.astype(inputs[0], "int32" if attr["to"] == TensorProto.INT32 else "int64")


def _power(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Pow; small whole exponents are products, others become the base's type."""
    dtype = str(inputs[0].ty.dtype)
    exponent = constant_value(inputs[1])
    if exponent is not None and exponent.size == 1 and len(_shape(inputs[0])) >= exponent.ndim:
        if exponent.item() == 0.5:
            return relax.op.sqrt(inputs[0])
        if exponent.item() in (1, 2, 3):
            return _pairwise(relax.op.multiply)(importer, inputs[:1] * int(exponent.item()), attr)
    if str(inputs[1].ty.dtype) == dtype:
        return None
    return relax.op.power(inputs[0], importer.bb.normalize(relax.op.astype(inputs[1], dtype)))


def _hyperbolic(sign: Callable[[Any, Any], Any]) -> Translation:
    """Sinh and Cosh: half of e^x -+ e^-x."""

    def translate(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
        up = importer.bb.normalize(relax.op.exp(inputs[0]))
        down = importer.bb.normalize(relax.op.exp(importer.bb.normalize(relax.op.negative(inputs[0]))))
        half = relax.const(0.5, str(inputs[0].ty.dtype))
        return relax.op.multiply(importer.bb.normalize(sign(up, down)), half)

    return translate


def _slice(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Slice of opsets up to 9, whose bounds are attributes."""
    if "starts" not in attr:
        return None
    axes = attr.get("axes", range(len(attr["starts"])))
    bounds = [relax.const(np.array(list(values), np.int64)) for values in (attr["starts"], attr["ends"], axes)]
    return importer.theirs("Slice", [inputs[0], *bounds], {})


def _top_k(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """TopK of opset 10, whose k is an input already."""
    return importer.theirs("TopK", inputs, attr, 11) if importer.opset == 10 else None


def _one_hot(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """OneHot with a constant depth, of the type of its values."""
    depth, values = constant_value(inputs[1]), constant_value(inputs[2])
    if depth is None or values is None or values.size != 2:
        return None
    count = int(depth.item())
    rank = len(_shape(inputs[0])) + 1
    axis = int(attr.get("axis", -1)) % rank
    choices = np.arange(count).reshape([-1 if each == axis else 1 for each in range(rank)])
    wide = importer.bb.normalize(relax.op.astype(inputs[0], "int64"))
    wide = importer.bb.normalize(relax.op.expand_dims(wide, axis))
    below = importer.bb.normalize(relax.op.less(wide, relax.const(0, "int64")))
    from_end = importer.bb.normalize(relax.op.add(wide, relax.const(count, "int64")))
    wide = importer.bb.normalize(relax.op.where(below, from_end, wide))
    hot = importer.bb.normalize(relax.op.equal(wide, relax.const(choices)))
    off, on = (relax.const(value) for value in values.ravel())
    return relax.op.where(hot, on, off)


def _pool(operator: str) -> Translation:
    """Pooling with `auto_pad`, whose padding is written out: of SAME, as much as gives ceil(size / stride) windows."""

    def translate(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
        same = attr.get("auto_pad", b"NOTSET").decode()
        if same not in ("SAME_UPPER", "SAME_LOWER"):
            return None
        sizes = _shape(inputs[0])[2:]
        ones = [1] * len(sizes)
        before, after = [], []
        for size, kernel, stride, dilation in zip(
            sizes, attr["kernel_shape"], attr.get("strides", ones), attr.get("dilations", ones), strict=True
        ):
            total = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
            before.append(total // 2 if same == "SAME_UPPER" else total - total // 2)
            after.append(total - before[-1])
        written = {name: value for name, value in attr.items() if name != "auto_pad"}
        return importer.theirs(operator, inputs, written | {"pads": (*before, *after)})

    return translate


def _transposed_convolution(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """ConvTranspose with `output_shape`, from which its padding follows."""
    if "output_shape" not in attr:
        return None
    sizes, kernels = _shape(inputs[0])[2:], _shape(inputs[1])[2:]
    ones = [1] * len(sizes)
    wanted = attr["output_shape"][-len(sizes) :]
    extra = list(attr.get("output_padding", [0] * len(sizes)))
    upper = attr.get("auto_pad", b"NOTSET") == b"SAME_UPPER"
    before, after = [], []
    for axis, (size, kernel, stride, dilation) in enumerate(
        zip(sizes, kernels, attr.get("strides", ones), attr.get("dilations", ones), strict=True)
    ):
        total = stride * (size - 1) + extra[axis] + (kernel - 1) * dilation + 1 - wanted[axis]
        if total < 0:
            extra[axis], total = extra[axis] - total, 0
        before.append(total // 2 if upper else total - total // 2)
        after.append(total - before[-1])
    written = {name: value for name, value in attr.items() if name not in ("auto_pad", "output_shape")}
    return importer.theirs("ConvTranspose", inputs, written | {"pads": (*before, *after), "output_padding": extra})


def _lp_normalisation(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """LpNormalization: x by its norm along an axis; zeros stay zeros."""
    data, axis, order = inputs[0], int(attr.get("axis", -1)), int(attr.get("p", 2))
    powers = importer.bb.normalize(relax.op.abs(data) if order == 1 else relax.op.multiply(data, data))
    norm = importer.bb.normalize(relax.op.sum(powers, [axis], keepdims=True))
    if order == 2:
        norm = importer.bb.normalize(relax.op.sqrt(norm))
    least = relax.const(float(np.finfo(np.float32).tiny), str(data.ty.dtype))
    return relax.op.divide(data, importer.bb.normalize(relax.op.maximum(norm, least)))


TRANSLATIONS: dict[str, Translation] = {
    "AveragePool": _pool("AveragePool"),
    "BatchNormalization": _batch_normalisation,
    "Cast": _cast,
    "Clip": _clip,
    "ConvTranspose": _transposed_convolution,
    "Cosh": _hyperbolic(relax.op.add),
    "Dropout": _dropout,
    "Gather": _gather,
    "LeakyRelu": _leaky_relu,
    "LpNormalization": _lp_normalisation,
    "LpPool": _pool("LpPool"),
    "Max": _pairwise(relax.op.maximum),
    "MaxPool": _pool("MaxPool"),
    "Mean": _mean,
    "Min": _pairwise(relax.op.minimum),
    "OneHot": _one_hot,
    "Pad": _pad,
    "Pow": _power,
    "Resize": resize,
    "Sinh": _hyperbolic(relax.op.subtract),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sum": _pairwise(relax.op.add),
    "TopK": _top_k,
    "Unsqueeze": _unsqueeze,
    "Upsample": upsample,
}
