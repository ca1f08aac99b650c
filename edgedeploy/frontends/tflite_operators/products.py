"""Products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgedeploy.compile.expressions import shape_of
from edgedeploy.frontends.onnx_operators.translation import Builder


def _fully_connected(converter: Any, op: Any) -> Any:
    """FULLY_CONNECTED: x Wᵀ + b, activation.

    Unless the operator keeps the axes of its input, its values are taken as rows of as many as the weights have, and
    the result is a matrix. Quantised weights are seen as floats.
    """
    from tflite.FullyConnectedOptions import FullyConnectedOptions

    options = FullyConnectedOptions()
    options.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
    given = [tensor for tensor in converter.get_input_tensors(op) if tensor.tensor_idx != -1]
    data, weights, *bias = (converter.get_tensor_expr(tensor) for tensor in given)
    build = Builder(converter)
    if not options.KeepNumDims() and (width := shape_of(weights)[1]) and len(shape_of(data)) != 2:
        data = build.reshape(data, [-1, width])
    made = build.matmul(data, build.permute(weights, [1, 0]))
    for each in bias:
        made = build.add(made, each)
    return converter.convert_fused_activation_function(made, options.FusedActivationFunction())


TRANSLATIONS: dict[str, Callable[[Any, Any], Any]] = {"FULLY_CONNECTED": _fully_connected}
