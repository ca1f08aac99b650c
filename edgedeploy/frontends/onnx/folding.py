"""ONNX models with everything computed that does not depend on the inputs' values."""

from __future__ import annotations

import graphlib
import math
from copy import deepcopy

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgedeploy.errors import ModelError, last_line
from edgedeploy.frontends.onnx.inlining import inlined, written_out
from edgedeploy.frontends.onnx.nodes import ONNX_DOMAINS, Part, check_count, reads, replace_nodes, rewrite, title_of
from edgedeploy.frontends.onnx.quantised import between_pairs
from edgedeploy.frontends.onnx.values import DTYPES, KnownValues

_MOST_BYTES = 1 << 26  # what folding may add to a model, in bytes: shapes and small tables, not expanded weights
_MOST_ROUNDS = 256  # each round writes out branches, loops and functions whose values the next one knows


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model of fixed shapes that computes the same, with constants for everything that inputs do not change.

    A model's own functions are inlined first, and sparse weights and `Constant` nodes become plain weights. Each round
    then computes constants, which decide about the next rewrites: ONNX's functions, loops and branches, in any order.
    Moving operators get their pairs last, when scales are weights and nodes are in order. Nodes come in topological
    order, each with a name; unused ones are removed. The model may be changed in place.
    """
    model = inlined(model)
    graph = model.graph
    graph.initializer.extend(_dense(weight, weight.values.name) for weight in graph.sparse_initializer)
    del graph.sparse_initializer[:]
    for weight in graph.initializer:
        _check_weight(weight)
    _sort(graph)
    budget = _MOST_BYTES
    for _ in range(_MOST_ROUNDS):
        check_count(len(graph.node))
        drop_unused(graph)
        rewrite(graph, _constants)
        known = KnownValues(model, budget)
        known.fold()
        budget -= known.spent
        if not rewrite(graph, written_out(model, known.shapes)):
            break
        _sort(graph)
    drop_unused(graph)
    rewrite(graph, between_pairs(graph))
    for node in graph.node:
        node.name = node.name or next(filter(None, node.output))
    return model


def _check_weight(weight: onnx.TensorProto) -> None:
    """Refuse a weight whose values are not those that its type and shape ask for."""
    known = weight.data_type in DTYPES
    try:
        if known and min(weight.dims, default=1) >= 0 and numpy_helper.to_array(weight).shape == tuple(weight.dims):
            return
    except Exception as error:  # numpy's error states what does not fit
        raise ModelError(f"weight {weight.name!r} is malformed", why=last_line(error)) from error
    raise ModelError(f"weight {weight.name!r} is malformed", why=f"type {weight.data_type}, shape {list(weight.dims)}")


def _dense(sparse: onnx.SparseTensorProto, name: str) -> onnx.TensorProto:
    """A sparse tensor as a plain one; its indices are flat, or one row for each value."""
    shape = list(sparse.dims)
    for part in (sparse.values, sparse.indices):
        _check_weight(part)
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    count = math.prod(shape)
    if min(shape, default=1) < 0 or count * values.itemsize > _MOST_BYTES:
        raise ModelError(f"sparse weight {name!r} cannot be imported", why=f"its shape is {shape}")
    if indices.ndim == 2:
        indices = indices @ np.array([math.prod(shape[axis + 1 :]) for axis in range(len(shape))], np.int64)
    if indices.shape != values.shape or ((indices < 0) | (indices >= count)).any():
        raise ModelError(f"sparse weight {name!r} is malformed", why="its indices do not fit its values and shape")
    dense = np.zeros(count, values.dtype)
    dense[indices] = values
    return numpy_helper.from_array(dense.reshape(shape), name)


def _sort(graph: onnx.GraphProto) -> None:
    """Bring nodes into an order in which each comes after those that it reads from."""
    makers: dict[str, int] = {}
    known = {value.name for value in [*graph.input, *graph.initializer]}
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in makers or name in known:
                raise ModelError(f"value {name!r} has two sources", why="only one node or weight can have this name")
            makers[name] = index
    read = [reads(node) for node in graph.node]
    for node, names in zip(graph.node, read, strict=True):
        for name in names - known - makers.keys():
            raise ModelError(f"value {name!r} has no source", why=f"node {title_of(node)!r} reads it")
    if any(makers.get(name, -1) >= index for index, names in enumerate(read) for name in names):
        before = {index: {makers[name] for name in names if name in makers} for index, names in enumerate(read)}
        try:
            order = list(graphlib.TopologicalSorter(before).static_order())
        except graphlib.CycleError as error:
            stuck = title_of(graph.node[error.args[1][0]])
            raise ModelError(f"node {stuck!r} depends on itself", why="the graph has a cycle") from error
        replace_nodes(graph, [graph.node[index] for index in order])
    for value in graph.output:
        if value.name not in makers.keys() | known:
            raise ModelError(f"output {value.name!r} has no source")


def _constants(node: onnx.NodeProto, number: int) -> Part | None:
    """Turns `Constant` nodes of every form into weights."""
    return ([], [constant_of(node)]) if node.op_type == "Constant" and node.domain in ONNX_DOMAINS else None


def constant_of(node: onnx.NodeProto) -> onnx.TensorProto:
    """The tensor of a `Constant` node."""
    name = node.output[0]
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if attribute.name == "value":
            tensor = deepcopy(value)
            tensor.name = name
            _check_weight(tensor)
            return tensor
        if attribute.name == "sparse_value":
            return _dense(value, name)
        if attribute.name in ("value_float", "value_floats"):
            return numpy_helper.from_array(np.array(value, np.float32), name)
        if attribute.name in ("value_int", "value_ints"):
            return numpy_helper.from_array(np.array(value, np.int64), name)
    raise ModelError("operator Constant cannot be imported", why=f"node {title_of(node)!r} has no value of numbers")


def drop_unused(graph: onnx.GraphProto) -> None:
    """Remove nodes and weights that no output needs, and trailing optional outputs that no node reads."""
    needed, kept = {value.name for value in graph.output}, []
    for node in reversed(graph.node):
        if needed.isdisjoint(node.output):
            continue
        while node.output[-1] not in needed and not _counts_outputs(node):
            del node.output[-1]
        needed |= reads(node)
        kept.append(node)
    if len(kept) < len(graph.node):
        replace_nodes(graph, kept[::-1])
    if any(weight.name not in needed for weight in graph.initializer):
        for index in reversed(range(len(graph.initializer))):
            if graph.initializer[index].name not in needed:
                del graph.initializer[index]


def _counts_outputs(node: onnx.NodeProto) -> bool:
    """Whether a node's number of outputs decides what it computes, as for Split."""
    if node.domain not in ONNX_DOMAINS or not onnx.defs.has(node.op_type):
        return False
    outputs = onnx.defs.get_schema(node.op_type).outputs
    return bool(outputs) and outputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
