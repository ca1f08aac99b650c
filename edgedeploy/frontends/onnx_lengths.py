"""ONNX models of one shape for inputs of several lengths: another input says how much of an axis counts.

What such a model gives is what the model for exactly that length gives, up to rounding. Where a node looks along the
axis, what lies beyond the end is made what the shorter model would have there: zero where convolutions pad, nothing in
means and sums of products, minus infinity in softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgedeploy.errors import UnsupportedError
from edgedeploy.frontends.format import length_name
from edgedeploy.frontends.onnx_folding import folded
from edgedeploy.frontends.onnx_functions import replace_nodes, title_of
from edgedeploy.frontends.onnx_values import KnownValues

# What softmax makes 0 of. Minus infinity times 0, as where nothing is beyond the end, is no number.
_LOW = -1e9

_ELEMENTWISE = (
    "Abs", "Add", "Cast", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity",
    "LeakyRelu", "Log", "Max", "Min", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Selu", "Sigmoid",
    "Softplus", "Sqrt", "Sub", "Sum", "Tanh", "Where",
)  # fmt: skip

_SEVERAL = "it is about several axes that end early"

# How many places of an axis count, for each value of the input that says it; the last one is all of the axis.
Length = tuple[int, ...]
# The axes of a value that end early.
Axes = Mapping[int, Length]


def with_length(model: onnx.ModelProto, name: str, axis: int) -> onnx.ModelProto:
    """The model with one more input, int64 of shape 1, called `length_name(name)`, which says how long an axis is.

    Outputs are 0 beyond their end. A length of 0 is taken for 1; of what is no length nothing counts. What is beyond
    the end of the input is multiplied by 0: it has to be finite, and what is made of it too.

    Args:
        model: with inputs of fixed shapes; it is changed in place where that can be done.
        name: the input with that axis, which has its longest shape.
        axis: counted from 0.

    Raises:
        UnsupportedError: a node does something along the axis that is not known here.
        ModelError: as `onnx_folding.folded`.
    """
    model = folded(model)
    graph = model.graph
    walk = _Walk(model, length_name(name))
    walk.axes[name] = {axis: tuple(max(1, each) for each in range(walk.shapes[name][axis] + 1))}
    for node in graph.node:
        walk.visit(node)
    replace_nodes(graph, walk.nodes)
    graph.initializer.extend(walk.constants.values())
    graph.input.append(helper.make_tensor_value_info(walk.input, TensorProto.INT64, [1]))
    return model


class _Walk:
    """A walk along a model's nodes, which it copies with what they need beside them.

    Args:
        model: the model.
        input: the name of the input that says the length.

    Attributes:
        shapes: the shape of each value.
        known: the weights that are integers, as shapes and indices are.
        axes: by value, which of its axes end early.
        nodes: those of the new model.
        constants: what they need, by name.
    """

    def __init__(self, model: onnx.ModelProto, input: str) -> None:
        self.shapes = {value: shape for value, (_, shape) in KnownValues(model, 0).shapes.items()}
        self.known = {
            weight.name: numpy_helper.to_array(weight)
            for weight in model.graph.initializer
            if weight.data_type in (TensorProto.INT32, TensorProto.INT64)
        }
        self.input, self._outputs = input, {output.name for output in model.graph.output}
        self.axes: dict[str, Axes] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self._made: set[str] = set()
        self._lengths: list[Length] = []
        # By value and axis, the value that is 0 beyond the end: itself or a product with a mask.
        self._zeroed: dict[tuple[str, int], str] = {}

    def visit(self, original: onnx.NodeProto) -> None:
        """Copy a node."""
        node = onnx.NodeProto.FromString(original.SerializeToString())
        if any(each.HasField("g") or each.graphs for each in node.attribute):
            raise _refused(node, "what its own graphs read is not followed")
        if not any(self.axes.get(name) for name in node.input):
            self.nodes.append(node)
            return
        rule = _RULES.get(node.op_type)
        if rule is None or len(node.output) != 1:
            raise _refused(node, "no rule for this operator is known")
        output = node.output[0]
        self.axes[output] = rule(self, node)
        if output in self._outputs and self.axes[output]:
            if len(self.axes[output]) > 1:
                raise _refused(node, _SEVERAL)
            [axis] = self.axes[output]
            self._swap_names(output, self.zeroed(output, axis))

    def copy(self, node: onnx.NodeProto) -> None:
        """Add a node of the original model, whose inputs may have been replaced."""
        self.nodes.append(node)

    def zeroed(self, value: str, axis: int) -> str:
        """A value with 0 beyond the end of an axis."""
        if (value, axis) not in self._zeroed:
            self._zeroed[value, axis] = self._once("Mul", [value, self._mask(value, axis)], f"{value}/{axis}")
        return self._zeroed[value, axis]

    def is_zero_beyond(self, value: str, axis: int) -> None:
        """Note that a value has 0 beyond the end of an axis by itself."""
        self._zeroed[value, axis] = value

    def lowered(self, value: str, axis: int) -> str:
        """A value with very low numbers beyond the end of an axis."""
        mask = self._mask(value, axis)
        beyond = self._once("Sub", [mask, self._constant("1", 1)], f"{mask}/beyond")
        low = self._once("Mul", [beyond, self._constant("low", -_LOW)], f"{mask}/low")
        return self._once("Add", [value, low], f"{value}/low {axis}")

    def share(self, length: Length) -> str:
        """How many times longer than what counts an axis is, as a float of shape 1 x 1."""
        return self._looked_up(f"share {self._number(length)}", length[-1] / np.array(length))

    def times(self, value: str, factor: str, output: str) -> None:
        """Make a value `output` that is a product."""
        self.nodes.append(helper.make_node("Mul", [value, factor], [output], name=f"{output}/of {factor}"))

    def _mask(self, value: str, axis: int) -> str:
        """What has 1 for each place of an axis that counts and 0 beyond it, in a shape that suits the value."""
        length = self.axes[value][axis]
        following = len(self.shapes[value]) - axis - 1
        title = f"mask {self._number(length)}"
        count = self._looked_up(f"{title}/count", length)
        places = np.arange(length[-1]).reshape(-1, *[1] * following)
        title = f"{title}/{following}"
        left = self._once("Sub", [count, self._constant(f"{title}/places", places)], f"{title}/left")
        return self._once("Clip", [left, self._constant("0", 0), self._constant("1", 1)], title)

    def _looked_up(self, title: str, table: Any) -> str:
        """What a table has for the length, as a float of shape 1 x 1; 0 for lengths that are beyond it.

        A sum over all lengths that there are, of which one is right: nothing is read from a place that the input says.
        """
        lengths = np.arange(len(table), dtype=np.int64)[None]
        places = self._constant("lengths", lengths, np.int64)
        equal = self._once("Equal", [self.input, places], "equal")
        chosen = self._once("Cast", [equal], "chosen", to=TensorProto.FLOAT)
        values = self._constant(f"{title}/table", np.asarray(table)[:, None])
        return self._once("MatMul", [chosen, values], title)

    def _number(self, length: Length) -> int:
        if length not in self._lengths:
            self._lengths.append(length)
        return self._lengths.index(length)

    def _once(self, operator: str, inputs: list[str], title: str, **attributes: Any) -> str:
        output = title if title.startswith(self.input) else f"{self.input}/{title}"
        if output not in self._made:
            self._made.add(output)
            self.nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def _constant(self, title: str, values: Any, dtype: Any = np.float32) -> str:
        name = f"{self.input}/{title}"
        self.constants[name] = numpy_helper.from_array(np.asarray(values, dtype), name)
        return name

    def _swap_names(self, output: str, other: str) -> None:
        """Call two values by each other's names."""
        names = {output: other, other: output}
        for node in self.nodes:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]


def _refused(node: onnx.NodeProto, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"this network cannot take inputs of several lengths: node {title_of(node)!r} ({node.op_type})",
        why=why,
        hints=["build it for each length"],
    )


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def _elementwise(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Each place by itself; axes are aligned at the last."""
    output = walk.shapes[node.output[0]]
    axes: dict[int, Length] = {}
    for name in node.input:
        for axis, length in walk.axes.get(name, {}).items():
            place = axis + len(output) - len(walk.shapes[name])
            if axes.setdefault(place, length) != length:
                raise _refused(node, "its inputs are not of one length")
    for name in filter(None, node.input):
        own, offset = walk.shapes[name], len(output) - len(walk.shapes[name])
        places = [place - offset for place in axes if place >= offset]
        if any(own[place] > 1 and place not in walk.axes.get(name, {}) for place in places):
            raise _refused(node, f"its input {name!r} has a value for each place")
    walk.copy(node)
    return axes


def _normalised(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Each place by itself, by factors for each channel."""
    axes = walk.axes[node.input[0]]
    if 1 in axes or any(walk.axes.get(name) for name in node.input[1:]):
        raise _refused(node, "it has values for each place")
    walk.copy(node)
    return axes


def _windowed(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Convolutions and pooling: windows over the axes after the second."""
    value, attributes = node.input[0], _attributes(node)
    if any(walk.axes.get(name) for name in node.input[1:]) or walk.axes[value].keys() & {0, 1}:
        raise _refused(node, "what ends early is none of the axes along which its window moves")
    if attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or attributes.get("ceil_mode"):
        raise _refused(node, "how much it pads depends on the length")
    count = len(walk.shapes[value]) - 2
    kernel = attributes.get("kernel_shape") or list(walk.shapes[node.input[1]][2:])
    ones = [1] * count
    strides, dilations = attributes.get("strides", ones), attributes.get("dilations", ones)
    pads = attributes.get("pads", [0] * 2 * count)
    if len(walk.axes[value]) > 1:
        raise _refused(node, _SEVERAL)
    [(axis, length)] = walk.axes[value].items()
    place = axis - 2
    before, after, extent = pads[place], pads[place + count], dilations[place] * (kernel[place] - 1)
    if before or after:
        if node.op_type != "Conv":
            raise _refused(node, "what it pads with does not count as zeros do")
        node.input[0] = walk.zeroed(value, axis)
    walk.copy(node)
    return {axis: tuple(max(1, (each + before + after - extent - 1) // strides[place] + 1) for each in length)}


def _mean(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """The mean over axes: of those that end early, over what counts."""
    value, attributes = node.input[0], _attributes(node)
    rank = len(walk.shapes[value])
    if node.op_type == "GlobalAveragePool":
        over, kept = set(range(2, rank)), True
    else:
        stated = attributes.get("axes")
        if stated is None:
            raise _refused(node, "its axes are not stated as an attribute")
        over, kept = {axis % rank for axis in stated}, bool(attributes.get("keepdims", 1))
    ended = [axis for axis in walk.axes[value] if axis in over]
    left = {axis: length for axis, length in walk.axes[value].items() if axis not in over}
    axes = left if kept else {axis - sum(each < axis for each in over): length for axis, length in left.items()}
    if len(ended) > 1:
        raise _refused(node, _SEVERAL)
    if not ended:
        walk.copy(node)
        return axes
    [axis] = ended
    output = node.output[0]
    node.input[0] = walk.zeroed(value, axis)
    node.output[0] = f"{output}/of all"
    walk.copy(node)
    walk.times(node.output[0], walk.share(walk.axes[value][axis]), output)
    return axes


def _product(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Matrix products, whose sums are over what counts."""
    left, right = node.input
    rank = len(walk.shapes[node.output[0]])
    if min(len(walk.shapes[left]), len(walk.shapes[right])) < 2:
        raise _refused(node, "one of its inputs is a vector")
    axes: dict[int, Length] = {}
    summed: list[Length | None] = []
    for name, along in ((left, -1), (right, -2)):
        ends, own = walk.axes.get(name, {}), len(walk.shapes[name])
        summed.append(ends.get(own + along))
        for axis, length in ends.items():
            if axis != own + along and axes.setdefault(axis + rank - own, length) != length:
                raise _refused(node, "its inputs are not of one length")
    if summed[0] != summed[1]:
        raise _refused(node, "it has a weight for each place")
    if summed[0]:
        # What is beyond the end of the other one counts 0 times then.
        node.input[0] = walk.zeroed(left, len(walk.shapes[left]) - 1)
    walk.copy(node)
    return axes


def _softmax(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Softmax along one axis, over what counts."""
    value = node.input[0]
    rank = len(walk.shapes[value])
    axis = _attributes(node).get("axis", -1) % rank
    # Before opset 13 all axes from that one on are taken together.
    if axis != rank - 1:
        raise _refused(node, "it is not along the last axis")
    if axis in walk.axes[value]:
        node.input[0] = walk.lowered(value, axis)
        walk.is_zero_beyond(node.output[0], axis)
    walk.copy(node)
    return walk.axes[value]


def _transposed(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Axes in another order."""
    value = node.input[0]
    order = _attributes(node).get("perm") or list(range(len(walk.shapes[value])))[::-1]
    walk.copy(node)
    return {order.index(axis): length for axis, length in walk.axes[value].items()}


def _reshaped(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Another shape of the same values, in which what ends early is an axis of its own."""
    before, after = walk.shapes[node.input[0]], walk.shapes[node.output[0]]
    axes = {}
    for axis, length in walk.axes[node.input[0]].items():
        found = [
            place
            for place, size in enumerate(after)
            if size == before[axis] and math.prod(after[:place]) == math.prod(before[:axis])
        ]
        if not found:
            raise _refused(node, "it takes the axis apart, or together with others")
        axes[found[-1]] = length
    walk.copy(node)
    return axes


def _apart(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """A part of a value, which has all of each axis that ends early."""
    before, after = walk.shapes[node.input[0]], walk.shapes[node.output[0]]
    axes, steps = walk.axes[node.input[0]], node.input[4:5]
    forwards = all((walk.known[name] > 0).all() if name in walk.known else not name for name in steps)
    if not forwards or any(before[axis] != after[axis] for axis in axes):
        raise _refused(node, "it takes a part of the axis, or in another order")
    walk.copy(node)
    return axes


def _joined(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Values one after the other along another axis."""
    along = _attributes(node)["axis"] % len(walk.shapes[node.output[0]])
    axes = walk.axes.get(node.input[0], {})
    if along in axes or any(walk.axes.get(name, {}) != axes for name in node.input):
        raise _refused(node, "its inputs are not of one length, or are joined along it")
    walk.copy(node)
    return axes


_RULES: dict[str, Callable[[_Walk, onnx.NodeProto], Axes]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(("AveragePool", "Conv", "MaxPool"), _windowed),
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean"), _mean),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), _reshaped),
    "BatchNormalization": _normalised,
    "Concat": _joined,
    "MatMul": _product,
    "Slice": _apart,
    "Softmax": _softmax,
    "Transpose": _transposed,
}
