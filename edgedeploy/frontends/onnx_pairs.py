"""Operators on quantised values that they do not compute with, put between DequantizeLinear and QuantizeLinear.

onnxruntime's quantiser leaves MaxPool, Resize, Transpose and their like on integers, where they stand beside quantised
operators. In float, between pairs, they are layers as any other, and what is on both sides of them is found. Copies and
largest values are the same in either way. Resize by interpolation is not: onnxruntime cuts off the fractions of
integers, a bias of half a step; here they are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgedeploy.frontends.onnx_functions import replace_nodes

# Which inputs are data, or constants that are joined with these.
_Places = Callable[[onnx.NodeProto], list[int]]


def _first(node: onnx.NodeProto) -> list[int]:
    return [0]


_MOVING: dict[str, _Places] = {
    **dict.fromkeys(
        (
            "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "MaxPool",
            "Pad", "Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
        ),
        _first,
    ),
    "Concat": lambda node: list(range(len(node.input))),
}  # fmt: skip

# Scale and zero point, by their names.
_Quantisation = tuple[str, str]


def put_between_pairs(graph: onnx.GraphProto) -> None:
    """Give each operator that moves quantised values float ones, and quantise its results as its data were.

    Args:
        graph: whose nodes come in the order of their work, with each constant among its initialisers.
    """
    constants = {weight.name: weight for weight in graph.initializer}
    known: dict[str, _Quantisation] = {}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type == "QuantizeLinear" and len(node.input) == 3 and _is_one(constants, node.input[1:]):
            known[node.output[0]] = (node.input[1], node.input[2])
        places = _MOVING[node.op_type](node) if node.op_type in _MOVING else []
        found = {known.get(node.input[place]) for place in places if node.input[place] not in constants}
        quantisation = next(iter(found)) if len(found) == 1 else None
        has_unknown_edge = node.op_type == "Pad" and not _is_one(constants, list(filter(None, node.input[2:3])))
        if quantisation is None or has_unknown_edge:
            nodes.append(node)
            continue
        quantised = list(node.output) if node.op_type == "Split" else list(node.output[:1])
        known |= dict.fromkeys(quantised, quantisation)
        nodes += _between_pairs(node, places, quantised, quantisation)
        if node.op_type == "Pad":
            graph.initializer.append(_float_edge(nodes[-len(quantised) - 1], node, constants, quantisation))
    if len(nodes) > len(graph.node):
        replace_nodes(graph, nodes)


def _between_pairs(
    node: onnx.NodeProto, places: list[int], quantised: list[str], quantisation: _Quantisation
) -> list[onnx.NodeProto]:
    """A node on the float values of its data, with what quantises its results."""
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    before, after = [], []
    for place in places:
        inner.input[place] = f"{node.output[0]}/float/{place}"
        before.append(helper.make_node("DequantizeLinear", [node.input[place], *quantisation], [inner.input[place]]))
    for place, name in enumerate(quantised):
        inner.output[place] = f"{name}/float"
        after.append(helper.make_node("QuantizeLinear", [inner.output[place], *quantisation], [name]))
    return [*before, inner, *after]


def _is_one(constants: dict[str, onnx.TensorProto], names: Sequence[str]) -> bool:
    """Whether these are constants of one value each."""
    return all(name in constants and list(constants[name].dims) in ([], [1]) for name in names)


def _float_edge(
    padding: onnx.NodeProto,
    node: onnx.NodeProto,
    constants: dict[str, onnx.TensorProto],
    quantisation: _Quantisation,
) -> onnx.TensorProto:
    """Give a Pad in float the value that its integer, 0 if it states none, stands for."""
    scale, zero = (numpy_helper.to_array(constants[name]).reshape(()) for name in quantisation)
    stated = node.input[2] if len(node.input) > 2 else ""
    edge = numpy_helper.to_array(constants[stated]).reshape(()) if stated else np.zeros((), np.int64)
    value = (edge.astype(np.int64) - zero.astype(np.int64)).astype(np.float32) * scale.astype(np.float32)
    padding.input.extend([""] * (3 - len(padding.input)))
    padding.input[2] = f"{node.output[0]}/float edge"
    return numpy_helper.from_array(np.asarray(value, scale.dtype), padding.input[2])
