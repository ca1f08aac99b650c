"""The operators of tails, by ONNX's name or that of a custom operator."""

from __future__ import annotations

from edgedeploy.tail.operators import elementwise, shaping, suppression
from edgedeploy.tail.operators.operator import Operator

OPERATORS: dict[str, Operator] = {
    **elementwise.OPERATORS,
    **shaping.OPERATORS,
    **suppression.OPERATORS,
}
