"""Operators that make one value of many."""

from __future__ import annotations

from typing import Any

from edgedeploy.compile.expressions import shape_of
from edgedeploy.frontends.onnx_operators.translation import Builder, Translation, dtype_of, integers, optional


def _extreme(operator: str) -> Translation:
    """ReduceMax and ReduceMin of truth values, in int8."""

    def translate(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
        if dtype_of(inputs[0]) != "bool":
            return None
        given = list(attr["axes"]) if "axes" in attr else integers(inputs, 1)
        if given is None and optional(inputs, 1) is not None:
            return None
        if not given and attr.get("noop_with_empty_axes", 0):
            return inputs[0]
        build, rank = Builder(importer), len(shape_of(inputs[0]))
        axes = [axis % rank for axis in given or range(rank)]
        small = build.cast(inputs[0], "int8")
        return build.cast(build.reduce(operator, small, axes, keepdims=bool(attr.get("keepdims", 1))), "bool")

    return translate


def _top_k(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """TopK of opset 10, whose k is an input already."""
    return importer.theirs("TopK", inputs, attr, 11) if importer.opset == 10 else None


TRANSLATIONS: dict[str, Translation] = {
    "ReduceMax": _extreme("max"),
    "ReduceMin": _extreme("min"),
    "TopK": _top_k,
}
