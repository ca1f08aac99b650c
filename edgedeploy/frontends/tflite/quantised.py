"""Quantised tensors of TensorFlow Lite's files, as float operators with quantize and dequantize around them.

A number of a quantised tensor stands for `(number - zero_point) * scale`
(ai.google.dev/edge/litert/models/quantization_spec). Translations see such tensors as float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tflite import Model, TensorType
from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter, TensorWrapper, get_tensor_name

from edgedeploy.compile.ir.expressions import constant
from edgedeploy.errors import ModelError
from edgedeploy.frontends.tflite.reference import name_of
from edgedeploy.model.tensors import Steps, TensorSpec

# Operators with weights that stay integers: the places of data, weights and bias among their inputs.
_WEIGHTED = {
    "BATCH_MATMUL": (0, 1, 2),
    "CONV_2D": (0, 1, 2),
    "DEPTHWISE_CONV_2D": (0, 1, 2),
    "FULLY_CONNECTED": (0, 1, 2),
    "TRANSPOSE_CONV": (2, 1, 3),
}
# Those whose bias is added to feature maps, channels last.
_WINDOWED = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")

# Operators that move numbers as they are, regardless of the scale of their output.
_COPIES = (
    *("DEPTH_TO_SPACE", "EXPAND_DIMS", "GATHER", "RESHAPE", "REVERSE_V2", "SLICE", "SPACE_TO_DEPTH", "SPLIT"),
    *("SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK"),
)
# The dtypes that the integers of quantised tensors are stored in.
_STORED = {TensorType.INT4: "int8", TensorType.INT8: "int8", TensorType.INT16: "int16", TensorType.UINT8: "uint8"}

_OF_INTEGERS = ("BITCAST", "CAST")  # operators that read integers as such, though their tensor has a scale


@dataclass(frozen=True)
class Quantisation:
    """The quantisation of a tensor."""

    scale: np.ndarray  # float32, one or one for each place on an axis
    zero_point: np.ndarray  # int32, of the same shape
    axis: int  # that axis; -1 without one
    dtype: str  # of the integers; those of four bits are stored in int8

    @classmethod
    def of(cls, tensor: Any) -> Quantisation | None:
        """The quantisation of a tensor of the schema; None if it holds plain numbers."""
        dtype, table = _STORED.get(tensor.Type()), tensor.Quantization()
        if dtype is None or table is None or not (table.ScaleLength() or table.DetailsType()):
            return None
        name = name_of(tensor)
        if table.DetailsType():
            raise ModelError(f"tensor {name!r} is quantised in blocks, or by an operator of its own")
        scale = np.atleast_1d(table.ScaleAsNumpy()).astype(np.float32)
        zeros = table.ZeroPointAsNumpy() if table.ZeroPointLength() else np.zeros(len(scale))
        zero_point = np.broadcast_to(np.atleast_1d(zeros), scale.shape) if np.size(zeros) in (1, len(scale)) else None
        axis, shape = table.QuantizedDimension(), [tensor.Shape(each) for each in range(tensor.ShapeLength())]
        per_axis = len(scale) > 1
        if per_axis and not (0 <= axis < len(shape) and shape[axis] == len(scale)):
            raise ModelError(f"tensor {name!r} has {len(scale)} scales", why=f"its shape is {shape}, the axis {axis}")
        limits = np.iinfo(dtype)
        if zero_point is None or not (np.isfinite(scale) & (scale > 0)).all():
            raise ModelError(f"the scales or zero points of tensor {name!r} make no sense")
        if ((zero_point < limits.min) | (zero_point > limits.max)).any():
            raise ModelError(f"a zero point of tensor {name!r} is not in {dtype}", why=f"of {zero_point.tolist()[:8]}")
        whole = scale.shape if per_axis else ()
        return cls(scale.reshape(whole), zero_point.astype(np.int32).reshape(whole), axis if per_axis else -1, dtype)

    @property
    def steps(self) -> Steps | None:
        """The scale and zero point; None with several."""
        return None if self.scale.ndim else Steps(scale=self.scale.item(), zero_point=self.zero_point.item())

    def quantised(self, value: Any) -> Any:
        """The integers of real numbers, float32."""
        return relax.op.quantize(value, *self._constants, axis=self.axis, out_dtype=self.dtype)

    def dequantised(self, integers: Any) -> Any:
        """The real numbers of integers, float32."""
        return relax.op.dequantize(integers, *self._constants, axis=self.axis)

    def real(self, integers: np.ndarray) -> np.ndarray:
        """The real numbers of stored integers, float32."""
        along = [-1 if place == self.axis else 1 for place in range(integers.ndim)] if self.scale.ndim else []
        centred = integers.astype(np.int32) - self.zero_point.reshape(along)
        return np.asarray(centred.astype(np.float32) * self.scale.reshape(along))

    @cached_property
    def _constants(self) -> tuple[Any, Any]:
        return constant(self.scale), constant(self.zero_point)


def quantisations_of(content: bytes) -> dict[str, Quantisation]:
    """The quantisation of each quantised tensor of a file, by name."""
    graph = Model.GetRootAs(content, 0).Subgraphs(0)
    tensors = [graph.Tensors(index) for index in range(graph.TensorsLength())]
    return {name_of(tensor): found for tensor in tensors if (found := Quantisation.of(tensor)) is not None}


def with_steps(specs: Sequence[TensorSpec], quantisations: Mapping[str, Quantisation]) -> list[TensorSpec]:
    """Inputs or outputs, with the steps of quantised ones."""
    found = [(spec, quantisations.get(spec.name)) for spec in specs]
    return [
        spec.model_copy(update={"steps": own.steps}) if own and own.dtype == spec.dtype else spec for spec, own in found
    ]


class QuantisedConverter(OperatorConverter):
    """Shows quantised tensors to converters as float32, and quantises their results.

    Weights and biases remain integer constants below dequantize. The scale of a bias is the product of those of data
    and weights, as in LiteRT, which ignores the file's.
    """

    def __init__(self, model: Any, subgraph: Any, expressions: Any, builder: Any, *others: Any) -> None:
        super().__init__(model, subgraph, expressions, builder, *others)
        self._integers: dict[int, Any] = {}  # the integers of quantised tensors
        self._is_done = False

    def convert_op_to_relax(self) -> None:
        """Convert all operators; tensors have the file's own types afterwards."""
        for place in map(int, self._indices_or_empty(self.subgraph.InputsAsNumpy())):
            quantisation = Quantisation.of(self.subgraph.Tensors(place))
            if quantisation is not None:
                self._integers[place] = self.get_expr(place)
                self._set(place, quantisation.dequantised(self._integers[place]))
        super().convert_op_to_relax()
        self._is_done = True

    def get_tensors(self, tensors_idx_list: Any) -> list[Any]:
        """Tensors by their places, quantised ones as float32."""
        return [self._wrapped(int(place)) for place in self._indices_or_empty(tensors_idx_list)]

    def get_tensor_value(self, tensor_wrapper: Any, is_sparse: bool = False) -> np.ndarray:
        """The stored values of a tensor; of a quantised one the real numbers, or the integers after conversion."""
        quantisation = getattr(tensor_wrapper.tensor, "quantisation", None)
        if quantisation is None:
            return np.asarray(super().get_tensor_value(tensor_wrapper, is_sparse))
        return np.asarray(quantisation.real(self._stored(tensor_wrapper.tensor_idx)))

    def get_expr(self, input_tensor_idx: int) -> Any:
        """The expression of a tensor, or its constant."""
        if self.has_expr(input_tensor_idx):
            return super().get_expr(input_tensor_idx)
        return self.get_tensor_expr(self._wrapped(int(input_tensor_idx)))

    def get_tensor_expr(self, tensor: Any, is_sparse: bool = False) -> Any:
        """The expression of a tensor: float32 for converters, integers after conversion."""
        if self._is_done and tensor.tensor_idx in self._integers:
            return self._integers[tensor.tensor_idx]
        return super().get_tensor_expr(tensor, is_sparse)

    def prepare(self, name: str, op: Any) -> None:
        """Write the weights and the bias of an operator as integers, before it is converted."""
        tensors = self.get_input_tensors(op)
        if name in _OF_INTEGERS and any(hasattr(each.tensor, "quantisation") for each in tensors):
            raise ModelError("it reads the integers of a quantised tensor as they are")
        data, weights, bias = (
            int(op.Inputs(place)) if place < op.InputsLength() else -1 for place in _WEIGHTED.get(name, (0, 0, 0))
        )
        if name not in _WEIGHTED or min(data, weights) < 0 or not self._plain(weights).buffer.DataLength():
            return
        held = Quantisation.of(self.subgraph.Tensors(weights))
        if held is None:
            return
        self._set(weights, held.dequantised(constant(self._stored(weights))))
        given = Quantisation.of(self.subgraph.Tensors(data))
        if given is not None and bias >= 0 and self._plain(bias).buffer.DataLength():
            self._write_bias(bias, given.scale * held.scale, windowed=name in _WINDOWED)

    def quantised(self, name: str, op: Any, made: Any) -> Any:
        """The result of an operator, with each quantised output in its integers and back."""
        places = [int(place) for place in self._indices_or_empty(op.OutputsAsNumpy())]
        ways = [Quantisation.of(self.subgraph.Tensors(place)) for place in places]
        if not any(ways):
            return made
        if name not in _COPIES and any(self.subgraph.Tensors(each).Type() == TensorType.INT4 for each in places):
            raise ModelError("its output has integers of four bits, which only weights may have")
        source = Quantisation.of(self.subgraph.Tensors(int(op.Inputs(op.InputsLength() > 1 and name == "SPLIT"))))
        parts = [made] if len(places) == 1 else [made[index] for index in range(len(places))]
        for index, (place, way) in enumerate(zip(places, ways, strict=True)):
            if way is not None:
                write = source if name in _COPIES and source is not None else way
                self._integers[place] = self.bb.emit(write.quantised(parts[index]))
                parts[index] = self.bb.normalize(way.dequantised(self._integers[place]))
        return parts[0] if len(parts) == 1 else self.bb.normalize(relax.Tuple(parts))

    def _write_bias(self, place: int, scale: np.ndarray, *, windowed: bool) -> None:
        values = self._stored(place)
        if values.dtype.kind != "i":
            return
        limits = np.iinfo(np.int32)
        if values.min(initial=0) < limits.min or values.max(initial=0) > limits.max:
            raise ModelError("its bias does not fit into 32 bits")
        if scale.ndim and scale.shape != values.shape:
            raise ModelError(f"it has {scale.size} scales of weights and a bias of {values.size} values")
        shape = [1, 1, 1, -1] if windowed else [-1]
        integers = constant(values.reshape(shape), "int32")
        zero = constant(np.zeros(scale.shape, np.int32))
        axis = len(shape) - 1 if scale.ndim else -1
        self._set(place, relax.op.dequantize(integers, constant(scale, "float32"), zero, axis=axis))

    def _set(self, place: int, value: Any) -> None:
        self.exp_tab.set_expr(get_tensor_name(self.subgraph, place), self.bb.normalize(value), force_override=True)

    def _wrapped(self, place: int) -> Any:
        [wrapper] = super().get_tensors(np.array([place])) if place < 0 else [self._plain(place)]
        quantisation = None if place < 0 or self._is_done else Quantisation.of(wrapper.tensor)
        if quantisation is not None:
            wrapper.tensor = _AsFloat(wrapper.tensor, quantisation)
        return wrapper

    def _plain(self, place: int) -> Any:
        tensor = self.subgraph.Tensors(place)
        return TensorWrapper(place, tensor, self.model.Buffers(tensor.Buffer()))

    def _stored(self, place: int) -> np.ndarray:
        """The integers in the file; two of four bits share a byte, the first in its lower half."""
        wrapper = self._plain(place)
        if wrapper.tensor.Type() != TensorType.INT4:
            return np.asarray(super().get_tensor_value(wrapper))
        packed = np.asarray(wrapper.buffer.DataAsNumpy()).view(np.int8)
        halves = np.stack([packed << 4 >> 4, packed >> 4], axis=-1).ravel()
        shape = [int(wrapper.tensor.Shape(axis)) for axis in range(wrapper.tensor.ShapeLength())]
        return halves[: int(np.prod(shape))].reshape(shape)


class _AsFloat:
    """A tensor of the schema that claims to be float32; methods have the schema's names."""

    def __init__(self, tensor: Any, quantisation: Quantisation) -> None:
        self._tensor = tensor
        self.quantisation = quantisation

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)

    def Type(self) -> int:  # noqa: N802
        return int(TensorType.FLOAT32)

    def Quantization(self) -> None:  # noqa: N802
        return None
