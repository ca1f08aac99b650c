"""Loops of a known number of turns, written out turn by turn."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import onnx.compose
from onnx import helper, numpy_helper

from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx_functions import ONNX_DOMAINS, Shapes, check_count, opset_of, replace_nodes, title_of

# Beyond them a network's code would grow without bounds.
_MOST_TURNS = 512


def unroll_loops(model: onnx.ModelProto, shapes: Shapes) -> bool:
    """Write out each `Loop` of a constant number of turns and each `Scan` of opset 9 and later.

    Args:
        model: changed in place; its nodes then come in no special order.
        shapes: of values, as far as they are known.

    Returns:
        Whether there was one.

    Raises:
        ModelError: a loop has more turns than can be written out, or its body does not fit it.
    """
    constants = {weight.name: weight for weight in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    found = False
    for node in model.graph.node:
        written: _Unrolled | None = None
        if node.op_type == "Loop" and node.domain in ONNX_DOMAINS:
            written = _loop(model, node, constants)
        elif node.op_type == "Scan" and node.domain in ONNX_DOMAINS:
            written = _scan(model, node, shapes)
        found |= written is not None
        nodes.extend(written.nodes if written else [node])
        check_count(len(nodes), "its loops are written out")
        model.graph.initializer.extend(written.weights if written else [])
    if found:
        replace_nodes(model.graph, nodes)
    return found


class _Unrolled:
    """The nodes and weights that stand for a loop."""

    def __init__(self, model: onnx.ModelProto, node: onnx.NodeProto, turns: int) -> None:
        if turns > _MOST_TURNS:
            raise ModelError(f"node {title_of(node)!r} has {turns} turns", why=f"at most {_MOST_TURNS} are written out")
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._name = title_of(node)
        self._opset = opset_of(model)

    def weight(self, array: np.ndarray) -> str:
        """A constant, by its name."""
        name = f"{self._name}/constant{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, operator: str, inputs: list[str], output: str, **attributes: int) -> str:
        """A node of one output, whose name is returned."""
        self.nodes.append(helper.make_node(operator, inputs, [output], name=f"{output}/{operator}", **attributes))
        return output

    def turn(self, body: onnx.GraphProto, number: int, given: list[str]) -> list[str]:
        """The names of what a turn gives, of a body to whose inputs these values are given."""
        check_count(len(self.nodes) + len(body.node), "its loops are written out")
        inner = onnx.compose.add_prefix_graph(body, f"{self._name}/turn{number}/")
        if len(inner.input) != len(given):
            raise ModelError(f"node {self._name!r} is malformed", why="its body has another number of inputs")
        for value, name in zip(inner.input, given, strict=True):
            self.node("Identity", [name], value.name)
        self.nodes.extend(inner.node)
        self.weights.extend(inner.initializer)
        return [value.name for value in inner.output]

    def stack(self, values: list[str], output: str, axis: int) -> None:
        """All turns' values along a new axis."""
        rows = []
        for number, value in enumerate(values):
            row = f"{output}/row{number}"
            if self._opset < 13:
                self.nodes.append(helper.make_node("Unsqueeze", [value], [row], axes=[axis]))
            else:
                self.node("Unsqueeze", [value, self.weight(np.array([axis], np.int64))], row)
            rows.append(row)
        self.node("Concat", rows, output, axis=axis)

    def finish(self, names: Iterator[str], values: list[str]) -> None:
        """Give values that are left in the end the names of the node's own outputs."""
        for value in values:
            if name := next(names, ""):
                self.node("Identity", [value], name)


def _loop(model: onnx.ModelProto, node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> _Unrolled | None:
    """A Loop whose number of turns is a constant and whose condition holds in all of them."""
    (body,) = [attribute.g for attribute in node.attribute if attribute.name == "body"]
    count, condition = node.input[0], node.input[1] if len(node.input) > 1 else ""
    if count not in constants or (condition and condition not in constants) or not _goes_on(body):
        return None
    turns = int(numpy_helper.to_array(constants[count]).item())
    if condition and not numpy_helper.to_array(constants[condition]).item():
        turns = 0
    states = list(node.input[2:])
    gathered: list[list[str]] = [[] for _ in body.output[1 + len(states) :]]
    if gathered and turns < 1:
        return None
    loop = _Unrolled(model, node, turns)
    holds = loop.weight(np.array(True))
    for number in range(turns):
        index = loop.weight(np.array(number, np.int64))
        _, *results = loop.turn(body, number, [index, holds, *states])
        states = results[: len(states)]
        for values, value in zip(gathered, results[len(states) :], strict=True):
            values.append(value)
    names = iter(node.output)
    loop.finish(names, states)
    for values, name in zip(gathered, names, strict=False):
        if name:
            loop.stack(values, name, 0)
    return loop


def _goes_on(body: onnx.GraphProto) -> bool:
    """Whether the condition that a Loop's body gives is the one it was given, or a constant that holds."""
    name = body.output[0].name
    makers = {output: inner for inner in body.node for output in inner.output}
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    if len(body.input) > 1 and name == body.input[1].name:
        return True
    constants = [weight for weight in body.initializer if weight.name == name]
    if name in makers and makers[name].op_type == "Constant":
        constants += [attribute.t for attribute in makers[name].attribute if attribute.name == "value"]
    return any(numpy_helper.to_array(value).all() for value in constants)


def _scan(model: onnx.ModelProto, node: onnx.NodeProto, shapes: Shapes) -> _Unrolled | None:
    """A Scan as opset 9 defines it."""
    settings = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    body, count = settings["body"], int(settings["num_scan_inputs"])
    states, scanned = list(node.input[: len(node.input) - count]), list(node.input[len(node.input) - count :])
    if opset_of(model) < 9 or not set(scanned) <= shapes.keys():
        return None
    axes = settings.get("scan_input_axes", [0] * count)
    backwards = settings.get("scan_input_directions", [0] * count)
    lengths = {shapes[name][1][axis] for name, axis in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise ModelError(f"node {title_of(node)!r} is malformed", why=f"it scans axes of {sorted(lengths)}")
    (turns,) = lengths
    gathered: list[list[str]] = [[] for _ in body.output[len(states) :]]
    if gathered and turns < 1:
        return None
    loop = _Unrolled(model, node, turns)
    for number in range(turns):
        rows = []
        for name, axis, backward in zip(scanned, axes, backwards, strict=True):
            index = loop.weight(np.array(turns - 1 - number if backward else number, np.int64))
            rows.append(loop.node("Gather", [name, index], f"{title_of(node)}/{name}/{axis}/{number}", axis=axis))
        results = loop.turn(body, number, [*states, *rows])
        states = results[: len(states)]
        for values, value in zip(gathered, results[len(states) :], strict=True):
            values.append(value)
    names = iter(node.output)
    loop.finish(names, states)
    along = settings.get("scan_output_axes", [0] * len(gathered))
    turned = settings.get("scan_output_directions", [0] * len(gathered))
    for values, name, axis, backward in zip(gathered, names, along, turned, strict=False):
        if name:
            loop.stack(values[::-1] if backward else values, name, axis)
    return loop
