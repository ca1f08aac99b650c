"""Pads channel counts to whole vector registers.

A layer with 255 or 136 channels cannot be tiled by full vectors. The convolution that computes them gets filters of
zeros until they fill whole vectors; operators after it work on the padded channels, the next convolution ignores them
(its weights for them are zero), and they are cut off wherever the true shape is needed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.backends import host_of
from edgedeploy.compile.backends.cpu import CpuBackend
from edgedeploy.compile.ir import expressions as ir
from edgedeploy.compile.ir.optraits import Kind, channel_axis, evaluate, is_kind, keeps_channels
from edgedeploy.compile.passes import Compilation


class _Padder(ir.Rewriter):
    """Pads the outputs of convolutions to whole vectors of channels, or to a power of two below that.

    Expects NCHW activations and OIHW weights. Outputs keep their shapes, and their values are the same sums. Visits
    operators in order, and remembers for each cut result the padded one behind it.
    """

    def __init__(self, module: tvm.IRModule, cpu: CpuBackend) -> None:
        super().__init__(module)
        self._cpu = cpu
        # By padded tensor, the value of the added channels. It must be finite: the weights that are zero for these
        # channels would not remove an infinity or a NaN.
        self._added: dict[Any, float] = {}

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if ir.is_call(call, "relax.nn.conv2d"):
            return self._convolution(call)
        if is_kind(call, Kind.ELEMENTWISE):
            return self._elementwise(call)
        return self._window(call) if keeps_channels(call) else None

    def _padded(self, value: relax.Expr) -> relax.Expr | None:
        """The padded tensor that `value` was cut from."""
        cut = self.bound_value(value)
        return cut.args[0] if ir.is_call(cut, "relax.strided_slice") and _is_channel_cut(cut) else None

    def _cut(self, padded: relax.Expr, channels: int, added: float = 0.0) -> relax.Expr:
        """The first `channels` channels of a padded tensor; dead code if every use finds the padded one."""
        whole = self.emit(padded)
        self._added[whole] = added
        if ir.shape_of(whole)[1] == channels:
            return whole
        return relax.op.strided_slice(whole, axes=[1], begin=[0], end=[channels])

    def _convolution(self, call: relax.Call) -> relax.Expr | None:
        weights = ir.constant_value(call.args[1])
        if weights is None or not ir.is_oihw(call):
            return None
        outputs, inputs = weights.shape[:2]
        data, groups = self._padded(call.args[0]), int(call.attrs.groups)
        wider = 0 if data is None else int(data.ty.shape[1]) - inputs
        if data is not None and inputs == 1 and groups == outputs:
            # One channel from one channel is a filter for each channel too, which is less work than a sum of zeros.
            wanted = groups = int(data.ty.shape[1])
            wider = 0
        elif groups == 1:
            wanted = self._cpu.padded_channels(outputs, math.prod(ir.shape_of(call)[2:]), ir.types_of(call))
            if wanted == outputs and not wider:
                return None
        else:
            return None
        kernel = ir.constant(np.pad(weights, [(0, wanted - outputs), (0, wider), (0, 0), (0, 0)]))
        return self._cut(ir.conv2d_like(call, call.args[0] if data is None else data, kernel, groups=groups), outputs)

    def _elementwise(self, call: relax.Call) -> relax.Expr | None:
        wholes = [self._padded(argument) for argument in call.args]
        counts = {int(whole.ty.shape[1]) for whole in wholes if whole is not None}
        if len(call.ty.shape) != 4 or len(counts) != 1:
            return None
        for filler in (0.0, 1.0):  # one for divisors
            arguments, values = list(call.args), []
            for index, (argument, whole) in enumerate(zip(call.args, wholes, strict=True)):
                value = ir.constant_value(argument)
                if whole is not None:
                    arguments[index] = whole
                    values.append(np.full((1, 1, 1, 1), self._added[whole], str(whole.ty.dtype)))
                elif value is not None and channel_axis(call, value) >= 0:
                    widths = [(0, 0)] * value.ndim
                    widths[channel_axis(call, value)] = (0, max(counts) - int(call.ty.shape[1]))
                    arguments[index] = ir.constant(np.pad(value, widths, constant_values=filler))
                    values.append(np.full([1] * value.ndim, filler, value.dtype))
                elif value is not None:
                    values.append(value)
                elif isinstance(argument.ty, relax.TensorType):
                    return None
            added = evaluate(call, values)
            if added is not None and np.isfinite(added).all() and (added == added.flat[0]).all():
                return self._cut(relax.Call(call.op, arguments, call.attrs), int(call.ty.shape[1]), added.item(0))
        return None

    def _window(self, call: relax.Call) -> relax.Expr | None:
        whole = self._padded(call.args[0])
        if whole is None or len(call.ty.shape) != 4:
            return None
        padded = relax.Call(call.op, [whole, *call.args[1:]], call.attrs)
        return self._cut(padded, int(call.ty.shape[1]), self._added[whole])


def _is_channel_cut(cut: relax.Call) -> bool:
    """Whether a slice keeps the first channels of an NCHW tensor and everything else."""
    before, after = ir.shape_of(cut.args[0]), ir.shape_of(cut)
    begins_at_zero = len(cut.args) == 4 and [int(value) for value in cut.args[2].fields] == [0]
    is_image = isinstance(cut.args[0], relax.Var) and len(before) == 4
    return is_image and begins_at_zero and before[:1] + before[2:] == after[:1] + after[2:] and after[1] < before[1]


def pad_channels(module: tvm.IRModule, compilation: Compilation) -> tvm.IRModule:
    """Pad channels to whole vectors of the board's CPU."""
    # Canonicalised, as layouts are not carried through variables that only rename others.
    return _Padder.canonicalised(module, host_of(compilation.board))
