"""Recurrent operators whose tensors begin with the batch, as those whose tensors begin with time.

ONNX has an attribute for it since opset 14; onnxruntime 1.31 refuses it.
"""

from __future__ import annotations

import onnx
from onnx import helper

_RECURRENT = {"LSTM", "GRU", "RNN"}

# The places of the initial states among the inputs.
_STATES = (5, 6)


def put_time_first(graph: onnx.GraphProto) -> None:
    """Write nodes of `layout` 1 as those of `layout` 0 between transposes; the graph is changed in place."""
    if not any(_is_by_batch(node) for node in graph.node):
        return
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes.extend(_with_time_first(node) if _is_by_batch(node) else [node])
    del graph.node[:]
    graph.node.extend(nodes)


def _is_by_batch(node: onnx.NodeProto) -> bool:
    return node.op_type in _RECURRENT and any(each.name == "layout" and each.i for each in node.attribute)


def _with_time_first(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    del inner.attribute[:]
    inner.attribute.extend(each for each in node.attribute if each.name != "layout")
    before, after = [], []
    prefix = next(filter(None, node.output), "")
    for place, name in enumerate(node.input):
        if name and (place == 0 or place in _STATES):
            inner.input[place] = f"{prefix}/time_first/{place}"
            before.append(helper.make_node("Transpose", [name], [inner.input[place]], perm=[1, 0, 2]))
    for place, name in enumerate(node.output):
        if name:
            inner.output[place] = f"{name}/time_first"
            perm = [1, 0, 2] if place else [2, 0, 1, 3]
            after.append(helper.make_node("Transpose", [inner.output[place]], [name], perm=perm))
    return [*before, inner, *after]
