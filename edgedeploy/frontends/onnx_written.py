"""Nodes written out as others: what such translations in ONNX's own terms have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


class UnknownShapeError(Exception):
    """Nothing is known yet of an input whose type or shape a translation asks for."""


class Written:
    """What a node is written out as, operator by operator.

    Args:
        node: which one.
        shapes: type and shape of each value that is known.
    """

    def __init__(self, node: onnx.NodeProto, shapes: dict[str, tuple[int, list[int]]]) -> None:
        self.inputs = list(node.input)
        self.attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        self.outputs = list(node.output)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._shapes = shapes

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """An operator of ONNX's; the name of its result."""
        return self.several(1, operator, *inputs, **attributes)[0]

    def several(self, count: int, operator: str, *inputs: str, **attributes: Any) -> list[str]:
        """An operator with so many results; their names."""
        names = [f"~{len(self.nodes)}.{place}" for place in range(count)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names

    def weight(self, values: Any, like: str = "", dtype: str = "int64") -> str:
        """Values of the type of an input, or of a dtype."""
        name = f"~w{len(self.weights)}"
        kind = helper.tensor_dtype_to_np_dtype(self.type(like)) if like else np.dtype(dtype)
        self.weights.append(numpy_helper.from_array(np.array(values, kind), name))
        return name

    def shape(self, name: str) -> list[int]:
        """The shape of an input."""
        return self._known(name)[1]

    def type(self, name: str) -> int:
        """The type of an input, as `onnx.TensorProto` numbers them."""
        return self._known(name)[0]

    def _known(self, name: str) -> tuple[int, list[int]]:
        if name not in self._shapes:
            raise UnknownShapeError(name)
        return self._shapes[name]

    def given(self, place: int) -> str:
        """An input, empty if it is left out."""
        return self.inputs[place] if place < len(self.inputs) else ""

    def wants(self, place: int) -> bool:
        """Whether an output is asked for."""
        return place < len(self.outputs) and bool(self.outputs[place])

    def word(self, name: str) -> str:
        """An attribute that is a word, which is taken out of them; empty without it."""
        value = self.attributes.pop(name, b"")
        return value.decode() if isinstance(value, bytes) else str(value)


# Returns the node's outputs, or None where it has no translation for what the node asks.
Writer = Callable[[Written], Sequence[str] | None]


def body_of(
    node: onnx.NodeProto, shapes: dict[str, tuple[int, list[int]]], writers: dict[str, Writer]
) -> onnx.GraphProto | None:
    """The graph that a node stands for, with its own inputs and outputs; None if it is not known, or not yet.

    Args:
        node: with operators among `writers`, or any other.
        shapes: type and shape of each value that is known.
    """
    writer = writers.get(node.op_type)
    if writer is None:
        return None
    written = Written(node, shapes)
    try:
        made = writer(written)
    except UnknownShapeError:
        return None
    if made is None:
        return None
    named = dict(zip(made, node.output, strict=False))
    for inner in written.nodes:
        for names in (inner.input, inner.output):
            for place, name in enumerate(names):
                names[place] = named.get(name, name) or name
    inputs = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(filter(None, node.input))]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    return helper.make_graph(written.nodes, "written", inputs, outputs, written.weights)
