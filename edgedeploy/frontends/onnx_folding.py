"""ONNX models with everything computed that does not depend on the inputs' values."""

from __future__ import annotations

import graphlib
import math
from collections.abc import Iterable, Sequence

import numpy as np
import onnx
import onnx.compose
import onnx.inliner
import onnx.shape_inference
from onnx import TensorProto, helper, numpy_helper

from edgedeploy.errors import ModelError, last_line
from edgedeploy.frontends.onnx_functions import (
    ONNX_DOMAINS,
    Shapes,
    opset_of,
    replace_nodes,
    title_of,
    write_out_functions,
)
from edgedeploy.frontends.onnx_loops import unroll_loops
from edgedeploy.onnxruntime_session import cpu_session

# What folding may add to a model, in bytes: shapes and small tables, not expanded weights.
_MOST_BYTES = 1 << 26

# Each round folds what the shapes of the one before made known. Networks need two or three.
_MOST_ROUNDS = 32

# Of a tensor, and of a tensor that can be a shape or the indices of some.
_MOST_VALUES, _MOST_DIMENSIONS = 2**31 - 1, 2**16

# Types of numbers.
_DTYPES = set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED, TensorProto.STRING}

# Of a weight in bytes: whose values shapes do not depend on.
_LARGE = 1 << 10

# They say that a network is quantised, or give other values each time.
_KEPT = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}

# Domains of operators that TVM's importer knows, with ONNX's own two names.
DOMAINS = (*ONNX_DOMAINS, "com.microsoft")


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that computes the same, with constants in the place of all that inputs do not change.

    Functions are inlined, also those of ONNX's own that nobody translates, and so are shapes of known tensors and `If`
    with a known condition; nodes come in the order of their work, each with a name, and those that nothing needs are
    gone.

    Args:
        model: with inputs of fixed shapes; it is changed in place where that can be done.

    Raises:
        ModelError: values are missing, made twice or depend on themselves, or a constant cannot be computed.
    """
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    graph = model.graph
    _make_dense(graph)
    for weight in graph.initializer:
        _check_weight(weight)
    _sort(graph)
    budget = _MOST_BYTES
    for _ in range(_MOST_ROUNDS):
        _drop_unused(graph)
        _constants_to_weights(graph)
        shapes = _shapes(model)
        written = write_out_functions(model, shapes) or unroll_loops(model, shapes)
        spent = 0 if written else _fold(model, shapes, budget)
        budget -= spent
        if _inline_branches(graph) or written:
            _sort(graph)
        elif not spent:
            break
    for node in graph.node:
        node.name = node.name or next(filter(None, node.output))
    return model


def _check_weight(weight: onnx.TensorProto) -> None:
    """Refuse a weight whose values are not those that its type and shape ask for."""
    known = weight.data_type in _DTYPES
    try:
        if known and min(weight.dims, default=1) >= 0 and numpy_helper.to_array(weight).shape == tuple(weight.dims):
            return
    except Exception as error:  # numpy says what does not fit
        raise ModelError(f"weight {weight.name!r} is malformed", why=last_line(error)) from error
    raise ModelError(f"weight {weight.name!r} is malformed", why=f"type {weight.data_type}, shape {list(weight.dims)}")


def _make_dense(graph: onnx.GraphProto) -> None:
    """Turn sparse weights into plain ones."""
    graph.initializer.extend(_dense(weight, weight.values.name) for weight in graph.sparse_initializer)
    del graph.sparse_initializer[:]


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
                raise ModelError(f"value {name!r} is made twice", why="names of values are to be used once")
            makers[name] = index
    reads = [_reads(node) for node in graph.node]
    for node, names in zip(graph.node, reads, strict=True):
        for name in names - known - makers.keys():
            raise ModelError(f"nothing makes value {name!r}", why=f"node {title_of(node)!r} reads it")
    if any(makers.get(name, -1) >= index for index, names in enumerate(reads) for name in names):
        before = {index: {makers[name] for name in names if name in makers} for index, names in enumerate(reads)}
        try:
            order = list(graphlib.TopologicalSorter(before).static_order())
        except graphlib.CycleError as error:
            stuck = title_of(graph.node[error.args[1][0]])
            raise ModelError(f"node {stuck!r} depends on itself", why="the graph has a cycle") from error
        replace_nodes(graph, [graph.node[index] for index in order])
    for value in graph.output:
        if value.name not in makers.keys() | known:
            raise ModelError(f"nothing makes output {value.name!r}")


def _reads(node: onnx.NodeProto) -> set[str]:
    """The values that a node needs, those that its branches take from around them included."""
    names = set(filter(None, node.input))
    for branch in _branches(node):
        inside = {value.name for value in [*branch.input, *branch.initializer]}
        for inner in branch.node:
            names |= _reads(inner) - inside
            inside |= set(inner.output)
        names |= {value.name for value in branch.output} - inside
    return names


def _branches(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    return (attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH)


def _constants_to_weights(graph: onnx.GraphProto) -> None:
    """Turn `Constant` nodes of every form into weights."""
    constants = [node for node in graph.node if node.op_type == "Constant" and node.domain in ONNX_DOMAINS]
    if not constants:
        return
    graph.initializer.extend(_constant(node) for node in constants)
    _remove(graph, {node.output[0] for node in constants})


def _remove(graph: onnx.GraphProto, outputs: set[str]) -> None:
    """Remove the nodes that make nothing but these values."""
    replace_nodes(graph, [node for node in graph.node if not outputs.issuperset(filter(None, node.output))])


def _constant(node: onnx.NodeProto) -> onnx.TensorProto:
    name = node.output[0]
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if attribute.name == "value":
            tensor = TensorProto()
            tensor.CopyFrom(value)
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


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Remove nodes and weights that no output needs, and optional outputs at the end of a node that nobody reads."""
    needed, kept = {value.name for value in graph.output}, []
    for node in reversed(graph.node):
        if needed.isdisjoint(node.output):
            continue
        while node.output[-1] not in needed:
            del node.output[-1]
        needed |= _reads(node)
        kept.append(node)
    if len(kept) < len(graph.node):
        replace_nodes(graph, kept[::-1])
    if any(weight.name not in needed for weight in graph.initializer):
        for index in reversed(range(len(graph.initializer))):
            if graph.initializer[index].name not in needed:
                del graph.initializer[index]


def _shapes(model: onnx.ModelProto) -> Shapes:
    """Type and shape of each value whose shape is known.

    ONNX's own inference is asked node by node: over a whole model it makes a dimension for every value that a tensor
    claims to have, where that is taken for a shape.
    """
    graph = model.graph
    found: Shapes = {weight.name: (weight.data_type, list(weight.dims)) for weight in graph.initializer}
    small = {weight.name: weight for weight in graph.initializer if weight.ByteSize() <= _LARGE}
    opset = opset_of(model)
    for value in graph.input:
        _note(found, value.name, value.type)
    for node in graph.node:
        names = set(filter(None, node.input)) & found.keys()
        if any(_is_no_shape(found[name]) for name in names):
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, opset, "")
            types = {name: helper.make_tensor_type_proto(*found[name]) for name in names}
            data = {name: small[name] for name in names & small.keys()}
            inferred = onnx.shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=[*_opsets(model)]
            )
        except Exception:  # unknown, or malformed: whoever imports it says where
            continue
        for name, kind in inferred.items():
            _note(found, name, kind)
    return found


def _note(found: Shapes, name: str, kind: onnx.TypeProto) -> None:
    """Remember a type, if it is a tensor's of known shape that a memory could hold."""
    tensor = kind.tensor_type
    shape = [dimension.dim_value for dimension in tensor.shape.dim]
    known = tensor.HasField("shape") and all(dimension.HasField("dim_value") for dimension in tensor.shape.dim)
    if known and tensor.elem_type in _DTYPES and min(shape, default=1) >= 0 and math.prod(shape) <= _MOST_VALUES:
        found[name] = (tensor.elem_type, shape)


def _is_no_shape(value: tuple[int, list[int]]) -> bool:
    """Whether these are integers like those of a shape, but more than any shape has."""
    kind, shape = value
    return kind == TensorProto.INT64 and len(shape) == 1 and shape[0] > _MOST_DIMENSIONS


def _opsets(model: onnx.ModelProto) -> list[onnx.OperatorSetIdProto]:
    return [entry for entry in model.opset_import if entry.domain in ONNX_DOMAINS]


def _fold(model: onnx.ModelProto, shapes: Shapes, budget: int) -> int:
    """Compute the nodes that no input reaches; returns the bytes of what they became."""
    graph = model.graph
    constants = {weight.name: weight for weight in graph.initializer}
    empty = [value.name for value in graph.input if _is_empty(value, shapes)]
    constants |= {name: _empty(name, *shapes[name]) for name in empty}
    known = set(constants)
    given: list[onnx.TensorProto] = []
    computed: list[onnx.NodeProto] = []
    spent = 0
    for node in graph.node:
        size = _bytes(node, shapes)
        if node.op_type in _KEPT | _RANDOM or node.domain not in ONNX_DOMAINS or size is None or spent + size > budget:
            continue
        value = _shape_of(node, shapes)
        if value is not None:
            given.append(numpy_helper.from_array(value, node.output[0]))
            constants[node.output[0]] = given[-1]
        elif any(_branches(node)) or not _reads(node) <= known:
            continue
        else:
            computed.append(node)
        known |= set(filter(None, node.output))
        spent += size
    if given or computed:
        results = [name for node in computed for name in node.output if name]
        values = _computed(model, computed, constants, results)
        _remove(graph, {value.name for value in given} | set(results))
        graph.initializer.extend([*given, *values])
    return spent


def _is_empty(value: onnx.ValueInfoProto, shapes: Shapes) -> bool:
    """Whether an input has no values, so that they are known."""
    return value.name in shapes and 0 in shapes[value.name][1]


def _empty(name: str, kind: int, shape: list[int]) -> onnx.TensorProto:
    return numpy_helper.from_array(np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind)), name)


def _bytes(node: onnx.NodeProto, shapes: Shapes) -> int | None:
    """How many bytes a node's outputs take, or None if that is not known."""
    total = 0
    for name in filter(None, node.output):
        if name not in shapes:
            return None
        kind, shape = shapes[name]
        total += math.prod(shape) * helper.tensor_dtype_to_np_dtype(kind).itemsize
    return total


def _shape_of(node: onnx.NodeProto, shapes: Shapes) -> np.ndarray | None:
    """What `Shape` and `Size` give for a tensor of known shape."""
    if node.op_type not in ("Shape", "Size") or not node.input or node.input[0] not in shapes:
        return None
    _, shape = shapes[node.input[0]]
    if node.op_type == "Size":
        return np.array(math.prod(shape), np.int64)
    part = {attribute.name: attribute.i for attribute in node.attribute}
    return np.array(shape[part.get("start", 0) : part.get("end")], np.int64)


def _computed(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    constants: dict[str, onnx.TensorProto],
    results: Sequence[str],
) -> list[onnx.TensorProto]:
    """The values of nodes that read constants only, by onnxruntime."""
    if not nodes:
        return []
    read = {name for node in nodes for name in node.input if name in constants}
    outputs = [onnx.ValueInfoProto(name=name) for name in results]
    part = helper.make_graph(nodes, "constants", [], outputs, [constants[name] for name in sorted(read)])
    try:
        runnable = helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version)
        values = cpu_session(runnable.SerializeToString()).run(list(results), {})
    except Exception as error:
        first = ", ".join(sorted({node.op_type for node in nodes}))
        raise ModelError(
            "constants of the network cannot be computed", why=f"onnxruntime, of {first}: {last_line(error)}"
        ) from error
    return [numpy_helper.from_array(np.asarray(value), name) for value, name in zip(values, results, strict=True)]


def _inline_branches(graph: onnx.GraphProto) -> bool:
    """Put the branch that is taken in the place of each `If` whose condition is known; whether there was one."""
    constants = {weight.name: weight for weight in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    found = False
    for number, node in enumerate(graph.node):
        if node.op_type != "If" or not node.input or node.input[0] not in constants:
            nodes.append(node)
            continue
        found = True
        wanted = "then_branch" if numpy_helper.to_array(constants[node.input[0]]).any() else "else_branch"
        branch = next((attribute.g for attribute in node.attribute if attribute.name == wanted), None)
        if branch is None or len(branch.output) != len(node.output):
            raise ModelError(f"node {title_of(node)!r} is malformed", why=f"operator If needs a fitting {wanted}")
        inlined = onnx.compose.add_prefix_graph(branch, f"{title_of(node)}/{number}/", rename_edges=True)
        nodes.extend(inlined.node)
        graph.initializer.extend(inlined.initializer)
        names = zip(inlined.output, node.output, strict=True)
        nodes.extend(helper.make_node("Identity", [inside.name], [outside]) for inside, outside in names)
    if found:
        replace_nodes(graph, nodes)
    return found
