"""Removes channels that are constant or that nothing reads.

A filter whose weights are all zero outputs its bias for every feature map: after the activation that is a constant,
whose share in the next layer's sums is a bias. Networks that were trained towards zero have many.

A channel is an index along axis 1: of an NCHW tensor, or of a matrix with one row of features per feature map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.ir import expressions as ir
from edgedeploy.compile.ir.optraits import (
    Kind,
    channel_axis,
    evaluate,
    is_kind,
    keeps_channels,
    keeps_constants,
    tensors_of,
)
from edgedeploy.compile.passes import Compilation
from edgedeploy.compile.passes.convolutions import fold_scales

Values = np.ndarray  # one value per channel: the value that the whole channel has for all inputs, or NaN if it has none


@dataclass(frozen=True)
class RemovedChannels:
    """A layer that lost output channels: its operator, place among layers of that kind and size, and the counts."""

    layer: str
    before: int
    after: int


@dataclass(frozen=True)
class ChannelDependency:
    """Channels of an operand, by index, that stay or go together with channels of the operator's result."""

    source: relax.Var
    channels: np.ndarray
    results: np.ndarray


@dataclass(frozen=True)
class Product:
    """An operator whose results are sums over input channels with constant weights.

    Weights are result x input x window, the window flattened; padded windows also take zeros around the feature map.
    """

    source: relax.Var
    weights: np.ndarray
    padded: bool

    def absorbable(self, values: Values) -> np.ndarray:
        """Whether each input channel's share of the results is a constant, that can be a bias."""
        return values == 0 if self.padded else ~np.isnan(values)

    def share(self, values: Values, channels: np.ndarray) -> np.ndarray:
        """The sum that constant input channels, chosen by a mask, add to each result."""
        return (self.weights[:, channels].sum(axis=2, dtype=np.float64) @ values[channels]).astype(values.dtype)

    def reads(self) -> np.ndarray:
        """Whether a result depends on an input channel: result x input."""
        return (self.weights != 0).any(axis=2)


def remove_channels(module: tvm.IRModule) -> tuple[tvm.IRModule, list[RemovedChannels]]:
    """Remove every channel that is constant or unread, if all layers between allow it.

    A constant goes into the bias of the layer that reads it; through padding of zeros only the constant zero
    can go. Inputs and outputs keep their shapes. Values stay the same up to rounding, as long as they are finite.

    Expects NCHW activations, OIHW weights, and constants in the place of their variables.
    """
    function = module["main"]
    bindings = ir.bindings_of(function)
    values = _constant_channels(function, bindings)
    masks = _needed_channels(function, bindings, values)
    if all(mask.all() for mask in masks.values()):
        return module, []
    return _Remover.rewritten(module, masks, values), _report(bindings, masks)


def remove_and_note(module: tvm.IRModule, compilation: Compilation) -> tvm.IRModule:
    """Remove channels, whose sums join the biases of the layers that read them, and note what was removed."""
    module, removed = remove_channels(module)
    compilation.removed += removed
    return fold_scales(module) if removed else module


def _needed_channels(function: Any, bindings: list[Any], values: dict[Any, Values]) -> dict[Any, np.ndarray]:
    """For each float32 tensor a mask of the channels that are needed: the least that satisfies every operator."""
    masks = {variable: np.zeros(len(constants), bool) for variable, constants in values.items()}

    def need_all(variables: Any) -> None:
        for variable in variables:
            if variable in masks:
                masks[variable][:] = True

    need_all(function.params)
    need_all(relax.analysis.free_vars(function.body.body))
    products, dependencies = [], []
    for binding in bindings:
        product = _product_of(binding.value) if isinstance(binding.value, relax.Call) else None
        between = _dependencies_of(binding.value) if isinstance(binding.value, relax.Call) else None
        if product is not None:
            # An input channel is needed by the results that read it, unless its share is a bias.
            absorbable = product.absorbable(values[product.source])
            products.append((binding.var, product.source, product.reads() & ~absorbable))
        elif between is not None:
            dependencies += [(binding.var, dependency) for dependency in between]
        else:
            need_all([binding.var, *relax.analysis.free_vars(binding.value)])
    _grow(masks, products, dependencies)
    # Tensors without channels cannot be, unless they never had any.
    while empty := [mask for mask in masks.values() if mask.size and not mask.any()]:
        empty[-1][0] = True
        _grow(masks, products, dependencies)
    return masks


def _grow(masks: dict[Any, np.ndarray], products: list[Any], dependencies: list[Any]) -> None:
    """Add the channels that needed ones depend on, until nothing is added."""
    before = -1
    while (now := sum(int(mask.sum()) for mask in masks.values())) != before:
        before = now
        for result, source, reads in reversed(products):
            masks[source] |= reads[masks[result]].any(axis=0)
        for result, dependency in reversed(dependencies):
            mask = np.zeros_like(masks[dependency.source])
            np.logical_or.at(mask, dependency.channels, masks[result][dependency.results])
            masks[dependency.source] |= mask
            masks[result][dependency.results] |= masks[dependency.source][dependency.channels]


def _report(bindings: list[Any], masks: dict[Any, np.ndarray]) -> list[RemovedChannels]:
    removed, numbers = [], {"relax.nn.conv2d": 0, "relax.matmul": 0}
    for binding in bindings:
        name = next((name for name in numbers if ir.is_call(binding.value, name)), None)
        if name is None:
            continue
        numbers[name] += 1
        mask = masks.get(binding.var)
        if mask is not None and not mask.all():
            size = " x ".join(str(extent) for extent in ir.shape_of(binding.var)[1:])
            label = f"{name.rpartition('.')[2]} {numbers[name]} ({size})"
            removed.append(RemovedChannels(label, len(mask), int(mask.sum())))
    return removed


class _Remover(ir.Rewriter):
    """Rebuilds each operator with fewer channels before or behind it."""

    def __init__(self, module: tvm.IRModule, masks: dict[Any, np.ndarray], values: dict[Any, Values]) -> None:
        super().__init__(module)
        self._masks, self._values = masks, values

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        touched = [binding.var, *relax.analysis.free_vars(binding.value)]
        if all(self._masks[variable].all() for variable in touched if variable in self._masks):
            super().visit_var_binding_(binding)
            return
        smaller = self._rebuilt(binding.value, self._masks[binding.var])
        emit = self.builder_.emit if isinstance(binding.var, relax.DataflowVar) else self.builder_.emit_output
        self.set_var_remap(binding.var, emit(smaller))

    def _rebuilt(self, call: relax.Call, mask: np.ndarray) -> relax.Expr:
        """A call on the remaining channels of its arguments, for the remaining channels of its result."""
        product, weights = _product_of(call), ir.constant_value(call.args[1]) if len(call.args) > 1 else None
        data = self.visit_expr(call.args[0])
        if product is not None and weights is not None:
            left, values = self._masks[product.source], self._values[product.source]
            if ir.is_call(call, "relax.matmul"):
                result = relax.op.matmul(data, ir.constant(weights[left][:, mask]), str(call.ty.dtype))
            else:
                result = ir.conv2d_like(call, data, ir.constant(weights[mask][:, left]))
            gone = ~left & ~np.isnan(values)
            # Unread channels may have values that padding would spoil.
            bias = product.share(values, gone & product.absorbable(values))[mask]
            if not bias.any():
                return result
            shape = (1, -1) + (1,) * (len(call.ty.shape) - 2)
            return relax.op.add(self.emit(result), ir.constant(bias.reshape(shape), str(call.ty.dtype)))
        if _is_depthwise(call) and weights is not None:
            return ir.conv2d_like(call, data, ir.constant(weights[mask]), groups=int(mask.sum()))
        if ir.is_call(call, "relax.concat"):
            return relax.op.concat(data, int(call.attrs.axis))
        if is_kind(call, Kind.RESHAPE):
            sizes = ir.shape_of(call)
            return relax.op.reshape(data, [sizes[0], int(mask.sum()), *sizes[2:]])
        return relax.Call(call.op, [self._smaller(call, argument, mask) for argument in call.args], call.attrs)

    def _smaller(self, call: relax.Call, argument: relax.Expr, mask: np.ndarray) -> relax.Expr:
        """An operand of an elementwise operator or a pool; constants lose the same channels."""
        value = ir.constant_value(argument)
        if value is None or not is_kind(call, Kind.ELEMENTWISE) or channel_axis(call, value) < 0:
            return self.visit_expr(argument)
        return ir.constant(np.compress(mask, value, channel_axis(call, value)))


def _channel_count(variable: Any) -> int | None:
    """How many channels a float32 tensor has; None for anything else."""
    kind = variable.ty
    if not isinstance(kind, relax.TensorType) or kind.shape is None or str(kind.dtype) != "float32":
        return None
    return int(kind.shape[1]) if len(kind.shape) >= 2 else None


def _product_of(call: relax.Call) -> Product | None:
    """An ungrouped convolution or a product with a constant matrix, as a sum over channels."""
    source, weights = call.args[0], ir.constant_value(call.args[1]) if len(call.args) > 1 else None
    if weights is None or not isinstance(source, relax.Var) or _channel_count(source) is None:
        return None
    if ir.is_call(call, "relax.nn.conv2d") and ir.is_oihw(call) and int(call.attrs.groups) == 1:
        return Product(source, weights.reshape(*weights.shape[:2], -1), any(int(width) for width in call.attrs.padding))
    if ir.is_call(call, "relax.matmul") and weights.ndim == 2 and len(source.ty.shape) == 2:
        return Product(source, weights.T[:, :, None], padded=False)
    return None


def _is_depthwise(call: relax.Call) -> bool:
    """Whether a call filters each channel by itself, with constant weights."""
    if not ir.is_call(call, "relax.nn.conv2d") or not ir.is_oihw(call) or ir.constant_value(call.args[1]) is None:
        return False
    outputs, inputs, *_ = ir.shape_of(call.args[1])
    return inputs == 1 and outputs == int(call.attrs.groups) == _channel_count(call.args[0])


def _dependencies_of(call: relax.Call) -> list[ChannelDependency] | None:
    """How the channels of a call's result depend on those of its arguments; None if that is not known.

    Expects NCHW. Arguments that are not listed, as the weights of a `Product`, have no channels of this kind.
    """
    count = _channel_count(call)
    if count is None:
        return None
    every = np.arange(count)
    if is_kind(call, Kind.ELEMENTWISE):
        variables = [argument for argument in call.args if isinstance(argument, relax.Var)]
        same = all(len(argument.ty.shape) == len(call.ty.shape) for argument in variables)
        if not same or any(_channel_count(argument) != count for argument in variables):
            return None
        return [ChannelDependency(argument, every, every) for argument in variables]
    if (isinstance(call.args[0], relax.Var) and keeps_channels(call)) or _is_depthwise(call):
        return [ChannelDependency(call.args[0], every, every)]
    if is_kind(call, Kind.RESHAPE):
        return _dependencies_of_reshape(call, count)
    if ir.is_call(call, "relax.concat") and isinstance(call.args[0], relax.Tuple):
        return _dependencies_of_concat(call, count)
    return None


def _dependencies_of_reshape(call: relax.Call, count: int) -> list[ChannelDependency] | None:
    """A reshape that splits no channel's pixels from their neighbours, or makes a channel of each."""
    source = call.args[0]
    before = _channel_count(source) if isinstance(source, relax.Var) else None
    if before is None or int(source.ty.shape[0]) != int(call.ty.shape[0]) or count % before:
        return None
    pieces, pixels = count // before, math.prod(ir.shape_of(source)[2:])
    if pixels % pieces:
        return None
    return [ChannelDependency(source, np.arange(count) // pieces, np.arange(count))]


def _dependencies_of_concat(call: relax.Call, count: int) -> list[ChannelDependency] | None:
    parts = list(call.args[0].fields)
    counts = [_channel_count(part) or 0 if isinstance(part, relax.Var) else 0 for part in parts]
    if not all(counts) or call.attrs.axis is None:
        return None
    if int(call.attrs.axis) % len(call.ty.shape) != 1:
        return [ChannelDependency(part, np.arange(count), np.arange(count)) for part in parts]
    places = np.split(np.arange(count), np.cumsum(counts)[:-1])
    return [ChannelDependency(part, np.arange(len(each)), each) for part, each in zip(parts, places, strict=True)]


def _constant_channels(function: Any, bindings: Sequence[relax.Binding]) -> dict[Any, Values]:
    """For each float32 tensor, the constants among its channels."""
    counts = {variable: _channel_count(variable) for variable in (*function.params, *(each.var for each in bindings))}
    found = {variable: np.full(count, np.nan, np.float32) for variable, count in counts.items() if count is not None}
    for binding in bindings:
        if binding.var in found and isinstance(binding.value, relax.Call):
            values = _values(binding.value, found)
            found[binding.var] = np.where(np.isfinite(values), values, np.float32(np.nan))
    return found


def _values(call: relax.Call, found: dict[Any, Values]) -> Values:
    """The constants among a call's channels."""
    unknown = np.full(_channel_count(call) or 0, np.nan, np.float32)
    product = _product_of(call)
    if product is not None:
        absorbable = product.absorbable(found[product.source])
        varies = product.reads()[:, ~absorbable].any(axis=1)
        return np.where(varies, np.nan, product.share(found[product.source], absorbable))
    dependencies = _dependencies_of(call)
    if not dependencies:
        return unknown
    if _is_depthwise(call):
        return _values_of_depthwise(call, found[call.args[0]])
    if is_kind(call, Kind.ELEMENTWISE):
        return _values_of_elementwise(call, found)
    if is_kind(call, Kind.WINDOW, Kind.REDUCTION) and not keeps_constants(call):
        return unknown if ir.is_call(call, "relax.image.resize2d") else np.where(found[call.args[0]] == 0, 0, np.nan)
    known = [(dependency.results, found[dependency.source][dependency.channels]) for dependency in dependencies]
    result = unknown
    for results, values in known:
        result[results] = values
    # Images concatenated along another axis than the channels must agree.
    for results, values in known:
        result[results] = np.where(result[results] == values, values, np.nan)
    return result


def _values_of_depthwise(call: relax.Call, values: Values) -> Values:
    weights = ir.constant_value(call.args[1])
    assert weights is not None
    weights = weights.reshape(len(weights), -1)
    padded = any(int(width) for width in call.attrs.padding)
    shares = np.where((values == 0) | (not padded), values * weights.sum(axis=1), np.nan)
    return np.where((weights == 0).all(axis=1), 0, shares)


def _values_of_elementwise(call: relax.Call, found: dict[Any, Values]) -> Values:
    """Evaluate the operator with one value for each channel; NaN, for unknown, spreads."""
    dimensions = len(call.ty.shape)
    arguments = []
    for argument in tensors_of(call):
        value = ir.constant_value(argument)
        arguments.append(found[argument].reshape(1, -1, *[1] * (dimensions - 2)) if value is None else value)
    result, count = evaluate(call, arguments), int(call.ty.shape[1])
    if result is None or result.ndim != dimensions or result.shape[1] != count:
        return np.full(count, np.nan, np.float32)
    rows = np.moveaxis(result, 1, 0).reshape(count, -1)
    return np.where((rows == rows[:, :1]).all(axis=1), rows[:, 0], np.nan)
