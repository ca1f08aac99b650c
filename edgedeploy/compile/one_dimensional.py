"""Operators on signals as operators on images of one row, which layout conversion and templates know.

Signals are n x channels x length. What lies between convolutions and pools stays on images, so that nothing is
transposed there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, constant, constant_value, is_call, rewritten, shape_of
from edgedeploy.compile.optraits import Kind, is_kind, operator_name, tensors_of

_WINDOWS = {
    "nn.conv1d": relax.op.nn.conv2d,
    "nn.conv1d_transpose": relax.op.nn.conv2d_transpose,
    "nn.max_pool1d": relax.op.nn.max_pool2d,
    "nn.avg_pool1d": relax.op.nn.avg_pool2d,
}


def lift_signals(module: tvm.IRModule) -> tvm.IRModule:
    """Write one-dimensional convolutions and pools, and elementwise operators and reductions after them, in two.

    Expects signals in NCW, and constants in the place of their variables.
    """
    return rewritten(_Lifter, module)


class _Lifter(Rewriter):
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
            reduce = getattr(relax.op, name)
            return reduce(self._image(call.args[0]), [2, 3], bool(call.attrs.keepdims))
        if is_kind(call, Kind.ELEMENTWISE) and len(shape_of(call)) == 3 and getattr(call.attrs, "axis", 1) == 1:
            return relax.Call(call.op, [self._operand(each) for each in call.args], call.attrs)
        return None

    def _window(self, name: str, call: relax.Call) -> relax.Expr | None:
        attrs = call.attrs
        layout = str(attrs.data_layout if "conv" in name else attrs.layout)
        if layout != "NCW":
            return None
        others: dict[str, Any] = {each: [1, *map(int, getattr(attrs, each))] for each in ("strides", "dilation")}
        begin, end = (int(width) for width in attrs.padding)
        others["padding"] = [0, begin, 0, end]
        if "pool" in name:
            count = bool(attrs.count_include_pad)
            others |= {"ceil_mode": bool(attrs.ceil_mode), "pool_size": [1, *map(int, attrs.pool_size)]}
            return _WINDOWS[name](self._image(call.args[0]), count_include_pad=count, **others)
        others |= {"groups": int(attrs.groups), "out_dtype": str(call.ty.dtype)}
        if "transpose" in name:
            others["output_padding"] = [0, *map(int, attrs.output_padding)]
        return _WINDOWS[name](self._image(call.args[0]), self._image(call.args[1]), **others)

    def _any_image(self, expressions: list[relax.Expr]) -> bool:
        return any(self._source(each) is not None for each in expressions)

    def _source(self, expression: relax.Expr) -> relax.Expr | None:
        """The image of one row that a signal was made of, if it was."""
        value = self.bound_value(expression)
        if not is_call(value, "relax.reshape") or len(shape_of(expression)) != 3:
            return None
        rows, (batch, channels, length) = shape_of(value.args[0]), shape_of(expression)
        return value.args[0] if rows == [batch, channels, 1, length] else None

    def _image(self, signal: relax.Expr) -> relax.Expr:
        """A signal, or the weights of a convolution of signals, with rows of their own."""
        source, value = self._source(signal), constant_value(signal)
        if source is not None or value is not None:
            return constant(np.expand_dims(value, 2)) if value is not None else source
        outer, inner, length = shape_of(signal)
        return self.emit(relax.op.reshape(signal, [outer, inner, 1, length]))

    def _operand(self, argument: relax.Expr) -> relax.Expr:
        """An argument of an elementwise operator."""
        rank = len(shape_of(argument)) if isinstance(argument.ty, relax.TensorType) else 0
        if rank == 3:
            return self._image(argument)
        value = constant_value(argument)
        if rank == 2 and value is not None:
            return constant(np.expand_dims(value, 1))
        return self.emit(relax.op.expand_dims(argument, 1)) if rank == 2 else argument
