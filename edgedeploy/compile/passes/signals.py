"""Writes operators on signals, and norms of groups of channels, as operators on images.

Layout conversion and templates know images. Signals, n x channels x length, become images of one row; operators between
convolutions and pools stay on images, so that nothing is transposed there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.ir.expressions import Rewriter, constant, constant_value, is_call, shape_of
from edgedeploy.compile.ir.optraits import Kind, is_kind, operator_name, tensors_of

_WINDOWS = {
    "nn.conv1d": relax.op.nn.conv2d,
    "nn.conv1d_transpose": relax.op.nn.conv2d_transpose,
    "nn.max_pool1d": relax.op.nn.max_pool2d,
    "nn.avg_pool1d": relax.op.nn.avg_pool2d,
}


class _SignalLifter(Rewriter):
    """Writes one-dimensional convolutions and pools, and elementwise operators and reductions after them, in two.

    Expects signals in NCW, and constants in the place of their variables.
    """

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        lifted = self._lifted_call(call)
        return None if lifted is None else relax.op.reshape(self.emit(lifted), shape_of(call))

    def _lifted_call(self, call: relax.Call) -> relax.Expr | None:
        name = operator_name(call)
        if name in _WINDOWS:
            return self._window(name, call)
        if is_call(call, "relax.concat") and isinstance(call.args[0], relax.Tuple) and int(call.attrs.axis) == 1:
            fields = list(call.args[0].fields)
            return relax.op.concat([self._image(each) for each in fields], 1) if self._any_image(fields) else None
        if not self._any_image(tensors_of(call)) or len(shape_of(call.args[0])) != 3:
            return None
        if is_kind(call, Kind.REDUCTION) and [int(axis) % 3 for axis in call.attrs.axis or ()] == [2]:
            return getattr(relax.op, name)(self._image(call.args[0]), [2, 3], bool(call.attrs.keepdims))
        if is_kind(call, Kind.ELEMENTWISE) and len(shape_of(call)) == 3 and getattr(call.attrs, "axis", 1) == 1:
            return relax.Call(call.op, [self._operand(each) for each in call.args], call.attrs)
        return None

    def _window(self, name: str, call: relax.Call) -> relax.Expr | None:
        attrs = call.attrs
        if str(attrs.data_layout if "conv" in name else attrs.layout) != "NCW":
            return None
        others: dict[str, Any] = {each: [1, *map(int, getattr(attrs, each))] for each in ("strides", "dilation")}
        begin, end = (int(width) for width in attrs.padding)
        others["padding"] = [0, begin, 0, end]
        if "pool" in name:
            others |= {each: bool(getattr(attrs, each)) for each in ("ceil_mode", "count_include_pad")}
            return _WINDOWS[name](self._image(call.args[0]), pool_size=[1, *map(int, attrs.pool_size)], **others)
        others |= {"groups": int(attrs.groups), "out_dtype": str(call.ty.dtype)}
        if "transpose" in name:
            others["output_padding"] = [0, *map(int, attrs.output_padding)]
        return _WINDOWS[name](self._image(call.args[0]), self._image(call.args[1]), **others)

    def _any_image(self, expressions: list[relax.Expr]) -> bool:
        return any(self._source(each) is not None for each in expressions)

    def _source(self, expression: relax.Expr) -> relax.Expr | None:
        """The image of one row that a signal was built from; None for other signals."""
        value = self.bound_value(expression)
        if not is_call(value, "relax.reshape") or len(shape_of(expression)) != 3:
            return None
        rows, (batch, channels, length) = shape_of(value.args[0]), shape_of(expression)
        return value.args[0] if rows == [batch, channels, 1, length] else None

    def _image(self, signal: relax.Expr) -> relax.Expr:
        """A signal, or the weights of a convolution of signals, with rows."""
        source, value = self._source(signal), constant_value(signal)
        if source is not None or value is not None:
            return constant(np.expand_dims(value, 2)) if value is not None else source
        outer, inner, length = shape_of(signal)
        return self.emit.reshape(signal, [outer, inner, 1, length])

    def _operand(self, argument: relax.Expr) -> relax.Expr:
        rank = len(shape_of(argument)) if isinstance(argument.ty, relax.TensorType) else 0
        if rank == 3:
            return self._image(argument)
        value = constant_value(argument)
        if rank == 2 and value is not None:
            return constant(np.expand_dims(value, 1))
        return self.emit.expand_dims(argument, axis=1) if rank == 2 else argument


lift_signals = _SignalLifter.rewritten


class _GroupLifter(Rewriter):
    """Writes group norms, and operators on flattened groups of channels, as operators on feature maps.

    Exporters write group norm as an instance norm of n x groups x values, between two reshapes. Those need the channels
    of a group next to each other in memory, where layers have the channels of a pixel; means of channels first, and of
    them over their group, do not. Expects NCHW.

    Maps variables that hold n x groups x values or n x groups x 1 to the same on n x channels x rows x columns.
    Statistics are n x channels x 1 x 1 there: each channel has its group's.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._lifted: dict[Any, relax.Var] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Rewrite a binding, and note its variable's equivalent on the feature map."""
        super().visit_var_binding_(binding)
        if isinstance(binding.value, relax.Call) and (lifted := self._on_feature_map(binding.value)) is not None:
            self._lifted[binding.var] = lifted

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if is_call(call, "relax.reshape"):
            lifted = self._lifted.get(original.args[0])
            return lifted if lifted is not None and shape_of(lifted) == shape_of(call) else None
        return self._group_norm(call) if is_call(call, "relax.nn.group_norm") else None

    def _on_feature_map(self, original: relax.Call) -> relax.Var | None:
        name, shape = operator_name(original), shape_of(original) if isinstance(original.ty, relax.TensorType) else []
        if name == "reshape":
            source = shape_of(original.args[0])
            grouped = len(source) == 4 and len(shape) == 3 and shape[0] == source[0] and source[1] % shape[1] == 0
            return self.visit_expr(original.args[0]) if grouped and shape[2] > 1 else None
        operands = tensors_of(original)
        if len(shape) != 3 or not any(each in self._lifted for each in operands):
            return None
        if name in ("mean", "variance"):
            along = original.attrs.axis is not None and [int(axis) % 3 for axis in original.attrs.axis] == [2]
            return getattr(self, f"_{name}")(self._lifted[operands[0]], shape[1]) if along and shape[2] == 1 else None
        if not is_kind(original, Kind.ELEMENTWISE) or len(operands) != len(original.args):
            return None
        shapes = [shape_of(self._lifted[each]) for each in operands if each in self._lifted]
        channels, sizes = shapes[0][1], {tuple(each[2:]) for each in shapes}
        if any(each[1] != channels for each in shapes) or len(sizes - {(1, 1)}) > 1:
            return None  # feature maps of other sizes, which are the same only flattened
        lifted = [
            self._lifted[each] if each in self._lifted else _of_channels(constant_value(each), shape[1], channels)
            for each in operands
        ]
        if any(each is None for each in lifted):
            return None
        return self.emit(relax.Call(original.op, lifted, original.attrs))

    def _mean(self, image: relax.Expr, groups: int) -> relax.Var:
        """The mean of each group, for each of its channels."""
        batch, channels, *pixels = shape_of(image)
        mean = image if pixels == [1, 1] else self.emit.mean(image, [2, 3], keepdims=True)
        parts = self.emit.reshape(mean, [batch, groups, channels // groups])
        whole = self.emit.mean(parts, [2], keepdims=True)
        spread = self.emit.broadcast_to(whole, [batch, groups, channels // groups])
        return self.emit.reshape(spread, [batch, channels, 1, 1])

    def _variance(self, image: relax.Expr, groups: int) -> relax.Var:
        centred = self.emit.subtract(image, self._mean(image, groups))
        return self._mean(self.emit.multiply(centred, centred), groups)

    def _group_norm(self, call: relax.Call) -> relax.Expr | None:
        image, gamma, beta = call.args
        attrs, factor, offset = call.attrs, constant_value(gamma), constant_value(beta)
        if len(shape_of(image)) != 4 or int(attrs.channel_axis) % 4 != 1 or str(image.ty.dtype) != "float32":
            return None
        if sorted(int(axis) % 4 for axis in attrs.axes) != [2, 3] or factor is None or offset is None:
            return None
        groups = int(attrs.num_groups)
        variance = self.emit.add(self._variance(image, groups), float(attrs.epsilon))
        result = self.emit.subtract(image, self._mean(image, groups))
        result = self.emit.divide(result, self.emit.sqrt(variance))
        if attrs.scale:
            result = self.emit.multiply(result, factor.reshape(1, -1, 1, 1))
        return relax.op.add(result, constant(offset.reshape(1, -1, 1, 1))) if attrs.center else result


def _of_channels(value: np.ndarray | None, groups: int, channels: int) -> relax.Expr | None:
    """A constant with one value for each group as one value for each channel; None for other constants."""
    if value is None:
        return None
    if value.size == 1:
        return constant(value.reshape(()))
    if value.size != groups or value.shape[-2:] != (groups, 1):
        return None
    return constant(np.repeat(value.reshape(-1), channels // groups).reshape(1, channels, 1, 1))


lift_groups = _GroupLifter.canonicalised
