"""One node of a tmfile while it is being translated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgedeploy.compile.quantisation import AWAY_FROM_ZERO
from edgedeploy.errors import ModelError
from edgedeploy.frontends.graph import Graph, Shape
from edgedeploy.frontends.tengine.structure import Node, Quantisation, Structure, Tensor
from edgedeploy.tail.program import Attribute


class Constants:
    """The constants of a tmfile in the graph, each in the shapes that it is used in.

    Args:
        structure: the file's content.
        graph: the graph that they are added to.
    """

    def __init__(self, structure: Structure, graph: Graph) -> None:
        self._tensors = structure.tensors
        self._graph = graph
        self._names: dict[tuple[int, Shape], str] = {}
        # float16 doubles, and a constant may be needed in two shapes. A file that wants more does so on purpose.
        self._left = 4 * structure.size + 2**20

    def add(self, index: int, shape: Shape) -> str:
        """The value of the constant tensor `index` in a shape of as many values, as float32.

        Raises:
            ModelError: it holds integers, or the constants grow far beyond the file's size.
        """
        if (index, shape) not in self._names:
            tensor = self._tensors[index]
            assert tensor.values is not None
            if tensor.quantisation is not None:
                self._names[index, shape] = self._dequantised(tensor, tensor.quantisation, shape)
                return self._names[index, shape]
            if tensor.values.dtype.kind != "f":
                raise ModelError("its weights are integers", why=f"tensor {tensor.name!r} is {tensor.values.dtype}")
            self.reserve(4 * tensor.values.size)
            values = tensor.values.reshape(shape).astype(np.float32, copy=False)
            self._names[index, shape] = self._graph.constant(values, tensor.name)
        return self._names[index, shape]

    def bias(self, index: int, scale: np.ndarray) -> str:
        """A bias of integers that are added to sums of this scale, one or one for each value."""
        tensor = self._tensors[index]
        assert tensor.values is not None
        if scale.ndim and scale.shape != tensor.values.shape:
            raise ModelError("its weights and its bias do not suit each other", why=f"{scale.size} scales are there")
        return self._dequantised(tensor, Quantisation(scale, np.zeros(scale.shape, np.int32)), tensor.values.shape)

    def _dequantised(self, tensor: Tensor, quantisation: Quantisation, shape: Shape) -> str:
        assert tensor.values is not None
        if quantisation.scale.ndim and shape[:1] != quantisation.scale.shape:
            raise ModelError("its weights have scales along another axis than that of outputs")
        if quantisation.zero_point.dtype == np.int16:
            return self._as_floats(tensor, quantisation, shape)
        self.reserve(tensor.values.nbytes)
        integers = self._graph.constant(tensor.values.reshape(shape), f"{tensor.name}/integers")
        return self._graph.node("DequantizeLinear", integers, *steps(self._graph, tensor, quantisation), axis=0)

    def _as_floats(self, tensor: Tensor, quantisation: Quantisation, shape: Shape) -> str:
        """What integers of 16 bits stand for: the opset that is written has none of them."""
        assert tensor.values is not None
        self.reserve(4 * tensor.values.size)
        along = (-1, *[1] * (len(shape) - 1)) if quantisation.scale.ndim else ()
        scale, zero_point = (each.reshape(along) for each in (quantisation.scale, quantisation.zero_point))
        integers = tensor.values.reshape(shape).astype(np.int32) - zero_point
        return self._graph.constant(integers.astype(np.float32) * scale, tensor.name)

    def reserve(self, size: int) -> None:
        """Ask for memory, in bytes.

        Raises:
            ModelError: the constants grow far beyond the file's size.
        """
        self._left -= size
        if self._left < 0:
            raise ModelError("its constants are many times larger than the file")


def steps(graph: Graph, tensor: Tensor, quantisation: Quantisation) -> tuple[str, str]:
    """Scale and zero point as constants."""
    return (
        graph.constant(quantisation.scale, f"{tensor.name}/scale"),
        graph.constant(quantisation.zero_point, f"{tensor.name}/zero_point"),
    )


def rounded(graph: Graph, value: str, tensor: Tensor, quantisation: Quantisation) -> str:
    """A value as the integers of a tensor can hold it: halves away from zero; of int8 Tengine does not use -128.

    To integers of 16 bits, for which Tengine has no kernels on CPUs, it is rounded in float, halves to even.
    """
    if quantisation.zero_point.dtype == np.int16:
        return _rounded_in_float(graph, value, tensor, quantisation)
    scale, zero_point = steps(graph, tensor, quantisation)
    if quantisation.zero_point.dtype == np.int8:
        low, high = ((np.float32(end) - quantisation.zero_point) * quantisation.scale for end in (-127, 127))
        bounds = [graph.constant(np.asarray(bound, np.float32), f"{tensor.name}/bound") for bound in (low, high)]
        value = graph.node("Clip", value, *bounds, name=f"{tensor.name}/clip")
    away = graph.constant(AWAY_FROM_ZERO, f"{tensor.name}/away")
    value = graph.node("Mul", value, away, name=f"{tensor.name}/away")
    integers = graph.node("QuantizeLinear", value, scale, zero_point, name=f"{tensor.name}/integers")
    return graph.node("DequantizeLinear", integers, scale, zero_point, name=tensor.name)


def _rounded_in_float(graph: Graph, value: str, tensor: Tensor, quantisation: Quantisation) -> str:
    limits = np.iinfo(quantisation.zero_point.dtype)
    bounds = (
        np.asarray(end - quantisation.zero_point.astype(np.int32), np.float32) for end in (limits.min, limits.max)
    )
    low, high = (graph.constant(bound, f"{tensor.name}/bound") for bound in bounds)
    scale = graph.constant(quantisation.scale, f"{tensor.name}/scale")
    value = graph.node("Div", value, scale, name=f"{tensor.name}/steps")
    value = graph.node("Clip", value, low, high, name=f"{tensor.name}/clip")
    value = graph.node("Round", value, name=f"{tensor.name}/integers")
    return graph.node("Mul", value, scale, name=tensor.name)


class Operation:
    """A node with what its translation needs.

    Args:
        node: the node.
        structure: the file's content.
        graph: what is being written.
        constants: of the file.
        values: names of values in the graph by number of the tensor, as far as they are written.

    Attributes:
        parameters: the node's, by name.
        graph: what is being written.
        constants: of the file.
        names: what the node's outputs are to be called; those that are rounded afterwards get another name then.
    """

    def __init__(
        self, node: Node, structure: Structure, graph: Graph, constants: Constants, values: dict[int, str]
    ) -> None:
        self.parameters = node.parameters
        self.graph = graph
        self.constants = constants
        written = [structure.tensors[index] for index in node.outputs]
        self.names = [f"{each.name}/real" if each.quantisation else each.name for each in written]
        self._inputs: list[int] = node.inputs.tolist()
        self._tensors = structure.tensors
        self._values = values

    @property
    def inputs(self) -> int:
        """How many inputs the node has."""
        return len(self._inputs)

    def value(self, position: int = 0) -> str:
        """The input at a position.

        Raises:
            ModelError: there are not as many.
        """
        index = self._index(position)
        if index in self._values:
            return self._values[index]
        values = self._tensors[index].values
        assert values is not None  # what is not constant was written before
        return self.constants.add(index, values.shape)

    def shape(self, position: int = 0) -> Shape:
        """The shape of the input at a position; errors are those of `value`."""
        return self.graph.shape(self.value(position))

    def feature_map(self) -> tuple[int, int, int, int]:
        """Batch, channels, height and width of the first input.

        Raises:
            ModelError: it has another number of dimensions.
        """
        shape = self.shape()
        if len(shape) != 4:
            raise ModelError("it needs four dimensions", why=f"its input has the shape {_stated(shape)}")
        return shape

    def weights(self, position: int, shape: Shape) -> str:
        """A constant input, in a shape.

        Raises:
            ModelError: it is not constant, or has another number of values.
        """
        index = self._index(position)
        values = self._tensors[index].values
        if values is None:
            raise ModelError("its weights are not constant", why=f"its input {position} is computed")
        if values.size != math.prod(shape):
            raise ModelError(
                "its weights do not suit its input", why=f"{_stated(values.shape)} are there, not {_stated(shape)}"
            )
        if values.dtype == np.int32 and position > 1:
            data, weights = (self._tensors[self._index(place)].quantisation for place in (0, 1))
            if data is not None and weights is not None:
                return self.constants.bias(index, np.asarray(data.scale * weights.scale))
        return self.constants.add(index, shape)

    def has_several_scales(self, position: int) -> bool:
        """Whether an input has a scale for each place on its first axis."""
        quantisation = self._tensors[self._index(position)].quantisation
        return quantisation is not None and quantisation.scale.size > 1

    def stated(self, position: int) -> Shape:
        """The shape that the file states of an input, or none."""
        return self._tensors[self._index(position)].shape or ()

    def finish(self, operator: str, *inputs: str, **attributes: Attribute) -> list[str]:
        """Write the node that gives the output."""
        return [self.graph.node(operator, *inputs, name=self.names[0], **attributes)]

    def step(self, operator: str, *inputs: str, **attributes: Attribute) -> str:
        """Write a node on the way to the output."""
        return self.graph.node(operator, *inputs, name=f"{self.names[0]}/{operator.lower()}", **attributes)

    def clipped(self, value: str, low: float, high: float) -> list[str]:
        """Write the node that gives the output: a value between bounds."""
        return self.finish("Clip", value, self.number(low), self.number(high))

    def integers(self, values: Sequence[int]) -> str:
        """A constant int64 vector, such as a shape or axes."""
        return self.graph.constant(np.array(values, np.int64), f"{self.names[0]}/integers")

    def number(self, value: float) -> str:
        """A constant float32 number, infinite if it is too large for one."""
        with np.errstate(over="ignore"):
            return self.graph.constant(np.array(value, np.float32), f"{self.names[0]}/number")

    def reshaped(self, value: str, shape: Sequence[int]) -> str:
        """A value in another shape."""
        return value if self.graph.shape(value) == tuple(shape) else self.step("Reshape", value, self.integers(shape))

    def axis(self, axis: int) -> int:
        """An axis of the first input; negative ones count from the end.

        Raises:
            ModelError: it has no such axis.
        """
        rank = len(self.shape())
        if not -rank <= axis < rank:
            raise ModelError(f"there is no axis {axis}", why=f"its input has the shape {_stated(self.shape())}")
        return axis % rank

    def _index(self, position: int) -> int:
        if position >= len(self._inputs):
            raise ModelError("inputs are missing", why=f"it has {len(self._inputs)}, and needs {position + 1} or more")
        return self._inputs[position]


Converter = Callable[[Operation], list[str]]


def _stated(shape: Shape) -> str:
    return "x".join(map(str, shape))
