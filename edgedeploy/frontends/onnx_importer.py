"""TVM's ONNX importer, with our own translations of operators before its own."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, onnx_input

from edgedeploy.errors import ModelError, last_line
from edgedeploy.frontends.onnx_folding import DOMAINS
from edgedeploy.frontends.onnx_operators import TRANSLATIONS


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

        known = _get_convert_map().keys() | TRANSLATIONS.keys() | {"If"}
        for node in graph.node:
            if node.op_type not in known or node.domain not in DOMAINS:
                domain = f" of domain {node.domain!r}" if node.domain else ""
                raise ModelError(
                    f"operator {node.op_type}{domain} is not supported",
                    why=f"node {node.name!r} needs it",
                    hints=["export the network without it, or cut the network before this node"],
                )

    def theirs(self, operator: str, inputs: list[Any], attr: dict[str, Any], opset: int | None = None) -> Any:
        """What TVM's own importer makes of an operator, of this opset or of another one."""
        return super()._convert_operator(operator, onnx_input(inputs), attr, opset or self.opset)

    def convert(self, operator: str, inputs: list[Any], attr: dict[str, Any]) -> Any:
        """What our translation makes of an operator, or TVM's own importer."""
        translation = TRANSLATIONS.get(operator)
        translated = translation(self, inputs, attr) if translation else None
        return self.theirs(operator, inputs, attr) if translated is None else translated

    def _convert_operator(self, op_name: str, inputs: Any, attr: dict[str, Any], opset: int) -> Any:
        try:
            made = self.convert(op_name, list(inputs), attr)
            return self.bb.normalize(made) if isinstance(made, relax.Expr) else made
        except Exception as error:
            why = str(error) if isinstance(error, ModelError) else last_line(error)
            raise ModelError(
                f"operator {op_name} cannot be imported",
                why=f"node {attr.get('tvm_custom', {}).get('name')!r}: {why}",
                hints=["export the network without it, or cut the network before this node"],
            ) from error
