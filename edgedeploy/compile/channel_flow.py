"""How channels pass through operators: which of them are constant, and which depend on which.

A channel is an index along axis 1: of an NCHW tensor, or of a matrix with one row of features per feature map.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import constant_value, is_call, is_oihw, shape_of
from edgedeploy.compile.optraits import Kind, evaluate, is_kind, keeps_channels, keeps_constants, tensors_of

# One value per channel: the value that the whole channel has whatever the input, or NaN if it has none.
Values = np.ndarray


@dataclass(frozen=True)
class ChannelDependency:
    """Channels that stay or go together.

    Attributes:
        source: a tensor that an operator reads.
        channels: channels of it, by index; they stay where those of `results` stay.
        results: as many channels of the operator's result.
    """

    source: relax.Var
    channels: np.ndarray
    results: np.ndarray


@dataclass(frozen=True)
class Product:
    """An operator whose results are sums over input channels with constant weights.

    Attributes:
        source: the tensor that it reads.
        weights: result x input x window, the window flattened.
        padded: whether some windows also take zeros from around the feature map.
    """

    source: relax.Var
    weights: np.ndarray
    padded: bool

    def absorbable(self, values: Values) -> np.ndarray:
        """Whether each input channel's share of the results is a constant, that can be a bias."""
        return values == 0 if self.padded else ~np.isnan(values)

    def share(self, values: Values, channels: np.ndarray) -> np.ndarray:
        """What constant input channels, chosen by a mask, add to each result."""
        return (self.weights[:, channels].sum(axis=2, dtype=np.float64) @ values[channels]).astype(values.dtype)

    def reads(self) -> np.ndarray:
        """Whether a result depends on an input channel: result x input."""
        return (self.weights != 0).any(axis=2)


def channel_count(variable: Any) -> int | None:
    """How many channels a float32 tensor has, or None if it is no such tensor."""
    kind = variable.ty
    if not isinstance(kind, relax.TensorType) or kind.shape is None or str(kind.dtype) != "float32":
        return None
    return int(kind.shape[1]) if len(kind.shape) >= 2 else None


def product_of(call: relax.Call) -> Product | None:
    """An ungrouped convolution or a product with a constant matrix, as a sum over channels."""
    source, weights = call.args[0], constant_value(call.args[1]) if len(call.args) > 1 else None
    if weights is None or not isinstance(source, relax.Var) or channel_count(source) is None:
        return None
    if is_call(call, "relax.nn.conv2d") and is_oihw(call) and int(call.attrs.groups) == 1:
        padded = any(int(width) for width in call.attrs.padding)
        return Product(source, weights.reshape(*weights.shape[:2], -1), padded)
    if is_call(call, "relax.matmul") and weights.ndim == 2 and len(source.ty.shape) == 2:
        return Product(source, weights.T[:, :, None], padded=False)
    return None


def is_depthwise(call: relax.Call) -> bool:
    """Whether a call filters each channel by itself, with constant weights."""
    if not is_call(call, "relax.nn.conv2d") or not is_oihw(call) or constant_value(call.args[1]) is None:
        return False
    outputs, inputs, *_ = shape_of(call.args[1])
    return inputs == 1 and outputs == int(call.attrs.groups) == channel_count(call.args[0])


def dependencies_of(call: relax.Call) -> list[ChannelDependency] | None:
    """How the channels of a call's result hang on those of its arguments; None if that is not known.

    Expects NCHW. What is not listed, as the weights of a `Product`, is no argument of this kind.
    """
    count = channel_count(call)
    if count is None:
        return None
    every = np.arange(count)
    if is_kind(call, Kind.ELEMENTWISE):
        variables = [argument for argument in call.args if isinstance(argument, relax.Var)]
        same = all(len(argument.ty.shape) == len(call.ty.shape) for argument in variables)
        if not same or any(channel_count(argument) != count for argument in variables):
            return None
        return [ChannelDependency(argument, every, every) for argument in variables]
    if (isinstance(call.args[0], relax.Var) and keeps_channels(call)) or is_depthwise(call):
        return [ChannelDependency(call.args[0], every, every)]
    if is_kind(call, Kind.RESHAPE):
        return _dependencies_of_reshape(call, count)
    if is_call(call, "relax.concat") and isinstance(call.args[0], relax.Tuple):
        return _dependencies_of_concat(call, count)
    return None


def constant_channels(bindings: Iterable[relax.Binding]) -> dict[Any, Values]:
    """For each float32 tensor that operators output, the constants among its channels."""
    found: dict[Any, Values] = {}
    for binding in bindings:
        count = channel_count(binding.var)
        if count is None:
            continue
        values = np.full(count, np.nan, np.float32)
        if isinstance(binding.value, relax.Call):
            values = _values(binding.value, values, found)
        found[binding.var] = np.where(np.isfinite(values), values, np.float32(np.nan))
    return found


def _values(call: relax.Call, unknown: Values, found: dict[Any, Values]) -> Values:
    """The constants among a call's channels; `unknown` is an answer without any."""

    def of(variable: relax.Var) -> Values:
        return found.get(variable, np.full(channel_count(variable) or 0, np.nan, np.float32))

    product = product_of(call)
    if product is not None:
        absorbable = product.absorbable(of(product.source))
        varies = product.reads()[:, ~absorbable].any(axis=1)
        return np.where(varies, np.nan, product.share(of(product.source), absorbable))
    dependencies = dependencies_of(call)
    if not dependencies:
        return unknown
    if is_depthwise(call):
        return _values_of_depthwise(call, of(call.args[0]))
    if is_kind(call, Kind.ELEMENTWISE):
        return _values_of_elementwise(call, of)
    if is_kind(call, Kind.WINDOW, Kind.REDUCTION) and not keeps_constants(call):
        return unknown if is_call(call, "relax.image.resize2d") else np.where(of(call.args[0]) == 0, 0, np.nan)
    known = [(dependency.results, of(dependency.source)[dependency.channels]) for dependency in dependencies]
    result = unknown.copy()
    for results, values in known:
        result[results] = values
    # Images concatenated along another axis than the channels must agree.
    for results, values in known:
        result[results] = np.where(result[results] == values, values, np.nan)
    return result


def _values_of_depthwise(call: relax.Call, values: Values) -> Values:
    weights = constant_value(call.args[1])
    assert weights is not None
    weights = weights.reshape(len(weights), -1)
    padded = any(int(width) for width in call.attrs.padding)
    shares = np.where((values == 0) | (not padded), values * weights.sum(axis=1), np.nan)
    return np.where((weights == 0).all(axis=1), 0, shares)


def _values_of_elementwise(call: relax.Call, of: Callable[[relax.Var], Values]) -> Values:
    """Evaluate the operator with one value for each channel; NaN, not known, spreads."""
    dimensions = len(call.ty.shape)
    arguments = []
    for argument in tensors_of(call):
        constant = constant_value(argument)
        arguments.append(of(argument).reshape(1, -1, *[1] * (dimensions - 2)) if constant is None else constant)
    result, count = evaluate(call, arguments), int(call.ty.shape[1])
    if result is None or result.ndim != dimensions or result.shape[1] != count:
        return np.full(count, np.nan, np.float32)
    rows = np.moveaxis(result, 1, 0).reshape(count, -1)
    return np.where((rows == rows[:, :1]).all(axis=1), rows[:, 0], np.nan)


def _dependencies_of_reshape(call: relax.Call, count: int) -> list[ChannelDependency] | None:
    """A reshape that splits no channel's pixels from their neighbours, or makes a channel of each."""
    source = call.args[0]
    before = channel_count(source) if isinstance(source, relax.Var) else None
    if before is None or int(source.ty.shape[0]) != int(call.ty.shape[0]) or count % before:
        return None
    pieces, pixels = count // before, math.prod(shape_of(source)[2:])
    if pixels % pieces:
        return None
    return [ChannelDependency(source, np.arange(count) // pieces, np.arange(count))]


def _dependencies_of_concat(call: relax.Call, count: int) -> list[ChannelDependency] | None:
    parts = list(call.args[0].fields)
    counts = [channel_count(part) or 0 if isinstance(part, relax.Var) else 0 for part in parts]
    if not all(counts) or call.attrs.axis is None:
        return None
    if int(call.attrs.axis) % len(call.ty.shape) != 1:
        return [ChannelDependency(part, np.arange(count), np.arange(count)) for part in parts]
    places = np.split(np.arange(count), np.cumsum(counts)[:-1])
    return [ChannelDependency(part, np.arange(len(each)), each) for part, each in zip(parts, places, strict=True)]
