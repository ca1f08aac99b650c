"""Cuts an ONNX graph where sizes begin to depend on data: the part before is compiled, the rest is a tail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy

import onnx
from onnx import helper, numpy_helper

from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx.folding import constant_of, drop_unused
from edgedeploy.frontends.onnx.nodes import ONNX_DOMAINS, branches, opset_of, reads, replace_nodes, title_of
from edgedeploy.model.tail.program import OPERATORS, Attribute, Block, Constant, Node

# Operators whose results' sizes depend on the values of their inputs, from this one on.
_BY_VALUES = {"NonMaxSuppression": 0, "NonZero": 0, "Compress": 1, "Unique": 0}
# The same where these inputs are not constant.
_BY_SIZES = {"ConstantOfShape": 0, "Expand": 1, "Range": 0, "Reshape": 1, "Slice": 1, "Tile": 1, "TopK": 1}

# Operators whose results jump where their inputs barely change, so that outputs of the compiled part could not be
# compared with a reference's, and those that only move values. They go into the tail if nothing else needs them.
_MOVED = {
    "And", "ArgMax", "ArgMin", "Cast", "Concat", "Equal", "Flatten", "Gather", "GatherElements", "GatherND", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Not", "Or", "Reshape", "Slice", "Split", "Squeeze", "TopK",
    "Transpose", "Unsqueeze", "Where", "Xor",
}  # fmt: skip

_SINCE = {"Softmax": 13}  # operators that mean something else before this opset


def cut(model: onnx.ModelProto) -> tuple[onnx.ModelProto, Block] | None:
    """A model of `folding.folded` in two parts: a model to compile, and a tail, which reads its outputs.

    None if no size in it depends on data.
    """
    nodes = list(model.graph.node)
    behind, certain = _behind(nodes, {weight.name for weight in model.graph.initializer})
    if not behind:
        return None
    for place in sorted(behind):
        if why := _obstacle(nodes[place], opset_of(model)):
            if not certain:
                return None  # the importer may know what the sizes are
            raise ModelError(
                f"what follows node {title_of(nodes[certain[0]])!r}, {nodes[certain[0]].op_type}, cannot be cut off",
                why=f"its size depends on the input's values, and {why}",
                hints=["export the network without that node, or cut the network before it"],
            )
    _move(nodes, behind, model)
    ahead = [node for place, node in enumerate(nodes) if place not in behind]
    after = [node for place, node in enumerate(nodes) if place in behind]
    outputs = [value.name for value in model.graph.output]
    # A network whose outputs are inputs or constants has them from the tail, too.
    made = {name for node in ahead for name in node.output if name}
    read = {name for node in after for name in reads(node)} | set(outputs)
    wanted = [name for node in ahead for name in node.output if name in read]
    if not made & read:
        raise ModelError(
            f"nothing is left to compile before node {title_of(after[0])!r}, {after[0].op_type}",
            why="its size depends on the input's values",
        )
    return _head(model, ahead, wanted), _block(after, outputs, model.graph.initializer)


def _behind(nodes: Sequence[onnx.NodeProto], constant: set[str]) -> tuple[set[int], list[int]]:
    """The places of nodes that produce or read sizes that depend on data, and of those that certainly cause this."""
    values: set[str] = set()
    places: set[int] = set()
    certain: list[int] = []
    for place, node in enumerate(nodes):
        sizes, deciding = (node.input[table.get(node.op_type, len(node.input)) :] for table in (_BY_SIZES, _BY_VALUES))
        begins = node.domain in ONNX_DOMAINS and not constant.issuperset(filter(None, deciding))
        if begins or not constant.issuperset(filter(None, sizes)) or not values.isdisjoint(reads(node)):
            places.add(place)
            values.update(filter(None, node.output))
        if begins:
            certain.append(place)
    return places, certain


def _obstacle(node: onnx.NodeProto, opset: int) -> str | None:
    """Why a node cannot be in a tail; None if it can."""
    inner = [each for branch in branches(node) for each in branch.node if each.op_type != "Constant"]
    known = node.op_type in OPERATORS or node.op_type == "If"
    if known and node.domain in ONNX_DOMAINS and opset >= _SINCE.get(node.op_type, 0):
        return next((why for each in inner if (why := _obstacle(each, opset))), None)
    return f"node {title_of(node)!r} after it is {node.op_type}, which is computed by compiled code only"


def _move(nodes: Sequence[onnx.NodeProto], behind: set[int], model: onnx.ModelProto) -> None:
    """Add to a tail the nodes that only it needs and that are better computed there."""
    outputs = {value.name for value in model.graph.output}
    readers = Counter(name for place, node in enumerate(nodes) if place not in behind for name in reads(node))
    for place in reversed(range(len(nodes))):
        node = nodes[place]
        if place in behind or node.op_type not in _MOVED or _obstacle(node, opset_of(model)):
            continue
        if not any(readers[name] or name in outputs for name in node.output):
            behind.add(place)
            readers.subtract(reads(node))


def _head(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> onnx.ModelProto:
    head = deepcopy(model)
    replace_nodes(head.graph, nodes)
    del head.graph.output[:]
    head.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    drop_unused(head.graph)
    return head


def _block(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], weights: Iterable[onnx.TensorProto]) -> Block:
    needed = {name for node in nodes for name in reads(node)} | set(outputs)
    constants = {weight.name: _constant(weight) for weight in weights if weight.name in needed}
    written = []
    for node in nodes:
        if node.op_type == "Constant":
            constants[node.output[0]] = _constant(constant_of(node))
        else:
            written.append(_node(node, constants))
    return Block(constants=constants, nodes=written, outputs=list(outputs))


def _node(node: onnx.NodeProto, constants: dict[str, Constant]) -> Node:
    attributes: dict[str, Attribute] = {}
    inputs = list(node.input)
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if attribute.name == "to":
            attributes["to"] = helper.tensor_dtype_to_np_dtype(value).name
        elif attribute.type == onnx.AttributeProto.TENSOR:
            inputs.append(f"{node.output[0]}/{attribute.name}")  # the value of ConstantOfShape: a further input here
            constants[inputs[-1]] = _constant(value)
        elif attribute.type != onnx.AttributeProto.GRAPH:
            plain = value.decode() if isinstance(value, bytes) else value
            attributes[attribute.name] = plain if isinstance(plain, str | int | float) else list(plain)
    if node.op_type == "Split":
        attributes["num_outputs"] = len(node.output)
    graphs = {attribute.name: attribute.g for attribute in node.attribute}
    return Node(
        name=title_of(node),
        operator=node.op_type,
        inputs=inputs,
        outputs=list(node.output),
        attributes=attributes,
        branches=[
            _block(graphs[name].node, [value.name for value in graphs[name].output], graphs[name].initializer)
            for name in ("then_branch", "else_branch")
            if name in graphs
        ],
    )


def _constant(tensor: onnx.TensorProto) -> Constant:
    return Constant.of(numpy_helper.to_array(tensor))
