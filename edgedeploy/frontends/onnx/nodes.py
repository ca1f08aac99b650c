"""Nodes of ONNX graphs: how they are read, replaced by others, and written out as simpler operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import onnx
import onnx.compose
from onnx import helper, numpy_helper

from edgedeploy.errors import ModelError

Shapes = dict[str, tuple[int, list[int]]]  # type and shape by value
ONNX_DOMAINS = ("", "ai.onnx")  # the names of ONNX's own operator set
MOST_NODES = 100_000  # of a network in nodes; large language models have a tenth of it

# Takes a node and its number in the graph; returns the nodes and weights that replace it, or None to keep it.
Part = tuple[list[onnx.NodeProto], list[onnx.TensorProto]]
Rule = Callable[[onnx.NodeProto, int], Part | None]


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """The values of a node's attributes by name."""
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def branches(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    """The graphs inside a node."""
    return (attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH)


def every_node(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes, and those of the graphs inside them."""
    for node in nodes:
        yield node
        for branch in branches(node):
            yield from every_node(branch.node)


def reads(node: onnx.NodeProto) -> set[str]:
    """The values that a node needs, including those that its branches take from outside."""
    names = set(filter(None, node.input))
    for branch in branches(node):
        inside = {value.name for value in [*branch.input, *branch.initializer]}
        for inner in branch.node:
            names |= reads(inner) - inside
            inside |= set(inner.output)
        names |= {value.name for value in branch.output} - inside
    return names


def readers_of(model: onnx.ModelProto) -> dict[str, list[onnx.NodeProto]]:
    """The nodes that read each tensor."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return readers


def title_of(node: onnx.NodeProto) -> str:
    """The name of a node in messages, with which the names of its parts begin."""
    return node.name or ", ".join(node.output)


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operator set that a model uses; 1 if it states none."""
    return next((entry.version for entry in model.opset_import if entry.domain in ONNX_DOMAINS), 1)


def replace_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Give a graph other nodes, which may be its own."""
    copied = [deepcopy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(copied)


def rewrite(graph: onnx.GraphProto, *rules: Rule) -> bool:
    """Replace each node by the result of the first rule that does not return None; whether one was replaced.

    The nodes of the graph, which is changed in place, may then be out of order.
    """
    nodes: list[onnx.NodeProto] = []
    found = False
    for number, node in enumerate(graph.node):
        made = next((made for rule in rules if (made := rule(node, number)) is not None), None)
        if made is None:
            nodes.append(node)
            continue
        found = True
        nodes.extend(made[0])
        graph.initializer.extend(made[1])
        check_count(len(nodes))
    if found:
        replace_nodes(graph, nodes)
    return found


def check_count(nodes: int) -> None:
    """Refuse a network of more nodes than can be imported."""
    if nodes > MOST_NODES:
        raise ModelError(
            f"the network has {nodes:,} nodes when its functions and loops are written out",
            why=f"at most {MOST_NODES:,} are imported",
            hints=["export the network without functions and loops inside others"],
        )


class UnknownShapeError(Exception):
    """Type and shape of an input are not known yet."""


class NodeBuilder:
    """Writes a node out as other operators."""

    def __init__(self, node: onnx.NodeProto, number: int, shapes: Shapes) -> None:
        self.title, self.operator = title_of(node), node.op_type
        self.inputs = list(node.input)
        self.attributes = attributes_of(node)
        self.outputs = list(node.output)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._shapes, self._prefix = shapes, f"{self.title}/{number}/"

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator of ONNX with one output, whose name it returns."""
        return self.several(1, operator, *inputs, **attributes)[0]

    def several(self, count: int, operator: str, *inputs: str, **attributes: Any) -> list[str]:
        """Add an operator with `count` outputs, whose names it returns."""
        names = [f"{self._prefix}~{len(self.nodes)}.{place}" for place in range(count)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names

    def inline(self, graph: onnx.GraphProto, inputs: Sequence[str] = (), prefix: str = "") -> list[str]:
        """Add the nodes of a graph with these inputs and a prefix of names; returns the names of its outputs."""
        check_count(len(self.nodes) + len(graph.node))
        if len(graph.input) != len(inputs):
            raise ModelError(f"node {self.title!r} is malformed", why="its body has another number of inputs")
        inner = onnx.compose.add_prefix_graph(graph, self._prefix + prefix)
        for value, name in zip(inner.input, inputs, strict=True):
            self.nodes.append(helper.make_node("Identity", [name], [value.name]))
        self.nodes.extend(inner.node)
        self.weights.extend(inner.initializer)
        return [value.name for value in inner.output]

    def weight(self, values: Any, like: str = "", dtype: str = "int64") -> str:
        """Add a constant of the type of the input `like`, or of a dtype."""
        name = f"{self._prefix}~w{len(self.weights)}"
        kind = helper.tensor_dtype_to_np_dtype(self.type(like)) if like else np.dtype(dtype)
        self.weights.append(numpy_helper.from_array(np.array(values, kind), name))
        return name

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """A value in another shape."""
        return self.add("Reshape", name, self.weight(shape))

    def cast(self, name: str, kind: int = onnx.TensorProto.FLOAT) -> str:
        """A value as another type."""
        return self.add("Cast", name, to=kind)

    def shape(self, name: str) -> list[int]:
        """The shape of an input."""
        return self._known(name)[1]

    def type(self, name: str) -> int:
        """The type of an input, a `TensorProto.DataType`."""
        return self._known(name)[0]

    def _known(self, name: str) -> tuple[int, list[int]]:
        if name not in self._shapes:
            raise UnknownShapeError(name)
        return self._shapes[name]

    def optional(self, place: int) -> str:
        """The name of an input, empty if it is left out."""
        return self.inputs[place] if place < len(self.inputs) else ""

    def wants(self, place: int) -> bool:
        """Whether the node has an output at this place."""
        return place < len(self.outputs) and bool(self.outputs[place])

    def pop_text(self, name: str) -> str:
        """Remove an attribute of text and return it; empty without it."""
        value = self.attributes.pop(name, b"")
        return value.decode() if isinstance(value, bytes) else str(value)


# Returns the node's outputs, or None if it cannot write out this node.
Writer = Callable[[NodeBuilder], Sequence[str] | None]


def part_of(node: onnx.NodeProto, number: int, shapes: Shapes, writers: Mapping[str, Writer]) -> Part | None:
    """What a writer makes of the node of this number in its graph; None without a writer, or (yet) a shape."""
    writer = writers.get(node.op_type)
    build = NodeBuilder(node, number, shapes)
    try:
        made = writer(build) if writer else None
    except UnknownShapeError:
        return None
    if made is None:
        return None
    named = dict(zip(made, node.output, strict=False))
    for inner in build.nodes:
        for names in (inner.input, inner.output):
            for place, name in enumerate(names):
                names[place] = named.get(name, name) or name
    return build.nodes, build.weights
