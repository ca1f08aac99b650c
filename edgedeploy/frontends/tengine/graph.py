"""A tmfile's network being converted node by node."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.graph import Graph, Shape, Value, times
from edgedeploy.frontends.tengine.structure import Node, Quantisation, Structure, Tensor

Choice = TypeVar("Choice")


class TengineGraph(Graph):
    """A network up to some node. Its values have the names of the file's tensors."""

    parameters: dict[str, Any]  # of the current node, by name
    outputs: int  # how many outputs the current node has
    _inputs_of_node: list[int]

    def __init__(self, structure: Structure) -> None:
        super().__init__(structure.path.stem)
        self.values: dict[int, Value] = {}  # that are computed, by number of the tensor
        self._tensors = structure.tensors
        self._constants: dict[tuple[int, Shape], Value] = {}
        # float16 doubles, and a constant may be needed in two shapes. A file that wants more does so on purpose.
        self._left = 4 * structure.size + 2**20

    def begin_node(self, node: Node) -> list[str]:
        """Begin a node; returns the names of its outputs before they are rounded."""
        self.parameters, self.outputs, self._inputs_of_node = node.parameters, node.outputs.size, node.inputs.tolist()
        written = [self._tensors[index] for index in node.outputs]
        names = [f"{tensor.name}/real" if tensor.quantisation else tensor.name for tensor in written]
        self.begin(f"{names[0]}/")
        return names

    @property
    def inputs(self) -> int:
        """How many inputs the node has."""
        return len(self._inputs_of_node)

    def value(self, position: int = 0) -> Value:
        """The input at a position."""
        index = self._index(position)
        return self.values[index] if index in self.values else self._constant(index)

    def feature_map(self) -> tuple[int, int, int, int]:
        """Batch, channels, height and width of the first input, which must have them."""
        shape = self.value().shape
        if len(shape) != 4:
            raise ModelError("it needs four dimensions", why=f"its input has the shape {times(shape)}")
        return shape

    def channels(self) -> int:
        """The channels of the first input."""
        shape = self.value().shape
        if len(shape) < 2:
            raise ModelError("its input has no channels", why=f"its shape is {shape}")
        return shape[1]

    def weights(self, position: int, shape: Shape) -> Value:
        """A constant input, in a shape."""
        index = self._index(position)
        values = self._tensors[index].values
        if values is None:
            raise ModelError("its weights are not constant", why=f"its input {position} is computed")
        if values.size != math.prod(shape):
            raise ModelError(
                "its weights do not suit its input", why=f"{times(values.shape)} are there, not {times(shape)}"
            )
        if values.dtype == np.int32 and position > 1:  # a bias, added to sums of the scale of the other two
            data, weights = (self._tensors[self._index(place)].quantisation for place in (0, 1))
            if data is not None and weights is not None:
                scale = np.asarray(data.scale * weights.scale)
                if scale.ndim and scale.shape != values.shape:
                    why = f"{scale.size} scales are there"
                    raise ModelError("its weights and its bias do not suit each other", why=why)
                steps = Quantisation(scale, np.zeros(scale.shape, np.int32))
                return self._dequantised(self._tensors[index], steps, values.shape)
        return self._constant(index, shape)

    def has_several_scales(self, position: int) -> bool:
        """Whether an input has a scale for each place on its first axis."""
        quantisation = self._tensors[self._index(position)].quantisation
        return quantisation is not None and quantisation.scale.size > 1

    def stated(self, position: int) -> Shape:
        """The shape that the file states of an input, or an empty one."""
        return self._tensors[self._index(position)].shape or ()

    def one_of(self, parameter: str, choices: Sequence[Choice]) -> Choice:
        """The choice that a parameter numbers from 0, such as a kind."""
        number = self.parameters[parameter]
        if not 0 <= number < len(choices):
            raise ModelError(f"its {parameter} {number} is not known")
        return choices[number]

    def axis(self, axis: int) -> int:
        """An axis of the first input; negative ones count from the end."""
        shape = self.value().shape
        if not -len(shape) <= axis < len(shape):
            raise ModelError(f"there is no axis {axis}", why=f"its input has the shape {times(shape)}")
        return axis % len(shape)

    def reserve(self, size: int) -> None:
        """Count memory for constants, in bytes, against what the file's size justifies."""
        self._left -= size
        if self._left < 0:
            raise ModelError("its constants are many times larger than the file")

    def rounded(self, value: Value, tensor: Tensor) -> Value:
        """A value as the integers of a tensor can hold it, if it has any: halves away from zero, and no int8 of -128.

        For integers of 16 bits, for which Tengine has no kernels on CPUs, it is rounded in float, halves to even.
        """
        if tensor.quantisation is None:
            return value
        scale, zero_point = tensor.quantisation.scale, tensor.quantisation.zero_point
        self.begin(f"{tensor.name}/")
        if zero_point.dtype == np.int16:
            step = self.floats(scale)
            ends = np.iinfo(np.int16).min - int(zero_point), np.iinfo(np.int16).max - int(zero_point)
            value = self.node("Mul", self.node("Round", self.clip(self.node("Div", value, step), *ends)), step)
        else:
            value = self.round_half_away(value, scale, zero_point)
        return self.finish([value], [tensor.name])[0]

    def _constant(self, index: int, shape: Shape | None = None) -> Value:
        tensor = self._tensors[index]
        assert tensor.values is not None  # others were written before
        shape = tensor.values.shape if shape is None else shape
        if (index, shape) not in self._constants:
            if tensor.quantisation is not None:
                value = self._dequantised(tensor, tensor.quantisation, shape)
            elif tensor.values.dtype.kind != "f":
                raise ModelError("its weights are integers", why=f"tensor {tensor.name!r} is {tensor.values.dtype}")
            else:
                self.reserve(4 * tensor.values.size)
                value = self.constant(tensor.values.reshape(shape).astype(np.float32, copy=False), tensor.name)
            self._constants[index, shape] = value
        return self._constants[index, shape]

    def _dequantised(self, tensor: Tensor, quantisation: Quantisation, shape: Shape) -> Value:
        values, scale, zero_point = tensor.values, quantisation.scale, quantisation.zero_point
        assert values is not None
        if scale.ndim and shape[:1] != scale.shape:
            raise ModelError("its weights have scales along another axis than that of outputs")
        if zero_point.dtype == np.int16:  # which this version of ONNX lacks
            self.reserve(4 * values.size)
            along = (-1, *[1] * (len(shape) - 1)) if scale.ndim else ()
            integers = values.reshape(shape).astype(np.int32) - zero_point.reshape(along)
            return self.constant(integers.astype(np.float32) * scale.reshape(along), tensor.name)
        self.reserve(values.nbytes)
        parts = {"integers": values.reshape(shape), "scale": scale, "zero_point": zero_point}
        operands = [self.constant(part, f"{tensor.name}/{name}") for name, part in parts.items()]
        return self.node("DequantizeLinear", *operands, name=f"{tensor.name}/dequantised", axis=0)

    def _index(self, position: int) -> int:
        if position >= self.inputs:
            raise ModelError("inputs are missing", why=f"it has {self.inputs}, and needs {position + 1} or more")
        return self._inputs_of_node[position]


Converter = Callable[[TengineGraph], Value | Sequence[Value]]
