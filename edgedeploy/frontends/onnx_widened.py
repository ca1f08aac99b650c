"""ONNX models in bfloat16, as float32.

bfloat16 is the upper half of float32, so weights keep their values. numpy has no such type, onnxruntime few kernels
for it on CPUs. What is computed in float32 instead is more exact than what the file asks for.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

# Attributes that name a type: of Cast, of EyeLike and random numbers, of DequantizeLinear, of Attention, of norms.
_TYPES = {"to", "dtype", "output_dtype", "softmax_precision", "stash_type"}


def widen(model: onnx.ModelProto) -> None:
    """Put float32 in the place of bfloat16, in weights, types and casts; the model is changed in place."""
    _widen_graph(model.graph)
    for function in model.functions:
        _widen_nodes(function.node)


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        _widen_type(value.type)
    _widen_nodes(graph.node)


def _widen_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name in _TYPES and attribute.i == TensorProto.BFLOAT16:
                attribute.i = TensorProto.FLOAT
            for tensor in (attribute.t, attribute.sparse_tensor.values):
                _widen_tensor(tensor)
            for graph in (attribute.g, *attribute.graphs):
                _widen_graph(graph)


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.BFLOAT16:
        with suppress(Exception):  # whoever reads a malformed weight says what is wrong with it
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))


def _widen_type(kind: onnx.TypeProto) -> None:
    for inner in (kind.tensor_type, kind.sparse_tensor_type):
        if inner.elem_type == TensorProto.BFLOAT16:
            inner.elem_type = TensorProto.FLOAT
    for field in ("sequence_type", "optional_type"):
        if kind.HasField(field):
            _widen_type(getattr(kind, field).elem_type)
