"""Removes channels that are constant or that nothing reads.

A filter whose weights are all zero outputs its bias, whatever the feature map: after the activation that is a
constant, whose share in the next layer's sums is a bias. Networks that were trained towards zero have many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.channel_flow import (
    Values,
    channel_count,
    constant_channels,
    dependencies_of,
    is_depthwise,
    product_of,
)
from edgedeploy.compile.expressions import Rewriter, constant, constant_value, is_call, rewritten, shape_of
from edgedeploy.compile.optraits import Kind, channel_axis, is_kind


@dataclass(frozen=True)
class RemovedChannels:
    """A layer that lost channels.

    Attributes:
        layer: which one: its operator, its place among the network's layers of that kind, its size.
        before, after: how many channels it output.
    """

    layer: str
    before: int
    after: int


def remove_channels(module: tvm.IRModule) -> tuple[tvm.IRModule, list[RemovedChannels]]:
    """Remove every channel that is constant or unread, as far as all layers between allow it.

    A constant goes into the bias of the layer that reads it; through padding of zeros only the constant zero
    can go. Inputs and outputs keep their shapes. Values stay the same up to rounding, as long as they are finite.

    Expects NCHW activations, OIHW weights, and constants in the place of their variables.
    """
    function = module["main"]
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
    values = constant_channels(bindings)
    kept = _kept_channels(function, bindings, values)
    if all(mask.all() for mask in kept.values()):
        return module, []
    return rewritten(_Remover, module, kept, values), _report(bindings, kept)


def _kept_channels(function: Any, bindings: list[Any], values: dict[Any, Values]) -> dict[Any, np.ndarray]:
    """For each float32 tensor a mask of the channels that are needed: the least that satisfies every operator."""
    tensors = [*function.params, *(binding.var for binding in bindings)]
    counts = {variable: channel_count(variable) for variable in tensors}
    kept = {variable: np.zeros(count, bool) for variable, count in counts.items() if count is not None}

    def need_all(variables: Any) -> None:
        for variable in variables:
            if variable in kept:
                kept[variable][:] = True

    need_all(function.params)
    need_all(relax.analysis.free_vars(function.body.body))
    products, dependencies = [], []
    for binding in bindings:
        product = product_of(binding.value) if isinstance(binding.value, relax.Call) else None
        between = dependencies_of(binding.value) if isinstance(binding.value, relax.Call) else None
        if product is not None and product.source in kept:
            # An input channel is needed by the results that read it, unless its share is a bias.
            absorbable = product.absorbable(values.get(product.source, np.full(len(kept[product.source]), np.nan)))
            products.append((binding.var, product.source, product.reads() & ~absorbable))
        elif between is not None:
            dependencies += [(binding.var, dependency) for dependency in between]
        else:
            need_all([binding.var, *relax.analysis.free_vars(binding.value)])
    _grow(kept, products, dependencies)
    # Tensors without channels cannot be, but for those that never had any.
    while empty := [mask for mask in kept.values() if mask.size and not mask.any()]:
        empty[-1][0] = True
        _grow(kept, products, dependencies)
    return kept


def _grow(kept: dict[Any, np.ndarray], products: list[Any], dependencies: list[Any]) -> None:
    """Keep what others that are kept need, until nothing is added."""
    before = -1
    while (now := sum(int(mask.sum()) for mask in kept.values())) != before:
        before = now
        for result, source, reads in reversed(products):
            kept[source] |= reads[kept[result]].any(axis=0)
        for result, dependency in reversed(dependencies):
            mask = np.zeros_like(kept[dependency.source])
            np.logical_or.at(mask, dependency.channels, kept[result][dependency.results])
            kept[dependency.source] |= mask
            kept[result][dependency.results] |= kept[dependency.source][dependency.channels]


def _report(bindings: list[Any], kept: dict[Any, np.ndarray]) -> list[RemovedChannels]:
    removed, numbers = [], {"relax.nn.conv2d": 0, "relax.matmul": 0}
    for binding in bindings:
        name = next((name for name in numbers if is_call(binding.value, name)), None)
        if name is None:
            continue
        numbers[name] += 1
        mask = kept.get(binding.var)
        if mask is not None and not mask.all():
            size = " x ".join(str(extent) for extent in shape_of(binding.var)[1:])
            label = f"{name.rpartition('.')[2]} {numbers[name]} ({size})"
            removed.append(RemovedChannels(label, len(mask), int(mask.sum())))
    return removed


class _Remover(Rewriter):
    """Builds each operator anew that has lost channels before or behind it."""

    def __init__(self, module: tvm.IRModule, kept: dict[Any, np.ndarray], values: dict[Any, Values]) -> None:
        super().__init__(module)
        self._kept = kept
        self._values = values

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        touched = [binding.var, *relax.analysis.free_vars(binding.value)]
        if all(self._kept[variable].all() for variable in touched if variable in self._kept):
            super().visit_var_binding_(binding)
            return
        smaller = self._rebuilt(binding.value, self._kept[binding.var])
        emit = self.builder_.emit if isinstance(binding.var, relax.DataflowVar) else self.builder_.emit_output
        self.set_var_remap(binding.var, emit(smaller))

    def _rebuilt(self, call: relax.Call, kept: np.ndarray) -> relax.Expr:
        """A call on the channels that are left of its arguments, for those that are left of its result."""
        product = product_of(call)
        if product is not None:
            left = self._kept[product.source]
            values = self._values.get(product.source)
            if is_call(call, "relax.matmul"):
                result = self._with_weights(call, constant_value(call.args[1])[left][:, kept])  # type: ignore[index]
            else:
                result = self._with_weights(call, constant_value(call.args[1])[kept][:, left])  # type: ignore[index]
            if values is None:
                return result
            gone = ~left & ~np.isnan(values)
            # Channels that are dropped because nothing reads them may have values that padding would spoil.
            bias = product.share(values, gone & product.absorbable(values))[kept]
            shape = (1, -1) + (1,) * (len(call.ty.shape) - 2)
            bias = constant(bias.reshape(shape), str(call.ty.dtype)) if bias.any() else None
            return result if bias is None else relax.op.add(self.emit(result), bias)
        if is_depthwise(call):
            return self._with_weights(call, constant_value(call.args[1])[kept], int(kept.sum()))  # type: ignore[index]
        if is_call(call, "relax.concat"):
            parts = [self.visit_expr(part) for part in call.args[0].fields]
            return relax.op.concat(parts, int(call.attrs.axis))
        if is_kind(call, Kind.RESHAPE):
            sizes = shape_of(call)
            return relax.op.reshape(self.visit_expr(call.args[0]), [sizes[0], int(kept.sum()), *sizes[2:]])
        arguments = [self._smaller(call, argument, kept) for argument in call.args]
        return relax.Call(call.op, arguments, call.attrs)

    def _with_weights(self, call: relax.Call, weights: np.ndarray, groups: int = 1) -> relax.Expr:
        data, kernel, dtype = self.visit_expr(call.args[0]), constant(weights), str(call.ty.dtype)
        if is_call(call, "relax.matmul"):
            return relax.op.matmul(data, kernel, dtype)
        attrs = call.attrs
        return relax.op.nn.conv2d(data, kernel, attrs.strides, attrs.padding, attrs.dilation, groups, out_dtype=dtype)

    def _smaller(self, call: relax.Call, argument: relax.Expr, kept: np.ndarray) -> relax.Expr:
        """An operand of an elementwise operator or a pool; constants lose the same channels."""
        value = constant_value(argument)
        if value is None or not is_kind(call, Kind.ELEMENTWISE) or channel_axis(call, value) < 0:
            return self.visit_expr(argument)
        return constant(np.compress(kept, value, channel_axis(call, value)))
