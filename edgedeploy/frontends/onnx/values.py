"""Types, shapes and constants of an ONNX model, known before it runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

import numpy as np
import onnx
import onnx.shape_inference
from onnx import TensorProto, helper, numpy_helper

from edgedeploy.compile.passes.constants import Room
from edgedeploy.errors import ModelError, last_line
from edgedeploy.frontends.onnx.nodes import ONNX_DOMAINS, Shapes, branches, opset_of, reads, replace_nodes
from edgedeploy.model.onnxruntime_session import cpu_session

# Of a tensor, and of a tensor that can be a shape or the indices of some.
_MOST_VALUES, _MOST_DIMENSIONS = 2**31 - 1, 2**16

DTYPES = set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED, TensorProto.STRING}  # types of numbers
_LARGE = 1 << 10  # constants of more bytes than this do not decide shapes

# The former marks integers as weights; the others give other values each time.
_KEPT = {"DequantizeLinear"}
_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}

# The shape of their results depends on the values of their inputs: at most 8 bytes for each value and axis.
_OF_DATA = {"NonZero", "Unique", "Compress"}


class KnownValues:
    """Types, shapes and constants of a model, found in one walk along its nodes.

    Onnxruntime computes constants when the shape of a later value depends on them, as that of a `Reshape` does, and
    those that are read at the end. The model's nodes are in topological order.
    """

    def __init__(self, model: onnx.ModelProto, budget: int) -> None:
        self._model, self._opset, self._budget = model, opset_of(model), budget
        self._opsets = [entry for entry in model.opset_import if entry.domain in ONNX_DOMAINS]
        self.spent = 0  # bytes that constants added to the model, of at most the budget
        self._left: set[str] = set()  # constants that are left to the importer
        self._room = Room(sum(weight.ByteSize() for weight in model.graph.initializer))
        self._endless: set[str] = set()  # values too large for any memory
        self.shapes: Shapes = {}  # those that are known
        self._constants: dict[str, TensorProto] = {}
        self._makers: dict[str, onnx.NodeProto] = {}  # nodes of constants that are not computed yet
        for weight in model.graph.initializer:
            self._add(weight)
        for value in model.graph.input:
            self._note(value.name, value.type)
            kind, shape = self.shapes.get(value.name, (0, []))
            if 0 in shape:  # an input without values has known ones
                empty = np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind))
                self._add(numpy_helper.from_array(empty, value.name))
        for node in model.graph.node:
            self._visit(node)

    def fold(self) -> None:
        """Replace nodes by their constants."""
        graph = self._model.graph
        weights = {weight.name for weight in graph.initializer} | {value.name for value in graph.input}
        folded = self._makers.keys() | self._constants.keys() - weights
        if not folded:
            return
        left = [node for node in graph.node if not folded.issuperset(filter(None, node.output))]
        needed = {value.name for value in graph.output}.union(*map(reads, left)) & folded
        self._compute(needed)
        replace_nodes(graph, left)
        graph.initializer.extend(self._constants[name] for name in sorted(needed))

    def _add(self, constant: TensorProto) -> None:
        self._constants[constant.name] = constant
        self.shapes[constant.name] = (constant.data_type, list(constant.dims))

    def _visit(self, node: onnx.NodeProto) -> None:
        value = self._shape_of(node)
        if value is not None:
            self.spent += value.nbytes
            self._add(numpy_helper.from_array(value, node.output[0]))
            return
        self._infer(node)
        outputs = set(filter(None, node.output))
        waiting = reads(node) & self._makers.keys()
        if waiting and not outputs <= self.shapes.keys():
            self._compute(waiting)
            self._infer(node)
        size = self._bytes(node)
        if (size is None and not outputs & self._endless) or not self._is_constant(node):
            return
        if size is not None and self.spent + size <= self._budget and not reads(node) & self._left:
            self.spent += size
            self._makers |= dict.fromkeys(outputs, node)
        else:
            self._left.update(outputs)
            read = set(filter(None, node.input)) & self.shapes.keys()
            self._room.take(node.op_type, size, sum(map(self._size_of, read)), node.output[0])

    def _is_constant(self, node: onnx.NodeProto) -> bool:
        """Whether no input of the network changes a node's outputs."""
        if node.op_type in _KEPT | _RANDOM or node.domain not in ONNX_DOMAINS or any(branches(node)):
            return False
        return reads(node) <= self._constants.keys() | self._makers.keys() | self._left

    def _infer(self, node: onnx.NodeProto) -> None:
        """Note the types that ONNX's own inference has for a node.

        It runs node by node: over a whole model it creates a dimension for every value that a tensor claims to have, if
        that is taken for a shape.
        """
        names = set(filter(None, node.input)) & self.shapes.keys()
        kinds = (self.shapes[name] for name in names)
        if any(kind == TensorProto.INT64 and len(shape) == 1 and shape[0] > _MOST_DIMENSIONS for kind, shape in kinds):
            return  # like a shape, but longer than any
        try:
            inferred = onnx.shape_inference.infer_node_outputs(
                onnx.defs.get_schema(node.op_type, self._opset, ""),
                node,
                {name: helper.make_tensor_type_proto(*self.shapes[name]) for name in names},
                {name: self._constants[name] for name in names & self._constants.keys() if self._is_small(name)},
                opset_imports=self._opsets,
            )
        except Exception:  # unknown, or malformed: the importer reports where
            return
        for name, kind in inferred.items():
            self._note(name, kind)

    def _is_small(self, name: str) -> bool:
        return self._size_of(name) <= _LARGE

    def _size_of(self, name: str) -> int:
        kind, shape = self.shapes[name]
        return math.prod(shape) * helper.tensor_dtype_to_np_dtype(kind).itemsize

    def _note(self, name: str, kind: onnx.TypeProto) -> None:
        """Note a type, if it is a tensor of known shape that a memory could hold."""
        tensor = kind.tensor_type
        shape = [dimension.dim_value for dimension in tensor.shape.dim]
        known = tensor.HasField("shape") and all(dimension.HasField("dim_value") for dimension in tensor.shape.dim)
        if not known or tensor.elem_type not in DTYPES or min(shape, default=1) < 0:
            return
        if math.prod(shape) <= _MOST_VALUES:
            self.shapes[name] = (tensor.elem_type, shape)
        else:
            self._endless.add(name)

    def _shape_of(self, node: onnx.NodeProto) -> np.ndarray | None:
        """The result of `Shape` and `Size` of a tensor of known shape."""
        if node.op_type not in ("Shape", "Size") or not node.input or node.input[0] not in self.shapes:
            return None
        _, shape = self.shapes[node.input[0]]
        if node.op_type == "Size":
            return np.array(math.prod(shape), np.int64)
        part = {attribute.name: attribute.i for attribute in node.attribute}
        return np.array(shape[part.get("start", 0) : part.get("end")], np.int64)

    def _bytes(self, node: onnx.NodeProto) -> int | None:
        """How many bytes a node's outputs take at most; None if unknown."""
        of_data = node.op_type in _OF_DATA
        names = list(filter(None, node.input if of_data else node.output))
        if not self.shapes.keys() >= set(names):
            return None
        if of_data:
            sizes = [self.shapes[name][1] for name in names]
            return sum(8 * math.prod(shape) * max(len(shape), 1) * len(node.output) for shape in sizes)
        return sum(map(self._size_of, names))

    def _compute(self, names: Collection[str]) -> None:
        """Compute constants by onnxruntime, and small ones on the way, on which more may depend."""
        wanted = set(names) & self._makers.keys()
        if not wanted:
            return
        nodes = list(self._makers_of(wanted))
        made = {name for node in nodes for name in node.output if name}
        # Some outputs of a node may be known while others wait.
        given = {name for node in nodes for name in node.input if name in self._constants} - made
        waiting = made & self._makers.keys()
        # Those of unknown shape are small: their maximum was counted.
        results = sorted(wanted | {name for name in waiting if name not in self.shapes or self._is_small(name)})
        for value in _computed(self._model, nodes, [self._constants[name] for name in sorted(given)], results):
            self._add(value)
            self._makers.pop(value.name)

    def _makers_of(self, names: Iterable[str]) -> Iterator[onnx.NodeProto]:
        """The nodes that values come from, unless computed, in order, each once."""
        found: set[int] = set()
        pending = [(name, False) for name in names]
        while pending:
            name, ready = pending.pop()
            node = self._makers.get(name)
            if node is None or id(node) in found:
                continue
            if ready:
                found.add(id(node))
                yield node
            else:
                pending.append((name, True))
                pending.extend((each, False) for each in node.input)


def _computed(
    model: onnx.ModelProto, nodes: list[onnx.NodeProto], constants: list[TensorProto], results: list[str]
) -> list[TensorProto]:
    """The values of nodes that read only constants, by onnxruntime."""
    small = [constant for constant in constants if constant.ByteSize() <= 2 * _LARGE]
    # Large ones become inputs: as weights they would be copied into the model and out of it.
    large = [constant for constant in constants if constant.ByteSize() > 2 * _LARGE]
    inputs = [helper.make_tensor_value_info(each.name, each.data_type, list(each.dims)) for each in large]
    outputs = [onnx.ValueInfoProto(name=name) for name in results]
    part = helper.make_graph(nodes, "constants", inputs, outputs, small)
    try:
        runnable = helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version)
        feeds = {each.name: numpy_helper.to_array(each) for each in large}
        values = cpu_session(runnable.SerializeToString()).run(results, feeds)
    except Exception as error:
        first = ", ".join(sorted({node.op_type for node in nodes}))
        raise ModelError(
            "constants of the network cannot be computed", why=f"onnxruntime, of {first}: {last_line(error)}"
        ) from error
    return [numpy_helper.from_array(np.asarray(value), name) for value, name in zip(values, results, strict=True)]
