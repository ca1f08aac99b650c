"""Operators of one value at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax

from edgedeploy.compile.expressions import shape_of
from edgedeploy.frontends.onnx_operators.translation import Builder


def _prelu(converter: Any, op: Any) -> Any:
    """PRELU; with one slope for each channel it stays one operator, which layouts pass through."""
    data, slopes = (converter.get_tensor_expr(tensor) for tensor in converter.get_input_tensors(op))
    build, shape = Builder(converter), shape_of(slopes)
    if shape and math.prod(shape) == shape[-1] == shape_of(data)[-1]:
        return relax.op.nn.prelu(data, build.reshape(slopes, [shape[-1]]), axis=len(shape_of(data)) - 1)
    return build.where(build.greater_equal(data, 0), data, build.multiply(data, slopes))


TRANSLATIONS: dict[str, Callable[[Any, Any], Any]] = {"PRELU": _prelu}
