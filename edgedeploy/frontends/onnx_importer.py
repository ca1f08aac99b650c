"""TVM's ONNX importer, with operators translated into forms that the compiler handles well.

TVM 0.27 turns `Clip`, `Max`, `Min` and `Pad` into chains of generic operators and opaque calls that stop
layout conversion and fusion. Here they become the plain Relax operators they are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from edgedeploy.errors import ModelError, last_line

Converter = Callable[[Any, Any, dict[str, Any]], Any]


def import_model(model: onnx.ModelProto) -> tvm.IRModule:
    """Translate a model whose inputs have fixed shapes.

    Raises:
        ModelError: an operator cannot be translated; the message names it and its node.
    """
    shapes = {
        value.name: [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    dtypes = {
        value.name: onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name
        for value in model.graph.input
    }
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    importer = _Importer(shapes, dtypes)
    try:
        return importer.from_onnx(model.graph, opset)
    except Exception:
        with suppress(Exception):  # where no block was begun yet
            importer.bb._end_block()  # TVM would warn of it, below our own message
        raise


class _Importer(ONNXGraphImporter):
    """Adds our translations, and names the node in every failure."""

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Refuse the first operator that nobody translates, naming its node."""
        from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map

        known = _get_convert_map().keys() | _CONVERTERS.keys() | {"If"}
        for node in graph.node:
            if node.op_type not in known:
                name = node.name or ", ".join(node.output)
                domain = f" of domain {node.domain!r}" if node.domain else ""
                raise ModelError(
                    f"operator {node.op_type}{domain} is not supported",
                    why=f"node {name!r} needs it",
                    hints=["export the network without it, or cut the network before this node"],
                )

    def _convert_operator(self, op_name: str, inputs: Any, attr: dict[str, Any], opset: int) -> Any:
        converter = _CONVERTERS.get(op_name)
        try:
            if converter is not None:
                converted = converter(self, list(inputs), attr)
                if converted is not None:
                    return self.bb.normalize(converted)
            return super()._convert_operator(op_name, inputs, attr, opset)
        except Exception as error:
            name = attr.get("tvm_custom", {}).get("name") or "(without a name)"
            raise ModelError(
                f"operator {op_name} cannot be imported", why=f"node {name!r}: {last_line(error)}"
            ) from error


def _constant(value: Any) -> np.ndarray | None:
    """The value of a constant input, or None."""
    if isinstance(value, tvm.ir.GenericConst):
        return value.value.numpy()
    return None


def _clip(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Clip with constant bounds: attributes up to opset 6, inputs from opset 11 on."""
    bounds: list[Any] = [attr.get("min"), attr.get("max")]
    for index, value in enumerate(inputs[1:3]):
        if value is not None:
            bounds[index] = _constant(value)
            if bounds[index] is None or np.isnan(bounds[index]).any():
                return None
    result, dtype = inputs[0], str(inputs[0].ty.dtype)
    if bounds[0] is not None:
        lowest = np.asarray(bounds[0], dtype).reshape(())
        result = relax.op.nn.relu(result) if lowest == 0 else relax.op.maximum(result, relax.const(lowest))
    if bounds[1] is not None:
        result = relax.op.minimum(importer.bb.normalize(result), relax.const(np.asarray(bounds[1], dtype).reshape(())))
    return result


def _pairwise(operator: Callable[[Any, Any], Any]) -> Converter:
    """Max and Min of any number of tensors."""

    def convert(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
        result = inputs[0]
        for value in inputs[1:]:
            result = importer.bb.normalize(operator(result, value))
        return result

    return convert


def _leaky_relu(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """max(x, a x) for 0 <= a <= 1: two elementwise operators, which keep any layout."""
    slope = float(attr.get("alpha", 0.01))
    if not 0 <= slope <= 1:
        return None
    scaled = importer.bb.emit(relax.op.multiply(inputs[0], relax.const(slope, str(inputs[0].ty.dtype))))
    return relax.op.maximum(inputs[0], scaled)


def _pad(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Pad with a constant on all axes; widths are an attribute up to opset 10. Widths of zero do nothing."""
    if attr.get("mode", b"constant") != b"constant" or (len(inputs) > 3 and inputs[3] is not None):
        return None
    widths: np.ndarray | None
    value: np.ndarray | None
    if "pads" in attr:
        widths, value = np.asarray(attr["pads"]), np.asarray(attr.get("value", 0.0))
    else:
        widths = _constant(inputs[1])
        value = np.asarray(0.0) if len(inputs) < 3 or inputs[2] is None else _constant(inputs[2])
    if widths is None or value is None or (widths < 0).any():
        return None
    if not widths.any():
        return inputs[0]
    interleaved = [int(width) for pair in zip(*np.split(widths, 2), strict=True) for width in pair]
    return relax.op.nn.pad(inputs[0], interleaved, pad_mode="constant", pad_value=float(value.item()))


def _batch_normalisation(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, as one product and one sum with constants."""
    gamma, beta, mean, variance = (_constant(value) for value in inputs[1:5])
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


_CONVERTERS: dict[str, Converter] = {
    "BatchNormalization": _batch_normalisation,
    "Clip": _clip,
    "LeakyRelu": _leaky_relu,
    "Max": _pairwise(relax.op.maximum),
    "Min": _pairwise(relax.op.minimum),
    "Pad": _pad,
}
