"""Functions written out: a model's own, operators that ONNX itself defines as such, and onnxruntime's own operators."""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import onnx
import onnx.compose
import onnx.inliner
from onnx import helper

from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx_attention import plain_attention
from edgedeploy.frontends.onnx_contrib import CONTRIB, DOMAIN
from edgedeploy.frontends.onnx_packed import PACKED_CONTRIB
from edgedeploy.frontends.onnx_quantised import QUANTISED, QUANTISED_CONTRIB
from edgedeploy.frontends.onnx_written import Writer, body_of

# By value, its type and its shape.
Shapes = dict[str, tuple[int, list[int]]]

# The names of ONNX's own operator set.
ONNX_DOMAINS = ("", "ai.onnx")

# Those without a translation. Of others the translation is faster than what they are written out as.
_FUNCTIONS = {
    "Attention", "BlackmanWindow", "CausalConvWithState", "Celu", "CenterCropPad", "HammingWindow", "HannWindow",
    "LinearAttention", "NegativeLogLikelihoodLoss", "RotaryEmbedding", "SoftmaxCrossEntropyLoss", "SwiGLU", "Swish",
}  # fmt: skip

# Those of which the translation gives the first output alone.
_OF_ONE_OUTPUT = {"LayerNormalization"}

# By domain and operator, what is written out otherwise than as ONNX's own function, or has none.
_WRITERS: dict[str, dict[str, Writer]] = {
    **{domain: {"Attention": plain_attention, **QUANTISED} for domain in ONNX_DOMAINS},
    DOMAIN: {**CONTRIB, **PACKED_CONTRIB, **QUANTISED_CONTRIB},
}


# Of a network in nodes; large language models have a tenth of it.
MOST_NODES = 100_000


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model with the functions that it defines written out, and the defaults of their attributes given.

    Raises:
        ModelError: a function calls itself, or the model would have too many nodes.
    """
    if not model.functions:
        return model
    functions = {(each.domain, each.name): each for each in model.functions}
    called: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    for place, nodes in [(("", ""), model.graph.node), *((key, each.node) for key, each in functions.items())]:
        calls = called[place] = Counter()
        for node in _every_node(nodes):
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
        raise ModelError(f"function {error.args[1][0][1]!r} calls itself", why="it has no end") from error
    check_count(sizes["", ""], "its functions are written out")
    return onnx.inliner.inline_local_functions(model)


def check_count(nodes: int, when: str) -> None:
    """Refuse a network of more nodes than can be imported.

    Raises:
        ModelError: it has more.
    """
    if nodes > MOST_NODES:
        raise ModelError(
            f"the network has {nodes:,} nodes when {when}",
            why=f"at most {MOST_NODES:,} are imported",
            hints=["export the network without functions and loops inside of others"],
        )


def branches(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    """The graphs inside of a node."""
    return (attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH)


def _every_node(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes, and those of the graphs inside of them."""
    for node in nodes:
        yield node
        for branch in branches(node):
            yield from _every_node(branch.node)


def write_out_functions(model: onnx.ModelProto, shapes: Shapes) -> bool:
    """Put its function in the place of each node that needs it and whose inputs are known; whether there was one.

    Args:
        model: changed in place; its nodes then come in no special order.
        shapes: of inputs of nodes, as far as they are known.
    """
    nodes: list[onnx.NodeProto] = []
    found = False
    for number, node in enumerate(model.graph.node):
        needed = node.op_type in _FUNCTIONS or (node.op_type in _OF_ONE_OUTPUT and len(node.output) > 1)
        body = body_of(node, shapes, _WRITERS.get(node.domain, {}))
        if body is None and needed and node.domain in ONNX_DOMAINS:
            body = _body(model, node, shapes)
        if body is None:
            nodes.append(node)
            continue
        found = True
        written = onnx.compose.add_prefix_graph(
            body, f"{title_of(node)}/{number}/", rename_inputs=False, rename_outputs=False
        )
        nodes.extend(written.node)
        model.graph.initializer.extend(written.initializer)
    if found:
        replace_nodes(model.graph, nodes)
    return found


def replace_nodes(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Give a graph other nodes, which may be its own."""
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def title_of(node: onnx.NodeProto) -> str:
    """What a node is called in messages, and what names of its parts begin with."""
    return node.name or ", ".join(node.output)


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operator set that a model uses; 1 if it states none."""
    return next((entry.version for entry in model.opset_import if entry.domain in ONNX_DOMAINS), 1)


def readers_of(model: onnx.ModelProto) -> dict[str, list[onnx.NodeProto]]:
    """By tensors that are read, the nodes that read them."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return readers


def _body(model: onnx.ModelProto, node: onnx.NodeProto, shapes: Shapes) -> onnx.GraphProto | None:
    """The graph that a node stands for, with the node's own inputs and outputs; None if it is not known."""
    names = dict.fromkeys(filter(None, node.input))
    if not names.keys() <= shapes.keys():
        return None
    inputs = [helper.make_tensor_value_info(name, *shapes[name]) for name in names]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    part = helper.make_model(
        # ONNX's inliner asks for the type of inputs that are left out, too.
        helper.make_graph(
            [_with_defaults(model, node)],
            "function",
            inputs,
            outputs,
            value_info=[helper.make_tensor_value_info("", onnx.TensorProto.FLOAT, [])],
        ),
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
    )
    name = (node.domain, node.op_type)
    body = onnx.inliner.inline_selected_functions(part, [name], inline_schema_functions=True).graph
    unchanged = any((inner.domain, inner.op_type) == name for inner in body.node)
    return None if unchanged else body


def _with_defaults(model: onnx.ModelProto, node: onnx.NodeProto) -> onnx.NodeProto:
    """A node that says the defaults of its attributes, which a function's body may refer to."""
    opset = opset_of(model)
    full = onnx.NodeProto.FromString(node.SerializeToString())
    said = {attribute.name for attribute in node.attribute}
    for name, attribute in onnx.defs.get_schema(node.op_type, opset, "").attributes.items():
        if name not in said and attribute.default_value.name:
            full.attribute.append(attribute.default_value)
    return full
