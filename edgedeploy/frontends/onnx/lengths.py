"""ONNX models of one shape for inputs of several lengths: another input states how much of an axis counts.

Such a model gives the same as the model for exactly that length, up to rounding. Where a node looks along the axis,
values beyond the end are replaced by those of the shorter model: zero where convolutions pad, nothing in means and sums
of products, minus infinity in softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgedeploy.errors import InputError, UnsupportedError
from edgedeploy.frontends.format import length_name
from edgedeploy.frontends.onnx.folding import folded
from edgedeploy.frontends.onnx.nodes import attributes_of, replace_nodes, title_of
from edgedeploy.frontends.onnx.values import KnownValues

# Softmax makes 0 of it. Minus infinity would be NaN times 0, as where nothing is beyond the end.
_LOW = -1e9

_SEVERAL = "several of its axes end early"
_UNEQUAL = "its inputs differ in length"

# How many places of an axis count, for each value of the input of lengths; the last one is the whole axis.
Length = tuple[int, ...]
Axes = Mapping[int, Length]  # the axes of a value that end early


def with_lengths(path: Path, model: onnx.ModelProto, lengths: Mapping[str, int]) -> onnx.ModelProto:
    """The model of a file with the lengths of some inputs, each along one axis, as inputs; see `with_length`."""
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in model.graph.input}
    for name, axis in lengths.items():
        if not 0 <= axis < ranks.get(name, 0):
            raise InputError(
                f"{path}: axis {axis} of input {name!r} cannot have a length",
                why="there is no such input" if name not in ranks else f"it has {ranks[name]} axes",
                hints=[f"inputs: {', '.join(ranks)}"],
            )
        model = with_length(model, name, axis)
    return model


def with_length(model: onnx.ModelProto, name: str, axis: int) -> onnx.ModelProto:
    """The model with one more input, int64 of shape 1, called `length_name(name)`: the length of an axis.

    Outputs are 0 beyond their end. A length of 0 counts as 1; with an invalid length, nothing counts. Values beyond the
    end of the input are multiplied by 0: they and all that follows from them must be finite. Inputs have fixed shapes,
    that one its longest. The model may be changed in place.
    """
    model = folded(model)
    graph = model.graph
    walk = _Walk(model, length_name(name))
    walk.axes[name] = {axis: tuple(max(1, each) for each in range(walk.shapes[name][axis] + 1))}
    for node in graph.node:
        walk.visit(deepcopy(node))
    replace_nodes(graph, walk.nodes)
    graph.initializer.extend(walk.constants.values())
    graph.input.append(helper.make_tensor_value_info(walk.input, TensorProto.INT64, [1]))
    return model


class _Walk:
    """A walk along a model's nodes, which copies them and adds masks where they need some."""

    def __init__(self, model: onnx.ModelProto, input: str) -> None:
        self.shapes = {value: shape for value, (_, shape) in KnownValues(model, 0).shapes.items()}
        self.weights = {weight.name: weight for weight in model.graph.initializer}
        self.input = input  # the one that states the length
        self._outputs = {output.name for output in model.graph.output}
        self.axes: dict[str, Axes] = {}  # those of each value that end early
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[tuple[bytes, tuple[int, ...]], TensorProto] = {}
        self.zero_beyond: set[tuple[str, int]] = set()  # values and axes beyond whose end they are 0
        self._made: dict[tuple[str, ...], str] = {}
        self._after: list[onnx.NodeProto] = []

    def visit(self, node: onnx.NodeProto) -> None:
        """Add a node, whose inputs are replaced where they need a mask."""
        if any(each.HasField("g") or each.graphs for each in node.attribute):
            raise _refused(node, "the graphs inside it are not followed")
        if not any(self.axes.get(name) for name in node.input):
            self.nodes.append(node)
            return
        rule, [output, *others] = _RULES.get(node.op_type), node.output
        if rule is None or others:
            raise _refused(node, "no rule for this operator is known")
        self.axes[output] = rule(self, node)
        self.nodes += [node, *self._after]
        self._after = []
        if output in self._outputs and self.axes[output]:
            if len(self.axes[output]) > 1:
                raise _refused(node, _SEVERAL)
            [axis] = self.axes[output]
            self._swap_names(output, self.zeroed(output, axis))
            self.zero_beyond.add((output, axis))

    def zeroed(self, value: str, axis: int) -> str:
        """A value with 0 beyond the end of an axis."""
        return value if (value, axis) in self.zero_beyond else self._add("Mul", value, self._mask(value, axis))

    def lowered(self, value: str, axis: int) -> str:
        """A value with very low numbers beyond the end of an axis."""
        beyond = self._add("Sub", self._mask(value, axis), self._constant(1))
        return self._add("Add", value, self._add("Mul", beyond, self._constant(-_LOW)))

    def scale_mean(self, node: onnx.NodeProto, length: Length) -> None:
        """Divide the mean of a whole axis by the share of it that counts."""
        factor = self._looked_up(length[-1] / np.array(length))
        output = node.output[0]
        node.output[0] = f"{output}/of all"
        self._after = [helper.make_node("Mul", [node.output[0], factor], [output], name=f"{output}/of {factor}")]

    def _mask(self, value: str, axis: int) -> str:
        """A mask, 1 for each place of an axis that counts and 0 beyond, in a shape that fits the value."""
        length, following = self.axes[value][axis], len(self.shapes[value]) - axis - 1
        places = self._constant(np.arange(length[-1]).reshape(-1, *[1] * following))
        left = self._add("Sub", self._looked_up(length), places)
        return self._add("Clip", left, self._constant(0), self._constant(1))

    def _looked_up(self, table: Length | np.ndarray) -> str:
        """The entry of a table for the length, as a float of shape 1 x 1; 0 for lengths beyond it.

        It is a sum over all lengths, one of which is equal: nothing is read from a place that the input states.
        """
        lengths = self._constant(np.arange(len(table))[None], np.int64)
        chosen = self._add("Cast", self._add("Equal", self.input, lengths), to=TensorProto.FLOAT)
        return self._add("MatMul", chosen, self._constant(np.asarray(table)[:, None]))

    def _add(self, operator: str, *inputs: str, **attributes: int) -> str:
        """The output of a node, which is added unless there is one like it."""
        key = (operator, *inputs)
        if key not in self._made:
            name = self._made[key] = f"{self.input}/{operator.lower()}{len(self._made)}"
            self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return self._made[key]

    def _constant(self, values: Any, dtype: Any = np.float32) -> str:
        """The name of a constant, which is added unless there is one like it."""
        array = np.asarray(values, dtype)
        key = array.tobytes(), array.shape
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(array, f"{self.input}/constant{len(self.constants)}")
        return self.constants[key].name

    def _swap_names(self, output: str, other: str) -> None:
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


# Rules return the axes of the node's output that end early. They may replace the node's inputs.


def _elementwise(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Each place by itself; axes are aligned at the last."""
    rank = len(walk.shapes[node.output[0]])
    offsets = {name: rank - len(walk.shapes[name]) for name in filter(None, node.input)}
    axes: dict[int, Length] = {}
    for name, offset in offsets.items():
        for axis, length in walk.axes.get(name, {}).items():
            if axes.setdefault(axis + offset, length) != length:
                raise _refused(node, _UNEQUAL)
    for name, offset in offsets.items():
        own = [place - offset for place in axes if place >= offset]
        if any(walk.shapes[name][place] > 1 and place not in walk.axes.get(name, {}) for place in own):
            raise _refused(node, f"its input {name!r} has a value for each place")
    return axes


def _normalised(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Each place by itself, by factors for each channel."""
    axes = walk.axes[node.input[0]]
    if 1 in axes or any(walk.axes.get(name) for name in node.input[1:]):
        raise _refused(node, "it has values for each place")
    return axes


def _windowed(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Convolutions and pooling: windows over the axes after the second."""
    value, attributes = node.input[0], attributes_of(node)
    if any(walk.axes.get(name) for name in node.input[1:]) or walk.axes[value].keys() & {0, 1}:
        raise _refused(node, "its window does not move along the axis that ends early")
    if attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or attributes.get("ceil_mode"):
        raise _refused(node, "its padding depends on the length")
    if len(walk.axes[value]) > 1:
        raise _refused(node, _SEVERAL)
    [(axis, length)] = walk.axes[value].items()
    place, count = axis - 2, len(walk.shapes[value]) - 2
    kernel = attributes.get("kernel_shape") or list(walk.shapes[node.input[1]][2:])
    stride, dilation = (attributes.get(name, [1] * count)[place] for name in ("strides", "dilations"))
    before, after = attributes.get("pads", [0] * 2 * count)[place::count]
    extent = dilation * (kernel[place] - 1)
    if before or after:
        if node.op_type != "Conv":
            raise _refused(node, "its padding does not count as zeros do")
        node.input[0] = walk.zeroed(value, axis)
    return {axis: tuple(max(1, (each + before + after - extent - 1) // stride + 1) for each in length)}


def _mean(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """The mean over axes: of those that end early, over the places that count."""
    value, attributes = node.input[0], attributes_of(node)
    rank = len(walk.shapes[value])
    stated = range(2, rank) if node.op_type == "GlobalAveragePool" else attributes.get("axes")
    if stated is None:
        raise _refused(node, "its axes are not stated as an attribute")
    over = {axis % rank for axis in stated}
    ended = [axis for axis in walk.axes[value] if axis in over]
    if len(ended) > 1:
        raise _refused(node, _SEVERAL)
    for axis in ended:
        node.input[0] = walk.zeroed(value, axis)
        walk.scale_mean(node, walk.axes[value][axis])
    left = {axis: length for axis, length in walk.axes[value].items() if axis not in over}
    if attributes.get("keepdims", 1):
        return left
    return {axis - sum(each < axis for each in over): length for axis, length in left.items()}


def _product(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Matrix products, whose sums are over the places that count."""
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
                raise _refused(node, _UNEQUAL)
    if summed[0] != summed[1]:
        raise _refused(node, "it has a weight for each place")
    if summed[0]:  # the other one's values beyond the end then count 0 times
        node.input[0] = walk.zeroed(left, len(walk.shapes[left]) - 1)
    return axes


def _softmax(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Softmax along one axis, over the places that count."""
    value = node.input[0]
    rank = len(walk.shapes[value])
    axis = attributes_of(node).get("axis", -1) % rank
    # Before opset 13 all axes from that one on are taken together.
    if axis != rank - 1:
        raise _refused(node, "it is not along the last axis")
    if axis in walk.axes[value]:
        node.input[0] = walk.lowered(value, axis)
        walk.zero_beyond.add((node.output[0], axis))
    return walk.axes[value]


def _transposed(walk: _Walk, node: onnx.NodeProto) -> Axes:
    value = node.input[0]
    order = attributes_of(node).get("perm") or list(range(len(walk.shapes[value])))[::-1]
    return {order.index(axis): length for axis, length in walk.axes[value].items()}


def _reshaped(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Another shape of the same values, in which an axis that ends early remains one axis."""
    before, after = walk.shapes[node.input[0]], walk.shapes[node.output[0]]
    axes = {}
    for axis, length in walk.axes[node.input[0]].items():
        found = [
            place
            for place, size in enumerate(after)
            if size == before[axis] and math.prod(after[:place]) == math.prod(before[:axis])
        ]
        if not found:
            raise _refused(node, "it splits the axis, or joins it with others")
        axes[found[-1]] = length
    return axes


def _sliced(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """A part of a value, with all of each axis that ends early."""
    before, after = walk.shapes[node.input[0]], walk.shapes[node.output[0]]
    axes, steps = walk.axes[node.input[0]], [walk.weights.get(name) for name in node.input[4:5] if name]
    forwards = all(each is not None and (numpy_helper.to_array(each) > 0).all() for each in steps)
    if not forwards or any(before[axis] != after[axis] for axis in axes):
        raise _refused(node, "it takes a part of the axis, or in another order")
    return axes


def _joined(walk: _Walk, node: onnx.NodeProto) -> Axes:
    """Values one after the other along another axis."""
    along = attributes_of(node)["axis"] % len(walk.shapes[node.output[0]])
    axes = walk.axes.get(node.input[0], {})
    if along in axes or any(walk.axes.get(name, {}) != axes for name in node.input):
        raise _refused(node, f"{_UNEQUAL}, or are joined along it")
    return axes


_RULES: dict[str, Callable[[_Walk, onnx.NodeProto], Axes]] = {
    **dict.fromkeys(
        (
            "Abs", "Add", "Cast", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity",
            "LeakyRelu", "Log", "Max", "Min", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Selu", "Sigmoid",
            "Softplus", "Sqrt", "Sub", "Sum", "Tanh", "Where",
        ),
        _elementwise,
    ),
    **dict.fromkeys(("AveragePool", "Conv", "MaxPool"), _windowed),
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean"), _mean),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), _reshaped),
    "BatchNormalization": _normalised,
    "Concat": _joined,
    "MatMul": _product,
    "Slice": _sliced,
    "Softmax": _softmax,
    "Transpose": _transposed,
}  # fmt: skip
