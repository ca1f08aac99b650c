"""The operators of tails, by ONNX's name or that of a custom operator."""

from __future__ import annotations

from edgedeploy.model.tail.operators import elementwise, shaping, suppression
from edgedeploy.model.tail.operators.operator import Operator

OPERATORS: dict[str, Operator] = {**elementwise.OPERATORS, **shaping.OPERATORS, **suppression.OPERATORS}
