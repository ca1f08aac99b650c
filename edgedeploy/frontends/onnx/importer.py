"""TVM's ONNX importer, with our own translations of operators before its own."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map, onnx_input

from edgedeploy.compile.ir.expressions import constant
from edgedeploy.errors import ModelError
from edgedeploy.frontends.importing import failure
from edgedeploy.frontends.onnx.fused import DOMAIN
from edgedeploy.frontends.onnx.inputs import hints_to_set
from edgedeploy.frontends.onnx.nodes import ONNX_DOMAINS, opset_of
from edgedeploy.frontends.onnx.operators import (
    elementwise,
    indexing,
    normalisation,
    quantised,
    recurrent,
    resize,
    sequences,
    shaping,
    windows,
)
from edgedeploy.frontends.translation import Builder, Translation

_OPERATORS = (elementwise, indexing, normalisation, quantised, recurrent, resize, sequences, shaping, windows)
TRANSLATIONS: dict[str, Translation] = {
    name: translation for module in _OPERATORS for name, translation in module.TRANSLATIONS.items()
}

# Which version of each operator is understood: a newer one may mean something else under the same name. Those of this
# table were read in ONNX's Changelog.md: they took more types, or an attribute that is translated.
_OF_NEWER_OPSETS = {
    22: "Acos Acosh Asin Asinh Atan Atanh AveragePool Bernoulli Conv ConvTranspose Cos Cosh DeformConv Det Dropout Elu "
    "EyeLike GRU GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample HardSigmoid HardSwish InstanceNormalization "
    "LSTM LpNormalization LpPool MaxPool MaxRoiPool MaxUnpool Mish Multinomial NegativeLogLikelihoodLoss RNN "
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike RoiAlign Round Selu Sin Sinh Softplus Softsign Tan "
    "ThresholdedRelu",
    23: "RMSNormalization RotaryEmbedding",
    24: "SplitToSequence Swish TensorScatter TopK",
    25: "Attention Cast CastLike Constant ConstantOfShape DequantizeLinear Flatten Identity If Loop Pad QuantizeLinear "
    "Reshape Scan Shape Size Squeeze Transpose Unsqueeze",
    26: "BitCast CumProd",
    27: "CausalConvWithState LinearAttention Range",
    28: "BitShift Celu Compress DepthToSpace Einsum Mod OneHot ReduceLogSum ReduceLogSumExp SpaceToDepth SwiGLU Unique",
}

# By operator; any other is understood up to opset 21.
_NEWEST = {name: version for version, names in _OF_NEWER_OPSETS.items() for name in names.split()}

_WITHOUT = "export the network without it, or cut the network before this node"


def import_model(model: onnx.ModelProto) -> tvm.IRModule:
    """Translate a model whose inputs have fixed shapes."""
    types = {value.name: value.type.tensor_type for value in model.graph.input}
    shapes = {name: [dimension.dim_value for dimension in kind.shape.dim] for name, kind in types.items()}
    dtypes = {name: onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type).name for name, kind in types.items()}
    importer = _Importer(shapes, dtypes, model.graph)
    try:
        return importer.from_onnx(model.graph, opset_of(model))
    except Exception:
        with suppress(Exception):  # if no block was begun yet
            importer.bb._end_block()  # TVM would warn of it, below our own message
        raise


class _Importer(ONNXGraphImporter):
    """Adds our translations, and names the node in every failure."""

    def __init__(self, shapes: dict[str, list[int]], dtypes: dict[str, str], graph: onnx.GraphProto) -> None:
        super().__init__(shapes, dtypes)
        self._graph = graph

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Refuse the first operator that nobody translates, naming its node."""
        known = _get_convert_map().keys() | TRANSLATIONS.keys() | {"If"}
        for node in graph.node:
            if node.op_type not in known or node.domain not in (*ONNX_DOMAINS, DOMAIN):
                domain = f"{node.domain}::" if node.domain else ""
                raise ModelError(
                    f"operator {domain}{node.op_type} is not supported",
                    why=f"node {node.name!r} needs it",
                    hints=[_WITHOUT],
                )
            self._check_version(node)

    def _check_version(self, node: onnx.NodeProto) -> None:
        newest = _NEWEST.get(node.op_type, 21)
        if node.domain not in ONNX_DOMAINS or self.opset <= newest or not onnx.defs.has(node.op_type):
            return
        version = onnx.defs.get_schema(node.op_type, self.opset).since_version
        if version > newest:
            raise ModelError(
                f"operator {node.op_type} of opset {version} is not supported",
                why=f"node {node.name!r} needs it; {node.op_type} is known as of opset {newest}",
                hints=[f"export the network with opset {newest}"],
            )

    def theirs(self, operator: str, inputs: list[Any], attr: dict[str, Any], opset: int | None = None) -> Any:
        """An operator translated by TVM's own importer, in this opset or another one."""
        return super()._convert_operator(operator, onnx_input(inputs), attr, opset or self.opset)

    def _convert_operator(self, op_name: str, inputs: Any, attr: dict[str, Any], opset: int) -> Any:
        translation = TRANSLATIONS.get(op_name)
        try:
            made = translation(Builder(self), list(inputs), attr) if translation else None
            made = self.theirs(op_name, list(inputs), attr) if made is None else made
            made = self.bb.normalize(made) if isinstance(made, relax.Expr) else made
            return _without_code(made)
        except Exception as error:
            name = str(attr.get("tvm_custom", {}).get("name"))
            raise failure(op_name, name, error, [*hints_to_set(self._graph, name), _WITHOUT]) from error


def _without_code(made: Any) -> Any:
    """A tensor without values as a constant; anything else as it is."""
    shape = getattr(getattr(made, "ty", None), "shape", None)
    sizes = [int(size) if isinstance(size, tvm.tirx.IntImm) else None for size in shape] if shape is not None else []
    return constant(np.zeros(sizes, str(made.ty.dtype))) if 0 in sizes and None not in sizes else made
