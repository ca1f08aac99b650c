"""Functions, loops of known length and decided branches, written out in the graph around them.

Functions are a model's own, operators that ONNX itself defines as functions, and operators of onnxruntime's domain.
"""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import onnx.compose
import onnx.inliner
from onnx import helper, numpy_helper

from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx.fused import CONTRIB, DOMAIN, plain_attention
from edgedeploy.frontends.onnx.nodes import (
    ONNX_DOMAINS,
    Part,
    Rule,
    Shapes,
    Writer,
    attributes_of,
    body_of,
    check_count,
    copy_of,
    every_node,
    opset_of,
    title_of,
)
from edgedeploy.frontends.onnx.quantised import QUANTISED, QUANTISED_CONTRIB

# Those without a translation. Of others the translation is faster than ONNX's function.
_FUNCTIONS = {
    "Attention", "BlackmanWindow", "CausalConvWithState", "Celu", "CenterCropPad", "HammingWindow", "HannWindow",
    "LinearAttention", "NegativeLogLikelihoodLoss", "RotaryEmbedding", "SoftmaxCrossEntropyLoss", "SwiGLU", "Swish",
}  # fmt: skip

# The translation gives their first output only.
_OF_ONE_OUTPUT = {"LayerNormalization"}

# Writers by domain and operator; they come before ONNX's own function.
_WRITERS: dict[str, dict[str, Writer]] = {
    **{domain: {"Attention": plain_attention, **QUANTISED} for domain in ONNX_DOMAINS},
    DOMAIN: {**CONTRIB, **QUANTISED_CONTRIB},
}

# More would make a network's code grow without bounds.
_MOST_TURNS = 512


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model with its own functions written out, after the defaults of their attributes are filled in."""
    if not model.functions:
        return model
    functions = {(each.domain, each.name): each for each in model.functions}
    called: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    for place, nodes in [(("", ""), model.graph.node), *((key, each.node) for key, each in functions.items())]:
        calls = called[place] = Counter()
        for node in every_node(nodes):
            calls[node.domain, node.op_type] += 1
            if (function := functions.get((node.domain, node.op_type))) is not None:
                given = {attribute.name for attribute in node.attribute}
                node.attribute.extend(each for each in function.attribute_proto if each.name not in given)
    order = graphlib.TopologicalSorter({place: calls.keys() & functions.keys() for place, calls in called.items()})
    sizes: dict[tuple[str, str], int] = {}
    try:
        for place in order.static_order():
            sizes[place] = sum(count * sizes.get(each, 1) for each, count in called[place].items())
    except graphlib.CycleError as error:
        raise ModelError(f"function {error.args[1][0][1]!r} calls itself", why="it never ends") from error
    check_count(sizes["", ""])
    return onnx.inliner.inline_local_functions(model)


def functions_of(model: onnx.ModelProto, shapes: Shapes) -> Rule:
    """Writes out each operator that needs its function and whose inputs are known."""

    def rule(node: onnx.NodeProto, number: int) -> Part | None:
        needed = node.op_type in _FUNCTIONS or (node.op_type in _OF_ONE_OUTPUT and len(node.output) > 1)
        body = body_of(node, shapes, _WRITERS.get(node.domain, {}))
        if body is None and needed and node.domain in ONNX_DOMAINS:
            body = _function(model, node, shapes)
        if body is None:
            return None
        prefix = f"{title_of(node)}/{number}/"
        body = onnx.compose.add_prefix_graph(body, prefix, rename_inputs=False, rename_outputs=False)
        return list(body.node), list(body.initializer)

    return rule


def _function(model: onnx.ModelProto, node: onnx.NodeProto, shapes: Shapes) -> onnx.GraphProto | None:
    """ONNX's function of an operator, with the node's inputs and outputs; None if it is not known."""
    names = dict.fromkeys(filter(None, node.input))
    if not names.keys() <= shapes.keys():
        return None
    full, stated = copy_of(node), {attribute.name for attribute in node.attribute}
    for attribute, definition in onnx.defs.get_schema(node.op_type, opset_of(model), "").attributes.items():
        if attribute not in stated and definition.default_value.name:  # a function's body may refer to it
            full.attribute.append(definition.default_value)
    inputs = [helper.make_tensor_value_info(name, *shapes[name]) for name in names]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    # ONNX's inliner asks for the type of inputs that are left out, too.
    left_out = [helper.make_tensor_value_info("", onnx.TensorProto.FLOAT, [])]
    part = helper.make_model(
        helper.make_graph([full], "function", inputs, outputs, value_info=left_out),
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
    )
    key = (node.domain, node.op_type)
    body = onnx.inliner.inline_selected_functions(part, [key], inline_schema_functions=True).graph
    return None if any((inner.domain, inner.op_type) == key for inner in body.node) else body


def branches_of(graph: onnx.GraphProto) -> Rule:
    """Replaces each `If` whose condition is a constant by the branch that it takes."""
    constants = {weight.name: weight for weight in graph.initializer}

    def rule(node: onnx.NodeProto, number: int) -> Part | None:
        if node.op_type != "If" or not node.input or node.input[0] not in constants:
            return None
        wanted = "then_branch" if numpy_helper.to_array(constants[node.input[0]]).any() else "else_branch"
        branch = attributes_of(node).get(wanted)
        if branch is None or len(branch.output) != len(node.output):
            raise ModelError(f"node {title_of(node)!r} is malformed", why=f"operator If needs a fitting {wanted}")
        body = onnx.compose.add_prefix_graph(branch, f"{title_of(node)}/{number}/", rename_edges=True)
        names = zip(body.output, node.output, strict=True)
        copies = [helper.make_node("Identity", [inside.name], [outside]) for inside, outside in names]
        return [*body.node, *copies], list(body.initializer)

    return rule


def loops_of(model: onnx.ModelProto, shapes: Shapes) -> Rule:
    """Writes out each `Loop` of a constant number of turns and each `Scan` of opset 9 and later."""
    constants = {weight.name: weight for weight in model.graph.initializer}

    def rule(node: onnx.NodeProto, number: int) -> Part | None:
        if node.domain not in ONNX_DOMAINS or node.op_type not in ("Loop", "Scan"):
            return None
        loop = _Unrolled(model, node)
        done = loop.loop(node, constants) if node.op_type == "Loop" else loop.scan(node, shapes)
        return (loop.nodes, loop.weights) if done else None

    return rule


class _Unrolled:
    """The nodes and weights that replace a loop; `loop` and `scan` return whether they could write it out."""

    def __init__(self, model: onnx.ModelProto, node: onnx.NodeProto) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._name, self._outputs, self._opset = title_of(node), list(node.output), opset_of(model)

    def loop(self, node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> bool:
        """A Loop whose number of turns is a constant and whose condition holds in all of them."""
        body = attributes_of(node)["body"]
        count, condition = node.input[0], node.input[1] if len(node.input) > 1 else ""
        if count not in constants or (condition and condition not in constants) or not _goes_on(body):
            return False
        turns = int(numpy_helper.to_array(constants[count]).item())
        if condition and not numpy_helper.to_array(constants[condition]).item():
            turns = 0
        holds = self._weight(np.array(True))

        def inputs(number: int, states: list[str]) -> list[str]:
            return [self._weight(np.array(number, np.int64)), holds, *states]

        outputs = len(body.output)
        return self._unroll(body, turns, list(node.input[2:]), inputs, [0] * outputs, [0] * outputs, skipped=1)

    def scan(self, node: onnx.NodeProto, shapes: Shapes) -> bool:
        """A Scan as opset 9 defines it."""
        settings = attributes_of(node)
        body, count = settings["body"], int(settings["num_scan_inputs"])
        states, scanned = list(node.input[: len(node.input) - count]), list(node.input[len(node.input) - count :])
        if self._opset < 9 or not set(scanned) <= shapes.keys():
            return False
        axes = settings.get("scan_input_axes", [0] * count)
        backwards = settings.get("scan_input_directions", [0] * count)
        lengths = {shapes[name][1][axis] for name, axis in zip(scanned, axes, strict=True)}
        if len(lengths) != 1:
            raise ModelError(f"node {self._name!r} is malformed", why=f"it scans axes of {sorted(lengths)}")
        (turns,) = lengths

        def inputs(number: int, states: list[str]) -> list[str]:
            rows = []
            for name, axis, backward in zip(scanned, axes, backwards, strict=True):
                index = self._weight(np.array(turns - 1 - number if backward else number, np.int64))
                rows.append(self._node("Gather", [name, index], f"{self._name}/{name}/{axis}/{number}", axis=axis))
            return [*states, *rows]

        first = [0] * len(body.output)
        along, turned = (settings.get(f"scan_output_{name}", first) for name in ("axes", "directions"))
        return self._unroll(body, turns, states, inputs, along, turned)

    def _unroll(
        self,
        body: onnx.GraphProto,
        turns: int,
        states: list[str],
        inputs: Callable[[int, list[str]], list[str]],
        axes: list[int],
        backwards: list[int],
        skipped: int = 0,
    ) -> bool:
        """Write out all turns.

        Args:
            inputs: the body's inputs in a turn, by its number and the states before it.
            axes, backwards: of the outputs that collect a value of each turn.
            skipped: how many outputs of the body come before the states.
        """
        collected: list[list[str]] = [[] for _ in body.output[skipped + len(states) :]]
        if collected and turns < 1:
            return False
        if turns > _MOST_TURNS:
            raise ModelError(f"node {self._name!r} has {turns} turns", why=f"at most {_MOST_TURNS} are written out")
        for number in range(turns):
            results = self._turn(body, number, inputs(number, states))[skipped:]
            states = results[: len(states)]
            for values, value in zip(collected, results[len(states) :], strict=True):
                values.append(value)
        for value, name in zip(states, self._outputs, strict=False):
            if name:
                self._node("Identity", [value], name)
        rows = zip(collected, self._outputs[len(states) :], axes, backwards, strict=False)
        for values, name, axis, backward in rows:
            if name:
                self._stack(values[::-1] if backward else values, name, axis)
        return True

    def _turn(self, body: onnx.GraphProto, number: int, given: list[str]) -> list[str]:
        """The names of the body's outputs in a turn in which these are its inputs."""
        check_count(len(self.nodes) + len(body.node))
        inner = onnx.compose.add_prefix_graph(body, f"{self._name}/turn{number}/")
        if len(inner.input) != len(given):
            raise ModelError(f"node {self._name!r} is malformed", why="its body has another number of inputs")
        for value, name in zip(inner.input, given, strict=True):
            self._node("Identity", [name], value.name)
        self.nodes.extend(inner.node)
        self.weights.extend(inner.initializer)
        return [value.name for value in inner.output]

    def _stack(self, values: list[str], output: str, axis: int) -> None:
        """The values of all turns along a new axis."""
        rows = []
        for number, value in enumerate(values):
            row = f"{output}/row{number}"
            if self._opset < 13:
                self.nodes.append(helper.make_node("Unsqueeze", [value], [row], axes=[axis]))
            else:
                self._node("Unsqueeze", [value, self._weight(np.array([axis], np.int64))], row)
            rows.append(row)
        self._node("Concat", rows, output, axis=axis)

    def _weight(self, array: np.ndarray) -> str:
        name = f"{self._name}/constant{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def _node(self, operator: str, inputs: list[str], output: str, **attributes: int) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], name=f"{output}/{operator}", **attributes))
        return output


def _goes_on(body: onnx.GraphProto) -> bool:
    """Whether a Loop's body returns the condition that it was given, or a constant that holds."""
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
