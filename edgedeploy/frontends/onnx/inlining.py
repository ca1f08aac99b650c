"""Functions, loops of known length and decided branches, written out in the graph around them.

Functions are a model's own, operators that ONNX itself defines as functions, and operators of onnxruntime's domain.
"""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy

import onnx
import onnx.compose
import onnx.inliner
from onnx import helper, numpy_helper

from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx.fused import CONTRIB, DOMAIN, plain_attention
from edgedeploy.frontends.onnx.nodes import (
    ONNX_DOMAINS,
    NodeBuilder,
    Part,
    Rule,
    Shapes,
    Writer,
    check_count,
    every_node,
    opset_of,
    part_of,
    title_of,
)
from edgedeploy.frontends.onnx.quantised import QUANTISED, QUANTISED_CONTRIB

# Those without a translation. Of others the translation is faster than ONNX's function.
_FUNCTIONS = {
    "Attention", "BlackmanWindow", "CausalConvWithState", "Celu", "CenterCropPad", "HammingWindow", "HannWindow",
    "LinearAttention", "NegativeLogLikelihoodLoss", "RotaryEmbedding", "SoftmaxCrossEntropyLoss", "SwiGLU", "Swish",
}  # fmt: skip

# Writers by domain and operator; they come before ONNX's own function.
_WRITERS: dict[str, dict[str, Writer]] = {
    **{domain: {"Attention": plain_attention, **QUANTISED} for domain in ONNX_DOMAINS},
    DOMAIN: {**CONTRIB, **QUANTISED_CONTRIB},
}

_MOST_TURNS = 512  # more would make a network's code grow without bounds


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


def written_out(model: onnx.ModelProto, shapes: Shapes) -> Rule:
    """Writes out each function whose inputs are known, and each loop and branch that constants decide."""
    constants, opset = {weight.name: weight for weight in model.graph.initializer}, opset_of(model)
    decided: dict[str, Writer] = {
        "If": lambda build: _branch(build, constants),
        "Loop": lambda build: _loop(build, constants, opset),
        "Scan": lambda build: _scan(build, opset),
    }
    writers = {**_WRITERS, **{domain: {**_WRITERS[domain], **decided} for domain in ONNX_DOMAINS}}

    def rule(node: onnx.NodeProto, number: int) -> Part | None:
        part = part_of(node, number, shapes, writers.get(node.domain, {}))
        # The translation of LayerNormalization gives its first output only.
        needed = node.op_type in _FUNCTIONS or (node.op_type == "LayerNormalization" and len(node.output) > 1)
        return _function(model, node, number, shapes) if not part and needed and node.domain in ONNX_DOMAINS else part

    return rule


def _function(model: onnx.ModelProto, node: onnx.NodeProto, number: int, shapes: Shapes) -> Part | None:
    """ONNX's function of an operator, with the node's inputs and outputs; None if it is not known."""
    names = dict.fromkeys(filter(None, node.input))
    if not names.keys() <= shapes.keys():
        return None
    full, stated = deepcopy(node), {attribute.name for attribute in node.attribute}
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
    if any((inner.domain, inner.op_type) == key for inner in body.node):
        return None
    prefix = f"{title_of(node)}/{number}/"
    body = onnx.compose.add_prefix_graph(body, prefix, rename_inputs=False, rename_outputs=False)
    return list(body.node), list(body.initializer)


def _branch(build: NodeBuilder, constants: Mapping[str, onnx.TensorProto]) -> Sequence[str] | None:
    """The branch that an If with a constant condition takes."""
    if build.optional(0) not in constants:
        return None
    wanted = "then_branch" if numpy_helper.to_array(constants[build.inputs[0]]).any() else "else_branch"
    branch = build.attributes.get(wanted)
    if branch is None or len(branch.output) != len(build.outputs):
        raise ModelError(f"node {build.title!r} is malformed", why=f"operator If needs a fitting {wanted}")
    return [build.add("Identity", name) for name in build.inline(branch)]


def _loop(build: NodeBuilder, constants: Mapping[str, onnx.TensorProto], opset: int) -> Sequence[str] | None:
    """A Loop whose number of turns is a constant and whose condition holds in all of them."""
    body, count, condition = build.attributes["body"], build.inputs[0], build.optional(1)
    if count not in constants or (condition and condition not in constants) or not _goes_on(body):
        return None
    turns = int(numpy_helper.to_array(constants[count]).item())
    if condition and not numpy_helper.to_array(constants[condition]).item():
        turns = 0
    holds = build.weight(True, dtype="bool")

    def inputs(number: int, states: Sequence[str]) -> list[str]:
        return [build.weight(number), holds, *states]

    zeros = [0] * len(body.output)
    return _unrolled(build, opset, turns, build.inputs[2:], inputs, zeros, zeros, skipped=1)


def _scan(build: NodeBuilder, opset: int) -> Sequence[str] | None:
    """A Scan as opset 9 defines it."""
    settings = build.attributes
    count = int(settings["num_scan_inputs"])
    if opset < 9:
        return None
    states, scanned = build.inputs[: len(build.inputs) - count], build.inputs[len(build.inputs) - count :]
    axes = settings.get("scan_input_axes", [0] * count)
    backwards = settings.get("scan_input_directions", [0] * count)
    lengths = {build.shape(name)[axis] for name, axis in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise ModelError(f"node {build.title!r} is malformed", why=f"it scans axes of {sorted(lengths)}")
    (turns,) = lengths

    def inputs(number: int, states: Sequence[str]) -> list[str]:
        rows = []
        for name, axis, backward in zip(scanned, axes, backwards, strict=True):
            index = build.weight(turns - 1 - number if backward else number)
            rows.append(build.add("Gather", name, index, axis=axis))
        return [*states, *rows]

    zeros = [0] * len(settings["body"].output)
    along, turned = (settings.get(f"scan_output_{name}", zeros) for name in ("axes", "directions"))
    return _unrolled(build, opset, turns, states, inputs, along, turned)


def _unrolled(
    build: NodeBuilder,
    opset: int,
    turns: int,
    states: Sequence[str],
    # The body's inputs in a turn, by its number and the states before it.
    inputs: Callable[[int, Sequence[str]], Sequence[str]],
    axes: Sequence[int],  # of the outputs that collect a value of each turn, of which some are filled `backwards`
    backwards: Sequence[int],
    skipped: int = 0,  # how many outputs of the body come before the states
) -> Sequence[str] | None:
    """All turns of a loop; None if there are none and it collects values."""
    body = build.attributes["body"]
    collected: list[list[str]] = [[] for _ in body.output[skipped + len(states) :]]
    if collected and turns < 1:
        return None
    if turns > _MOST_TURNS:
        raise ModelError(f"node {build.title!r} has {turns} turns", why=f"at most {_MOST_TURNS} are written out")
    for number in range(turns):
        results = build.inline(body, inputs(number, states), f"turn{number}/")[skipped:]
        states = results[: len(states)]
        for values, value in zip(collected, results[len(states) :], strict=True):
            values.append(value)
    made = [build.add("Identity", value) for value in states]
    for values, axis, backward in zip(collected, axes, backwards, strict=False):
        as_input, as_attribute = ([build.weight([axis])], {}) if opset >= 13 else ([], {"axes": [axis]})
        rows = [build.add("Unsqueeze", value, *as_input, **as_attribute) for value in values]
        made.append(build.add("Concat", *(rows[::-1] if backward else rows), axis=axis))
    return made


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
