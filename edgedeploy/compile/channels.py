"""Pads channel counts to whole vector registers.

A layer with 255 or 136 channels cannot be tiled by full vectors. Here the convolution that makes them gets
filters of zeros until they fill whole vectors; what follows works on the padded channels, the next
convolution ignores them (its weights for them are zero), and where the true shape is needed they are cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import bound_value, constant_value, is_call, rewritten, types_of
from edgedeploy.compile.types import LayerTypes

# Operators that work on each channel by itself. A constant operand gets this value in the added channels:
# any that cannot make an infinity or a NaN, which zero weights would not remove.
_ELEMENTWISE = {
    "relax.add": 0.0,
    "relax.subtract": 0.0,
    "relax.multiply": 0.0,
    "relax.divide": 1.0,
    "relax.maximum": 0.0,
    "relax.minimum": 0.0,
    "relax.nn.prelu": 0.0,
    "relax.nn.relu": 0.0,
    "relax.sigmoid": 0.0,
    "relax.tanh": 0.0,
    "relax.round": 0.0,
    "relax.nn.silu": 0.0,
}
_WINDOWS = {"relax.nn.max_pool2d", "relax.nn.avg_pool2d", "relax.image.resize2d"}


# From how many channels a convolution has, the pixels of its result and its types, to how many it should have.
PaddedCount = Callable[[int, int, LayerTypes], int]


def pad_channels(module: tvm.IRModule, padded: PaddedCount) -> tvm.IRModule:
    """Pad what convolutions put out to whole vectors of channels, or to a power of two below that.

    Expects NCHW activations and OIHW weights, before layouts are converted. Outputs keep their shapes, and
    their values are computed by the same sums.

    Args:
        module: the network.
        padded: how many channels convolutions should have.
    """
    # Layouts are not carried through variables that only rename others.
    return relax.transform.CanonicalizeBindings()(rewritten(_Padder(module, padded), module))


@relax.expr_functor.mutator
class _Padder(relax.PyExprMutator):
    """Visits operators in order, and remembers for each cut result the padded one behind it."""

    def __init__(self, module: tvm.IRModule, padded: PaddedCount) -> None:
        super().__init__(module)
        self._padded_count = padded

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
        handler: Callable[[relax.Call], relax.Expr | None] | None = None
        if name == "relax.nn.conv2d":
            handler = self._convolution
        elif name in _ELEMENTWISE:
            handler = self._elementwise
        elif name in _WINDOWS or _is_mean_of_pixels(call):
            handler = self._window
        padded = handler(call) if handler else None
        return call if padded is None else padded

    def _padded(self, value: relax.Expr) -> relax.Expr | None:
        """The padded tensor that `value` was cut from."""
        cut = bound_value(self, value)
        if not is_call(cut, "relax.strided_slice"):
            return None
        whole = cut.args[0]
        return whole if isinstance(whole, relax.Var) and _is_channel_cut(cut) else None

    def _cut(self, padded: relax.Expr, channels: int) -> relax.Expr:
        """The first `channels` channels of a padded tensor; dead code if every use finds the padded one."""
        whole = self.builder_.emit(padded)
        if int(whole.ty.shape[1]) == channels:
            return whole
        return relax.op.strided_slice(whole, axes=[1], begin=[0], end=[channels])

    def _convolution(self, call: relax.Call) -> relax.Expr | None:
        attrs, weights = call.attrs, constant_value(call.args[1])
        if weights is None or attrs.data_layout != "NCHW" or attrs.kernel_layout != "OIHW":
            return None
        outputs, inputs = weights.shape[:2]
        data = self._padded(call.args[0])
        groups = int(attrs.groups)
        if data is not None and inputs == 1 and groups == outputs:
            # One channel from one channel is a filter for each channel too, which is less work than a sum of zeros.
            wanted = groups = int(data.ty.shape[1])
            widths = [(0, wanted - outputs), (0, 0)]
        elif groups == 1:
            wanted = self._padded_count(outputs, _pixels(call), types_of(call))
            wider = 0 if data is None else int(data.ty.shape[1]) - inputs
            if wanted == outputs and not wider:
                return None
            widths = [(0, wanted - outputs), (0, wider)]
        else:
            return None
        padded = relax.op.nn.conv2d(
            call.args[0] if data is None else data,
            relax.const(np.pad(weights, [*widths, (0, 0), (0, 0)])),
            attrs.strides,
            attrs.padding,
            attrs.dilation,
            groups,
        )
        return self._cut(padded, outputs)

    def _elementwise(self, call: relax.Call) -> relax.Expr | None:
        shape = [int(size) for size in call.ty.shape]
        wholes = [self._padded(argument) for argument in call.args]
        counts = {int(whole.ty.shape[1]) for whole in wholes if whole is not None}
        if len(shape) != 4 or len(counts) != 1:
            return None
        count = counts.pop()
        arguments = []
        for argument, whole in zip(call.args, wholes, strict=True):
            if whole is None:
                whole = self._padded_constant(call, argument, shape[1], count)
            if whole is None:
                return None
            arguments.append(whole)
        return self._cut(relax.Call(call.op, arguments, call.attrs), shape[1])

    def _padded_constant(self, call: relax.Call, argument: relax.Expr, channels: int, count: int) -> Any:
        value = constant_value(argument)
        if value is None:
            return None
        if value.size == 1:
            return argument
        axis = 0 if call.op.name == "relax.nn.prelu" else value.ndim - 3
        if axis < 0 or value.shape[axis] != channels:
            return None
        widths = [(0, count - channels if each == axis else 0) for each in range(value.ndim)]
        return relax.const(np.pad(value, widths, constant_values=_ELEMENTWISE[call.op.name]).astype(value.dtype))

    def _window(self, call: relax.Call) -> relax.Expr | None:
        whole = self._padded(call.args[0])
        if whole is None:
            return None
        channels = int(call.ty.shape[1])
        return self._cut(relax.Call(call.op, [whole, *call.args[1:]], call.attrs), channels)


def _is_mean_of_pixels(call: relax.Call) -> bool:
    """Whether a call takes the mean over rows and columns, and leaves one pixel."""
    return (
        is_call(call, "relax.mean") and bool(call.attrs.keepdims) and [int(a) for a in call.attrs.axis or []] == [2, 3]
    )


def _pixels(call: relax.Call) -> int:
    """Of the picture that an NCHW operator puts out."""
    _, _, rows, columns = (int(size) for size in call.ty.shape)
    return rows * columns


def _is_channel_cut(cut: relax.Call) -> bool:
    """Whether a slice keeps the first channels of an NCHW tensor and everything else."""
    before = [int(size) for size in cut.args[0].ty.shape]
    after = [int(size) for size in cut.ty.shape]
    if len(before) != 4 or before[:1] + before[2:] != after[:1] + after[2:] or after[1] >= before[1]:
        return False
    return len(cut.args) == 4 and [int(value) for value in cut.args[2].fields] == [0]
