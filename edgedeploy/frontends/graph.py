"""A network being written in ONNX's terms, node by node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Resize with a list of sizes, HardSwish, and everything that older formats hold; onnxruntime 1.18 reads it.
OPSET = 17
_IR_VERSION = 8

Attribute = int | float | str | Sequence[int] | Sequence[float]


class Graph:
    """Nodes in the order in which they run, each of whose outputs goes by a name.

    Args:
        name: the network's, for messages of those who read the model.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._inputs: list[onnx.ValueInfoProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._names: set[str] = set()

    def input(self, name: str, shape: Sequence[int]) -> str:
        """Declare a float32 input."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        self._names.add(name)
        return name

    def constant(self, values: np.ndarray, name: str = "weights") -> str:
        """Add a constant, such as a weight; the name is made unique."""
        unique = self._unique(name)
        self._weights.append(numpy_helper.from_array(np.asarray(values, order="C"), unique))
        return unique

    def node(self, operator: str, *inputs: str, name: str = "", **attributes: Attribute) -> str:
        """Add a node with one output.

        Args:
            operator: ONNX's name of it.
            inputs: names of values; "" leaves an optional one out.
            name: of the node and its output, made unique; the operator's unless given.
            attributes: of the operator.
        """
        return self.nodes(operator, *inputs, names=[name or operator.lower()], **attributes)[0]

    def nodes(self, operator: str, *inputs: str, names: Sequence[str], **attributes: Attribute) -> list[str]:
        """Add a node with several outputs, named as given and made unique."""
        outputs = [self._unique(name) for name in names]
        self._nodes.append(helper.make_node(operator, list(inputs), outputs, name=outputs[0], **attributes))
        return outputs

    def rename(self, names: Sequence[str]) -> None:
        """Name the outputs of the last node, and the node after the first of them; the names are new ones."""
        node = self._nodes[-1]
        self._names.difference_update(node.output)
        self._names.update(names)
        node.output[:] = names
        node.name = names[0]

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The model with these values as its outputs, in order."""
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self._nodes, self._name, self._inputs, values, self._weights)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="edgedeploy")

    def _unique(self, name: str) -> str:
        unique, count = name, 1
        while unique in self._names:
            unique, count = f"{name}_{count}", count + 1
        self._names.add(unique)
        return unique
