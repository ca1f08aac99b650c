"""Convolutions and products of quantised tensors, as sums of integers and their conversion to bytes.

A layer's result is `clip(rint(float32(sum + bias) * scale) + zero_point)` with `scale = float32(x_scale * w_scale) /
y_scale`, halves rounded to even: bit for bit what onnxruntime's QLinearConv and XNNPACK compute.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from edgedeploy.compile.integers.quantisation import (
    AWAY_FROM_ZERO,
    CONVERTER_BITS,
    SMALL,
    Steps,
    parameters_of,
    rounded,
    to_integers,
)
from edgedeploy.compile.ir import expressions as ir
from edgedeploy.compile.ir.optraits import Kind, is_kind, moves_values, operator_name, per_channel, tensors_of

if TYPE_CHECKING:
    from edgedeploy.compile.backends.cpu import CpuBackend


_LAYERS = "relax.nn.conv2d", "relax.matmul"

_EXACT = 2**24  # float32 holds all whole numbers below
_SHARING = 16  # the fewest output channels that share the sum of a pixel's data


def _stored(network: ir.Rewriter, expression: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """The int64 integers less their zero point, and the float32 scales, that a constant is stored as."""
    call = network.value_before(expression)
    if ir.is_call(call, "relax.dequantize"):
        integers, parameters = ir.constant_value(call.args[0]), parameters_of(call)
        if integers is None or parameters is None:
            return None
        scale, zero_point = parameters
        return integers.astype(np.int64) - zero_point, scale
    if not (moves_values(call) or ir.is_call(call, "relax.broadcast_to")):
        return None
    before = _stored(network, tensors_of(call)[0])
    if before is None:
        return None
    integers, scales = before
    return _moved(call, integers), _moved(call, np.broadcast_to(scales, integers.shape))


def _moved(call: relax.Call, value: np.ndarray) -> np.ndarray:
    """An array, of any type, after an operator that moves values."""
    if is_kind(call, Kind.RESHAPE):
        return value.reshape(ir.shape_of(call))
    if operator_name(call) == "broadcast_to":
        return np.broadcast_to(value, ir.shape_of(call))
    return value.transpose(ir.axes_of(call))


@dataclass(frozen=True)
class Activation:
    """The operators between a layer's sums and the integers of its result, other than rounding.

    `source` is the expression before them, `moves` those that only move values, the last one first. Values are
    between `low` and `high`; with `half_away`, halves are rounded away from zero then.
    """

    source: Any
    moves: tuple[relax.Call, ...] = ()
    low: float = -np.inf
    high: float = np.inf
    half_away: bool = False

    def bounds(self, steps: Steps) -> tuple[int, int]:
        """The least and the greatest integer of the result: rounding keeps the order of values."""
        low, high = (int(steps.quantised(np.float32(each))) for each in (self.low, self.high))
        return low, high

    def moved(self, emit: ir.Emitter, result: relax.Expr) -> relax.Expr:
        """A result of `source` with the moves behind it."""
        for move in reversed(self.moves):
            result = relax.Call(move.op, [emit(result), *move.args[1:]], move.attrs)
        return result


def activation_before(network: ir.Rewriter, expression: Any) -> Activation:
    """Bounds and moves that a value has passed through, back to the first value that is used elsewhere too."""
    found = Activation(expression)
    while not network.is_shared(found.source):
        call = network.value_before(found.source)
        limits = _limits(call)
        if limits:
            low, high = (float(np.clip(each, found.low, found.high)) for each in limits[1:])
            found = replace(found, source=limits[0], low=low, high=high)
        elif is_half_away(call):
            found = replace(found, source=call.args[0], half_away=True)
        elif moves_values(call):
            found = replace(found, source=call.args[0], moves=(*found.moves, call))
        else:
            break
    return found


def is_half_away(call: Any) -> bool:
    """Whether it is the mark of rounding halves away from zero."""
    factor = ir.constant_value(call.args[1]) if ir.is_call(call, "relax.multiply") else None
    return factor is not None and factor.size == 1 and factor.item() == AWAY_FROM_ZERO


def _limits(call: Any) -> tuple[Any, float, float] | None:
    """The operand of a bound, and the limits of its values then."""
    name = operator_name(call)
    if name == "nn.relu":
        return call.args[0], 0.0, np.inf
    if name == "clip":
        return call.args[0], *(float(each.value) for each in call.args[1:3])
    if name not in ("maximum", "minimum"):
        return None
    for data, bound in permutations(call.args):
        value = ir.constant_value(bound)
        if value is not None and value.size == 1 and len(ir.shape_of(data)) == len(ir.shape_of(call)):
            limit = float(value.item())
            return (data, limit, np.inf) if name == "maximum" else (data, -np.inf, limit)
    return None


@dataclass(frozen=True)
class IntegerLayer:
    """A convolution or a product that can be computed in integers."""

    call: relax.Call  # its operator on floats
    data: relax.Var  # its integers in `steps`, a variable of the network
    steps: Steps
    weights: np.ndarray  # less their zero point
    bias: np.ndarray  # for each channel, in products of the steps of data and weights
    offset: np.ndarray  # the same in float32 values, if they are not whole numbers of such products; else zeros
    scales: np.ndarray  # for each channel, the value of such a product; float32
    activation: Activation

    @property
    def is_convolution(self) -> bool:
        """Whether it is a convolution, not a product."""
        return ir.is_call(self.call, "relax.nn.conv2d")

    def sums(self, emit: ir.Emitter, data: relax.Expr, cpu: CpuBackend, bias: np.ndarray) -> relax.Expr:
        """The sums of products of integers as they are stored, and a bias, in int32."""
        shift = self._shift(cpu)
        held = self.weights - shift
        weights, source = ir.constant(held, cpu.weight_type(held)), data
        if self.is_convolution:
            attrs, padding = self.call.attrs, [int(width) for width in self.call.attrs.padding]
            if self.steps.zero_point and any(padding):
                top, left, bottom, right = padding
                widths = [0, 0, 0, 0, top, bottom, left, right]
                data = emit(relax.op.nn.pad(data, widths, "constant", float(self.steps.zero_point)))
                padding = [0, 0, 0, 0]
            places = attrs.strides, padding, attrs.dilation, int(attrs.groups)
            sums = emit(relax.op.nn.conv2d(data, weights, *places, out_dtype="int32"))
        else:
            sums = emit.matmul(data, weights, out_dtype="int32")
        if bias.any():  # next to the sums, so that these can begin with it
            sums = emit.add(sums, self._by_channel(bias))
        if shift:
            of_pixel = emit.sum(emit.astype(source, "int32"), [1 if self.is_convolution else -1], keepdims=True)
            sums = emit.add(sums, emit.multiply(of_pixel, shift))
        return sums

    def _shift(self, cpu: CpuBackend) -> int:
        """The number subtracted from weights so that they fit into 8 bits; the sum of a pixel's data is added for it.

        It is zero if they fit already, or if those sums are much of the work.
        """
        low, high = int(self.weights.min()), int(self.weights.max())
        shift = (low + high + 1) // 2
        if cpu.weight_type(self.weights) == "int8" or cpu.weight_type(self.weights - shift) != "int8":
            return 0
        if not self.is_convolution:
            return shift if self.weights.shape[1] >= _SHARING else 0
        attrs, outputs = self.call.attrs, self.weights.shape[0]
        plain = self.weights.shape[2:] == (1, 1) and int(attrs.groups) == 1 and {*map(int, attrs.strides)} == {1}
        return shift if plain and outputs >= _SHARING and not any(map(int, attrs.padding)) else 0

    @property
    def fits(self) -> bool:
        """Whether int16 holds every weight, and int32 every partial sum, for all data."""
        return bool(np.abs(self.weights).max(initial=0) < 2**15 and self._largest_sum < 2**31)

    @property
    def _largest_sum(self) -> int:
        """The largest magnitude of partial sums, for all data."""
        largest = max(abs(limit) for limit in self.steps.limits)
        bias = np.abs(self._whole_bias)
        return int((np.abs(self.weights).sum(axis=self._summed_axes) * largest + bias).max(initial=0))

    @property
    def _whole_bias(self) -> np.ndarray:
        """The bias of sums of products of integers as they are stored, with their zero points."""
        return self.bias - self.steps.zero_point * self.weights.sum(axis=self._summed_axes)

    def integers(self, emit: ir.Emitter, data: relax.Expr, steps: Steps, cpu: CpuBackend) -> relax.Expr:
        """The integers of the result, by its steps."""
        bounds = self.activation.bounds(steps)
        # conv_kernel_ref_int8.c of Tengine divides.
        divides = steps.half_away and self.is_convolution and not self.offset.any()
        value = emit(self.floats(emit, data, cpu, np.float32(1) if divides else steps.scale))
        largest = self._largest(steps.scale)
        result = to_integers(emit, value, steps, bounds) if divides else rounded(emit, value, steps, bounds, largest)
        return self.activation.moved(emit, result)

    def _largest(self, divisor: np.float32) -> float:
        """The largest magnitude of its sums and bias over a divisor, for all data."""
        least, greatest = (limit - self.steps.zero_point for limit in self.steps.limits)
        above, below = (part.sum(axis=self._summed_axes) for part in (self.weights.clip(0), self.weights.clip(None, 0)))
        ends = np.stack([above * greatest + below * least, above * least + below * greatest]) + self.bias
        return float(((np.abs(ends) * self.scales.astype(np.float64) + np.abs(self.offset)) / divisor).max(initial=0))

    def floats(self, emit: ir.Emitter, data: relax.Expr, cpu: CpuBackend, divisor: np.float32) -> relax.Expr:
        """The sums and bias in float32, over a divisor, without an activation."""
        bias = self._whole_bias
        is_depthwise = self.is_convolution and self.weights.shape[:2] == (int(self.call.attrs.groups), 1)
        if cpu.filters_in_float and is_depthwise and self._largest_sum < _EXACT:
            sums = emit.astype(self.sums(emit, data, cpu, np.zeros_like(bias)), "float32")
            sums = emit.add(sums, self._by_channel(bias)) if bias.any() else sums
        else:
            added = CONVERTER_BITS if cpu.adds_to_convert and self._largest_sum < SMALL else 0
            sums = self.sums(emit, data, cpu, bias + added)
            sums = emit.astype(emit.subtract(sums, added) if added else sums, "float32")
        value = relax.op.multiply(sums, ir.constant(self._by_channel(self.scales / divisor), "float32"))
        if not self.offset.any():
            return value
        return relax.op.add(emit(value), ir.constant(self._by_channel(self.offset / divisor), "float32"))

    @property
    def _summed_axes(self) -> tuple[int, ...]:
        return (1, 2, 3) if self.is_convolution else (0,)

    def _by_channel(self, value: np.ndarray) -> np.ndarray:
        """One value for each channel in a shape that broadcasts to the result; one for all of them as a scalar."""
        if (value == value.flat[0]).all():
            return np.asarray(value.flat[0])
        return value.reshape((1, -1, 1, 1) if self.is_convolution else (1,) * (len(ir.shape_of(self.call)) - 1) + (-1,))


def layer_of(
    network: ir.Rewriter, call: Any, source: Any, activation: Activation = Activation(None)
) -> IntegerLayer | None:
    """The layer whose sums, with its bias, a call computes, if they can be computed in integers.

    `call` is an operator on floats; `source` returns the integers that an expression was dequantised from, and their
    steps, or None.
    """
    offset = None
    if ir.is_call(call, "relax.add"):
        for data, bias in permutations(call.args):
            inner = network.value_before(data)
            if ir.is_call(inner, *_LAYERS) and not network.is_shared(data) and ir.shape_of(data) == ir.shape_of(call):
                call, offset = inner, bias
                break
    if not ir.is_call(call, *_LAYERS):
        return None
    data, stored = source(call.args[0]), _stored(network, call.args[1])
    if data is None or stored is None:
        return None
    weights, scales = stored
    convolution = ir.is_call(call, "relax.nn.conv2d")
    if (convolution and not ir.is_oihw(call)) or (not convolution and weights.ndim != 2):
        return None
    axis = 0 if convolution else 1
    scales = np.moveaxis(np.broadcast_to(scales, weights.shape), axis, 0).reshape(weights.shape[axis], -1)
    if not (scales == scales[:, :1]).all():
        return None
    integers, steps = data
    products = (steps.scale * scales[:, 0]).astype(np.float32)
    if not ((products > 0) & np.isfinite(products)).all():
        return None
    bias = _bias(network, offset, len(products), 1 if convolution else -1, len(ir.shape_of(call)))
    if bias is None:
        return None
    whole, rest = _whole_and_rest(bias, products)
    layer = IntegerLayer(call, integers, steps, weights, whole, rest, products, activation)
    return layer if layer.fits else None


def _bias(network: ir.Rewriter, offset: Any, channels: int, axis: int, rank: int) -> np.ndarray | None:
    """The addend of a layer's sums, for each channel; None if it is not a constant, or varies over anything else."""
    if offset is None:
        return np.zeros(channels, np.float32)
    value = ir.constant_value(network.value_before(offset))
    return None if value is None or not np.isfinite(value).all() else per_channel(value, channels, axis, rank)


def _whole_and_rest(bias: np.ndarray, products: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A bias as whole numbers of products, in int64, and zeros; or zeros and the bias if the numbers are not whole.

    Networks store it in int32, which float32 holds but for its rounding.
    """
    steps = bias.astype(np.float64) / products
    whole = np.rint(steps)
    if (np.abs(steps - whole) <= 1e-3 + np.abs(whole) * 2.0**-22).all():
        return whole.astype(np.int64), np.zeros_like(bias)
    return np.zeros(len(bias), np.int64), bias
