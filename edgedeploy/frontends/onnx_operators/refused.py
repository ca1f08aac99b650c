"""Operators whose results are as large as the values of their inputs make them."""

from __future__ import annotations

from typing import Any

from edgedeploy.compile.expressions import constant_value
from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx_operators.translation import Translation


def _refused(what: str, *hints: str) -> Translation:
    def translate(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
        if all(value is None or constant_value(value) is not None for value in inputs):
            return None
        raise ModelError(
            f"{what} depends on the input's values, and packages have tensors of fixed shapes",
            hints=[*hints, "cut the network before this node"],
        )

    return translate


TRANSLATIONS: dict[str, Translation] = {
    "NonMaxSuppression": _refused(
        "how many boxes it keeps",
        "export the network without non-maximum suppression, and do that after `edgedeploy run`, as the demos do",
    ),
    "NonZero": _refused("how many positions it finds"),
    "Unique": _refused("how many values it finds"),
}
