"""Folds constant factors and offsets that follow a convolution into its weights and its one bias."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, constant, constant_value, is_call, is_oihw, rewritten
from edgedeploy.compile.optraits import operator_name


def fold_scales(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite `conv(x, w) * s + b` to `conv(x, w * s) + b`, and `(conv(x, w) + a) + b` to `conv(x, w) + (a + b)`.

    Batch normalisation arrives as such a product and sum. Expects NCHW activations and OIHW weights, and
    constants that vary over channels only. Exact up to rounding of the constants.
    """
    return rewritten(_Folder, module)


def _per_channel(value: np.ndarray | None, channels: int) -> np.ndarray | None:
    """A constant as one value per channel, or None if it varies over anything else."""
    if value is None or value.ndim > 4:
        return None
    shape = (1,) * (4 - value.ndim) + value.shape
    if shape not in ((1, channels, 1, 1), (1, 1, 1, 1)):
        return None
    return np.broadcast_to(value.reshape(shape), (1, channels, 1, 1)).reshape(channels)


class _Folder(Rewriter):
    """Visits operators in order, so that each folds onto what is already folded below it."""

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        operator = operator_name(call)
        if operator not in ("multiply", "add"):
            return None
        operands = list(zip(original.args, call.args, strict=True))
        for (before, data), (_, factor) in (operands, operands[::-1]):
            folded = self._fold(operator, data, constant_value(factor)) if self.uses[before] == 1 else None
            if folded is not None:
                return folded
        return None

    def _fold(self, operator: str, data: relax.Expr, factor: np.ndarray | None) -> relax.Expr | None:
        """The convolution, or convolution and bias, that `data <operator> factor` amounts to."""
        convolution, bias = self._convolution_and_bias(data)
        if convolution is None or factor is None or factor.dtype != np.float32:
            return None
        weights = constant_value(convolution.args[1])
        values = None if weights is None else _per_channel(factor, weights.shape[0])
        if values is None or not is_oihw(convolution):
            return None
        if operator == "add":
            return None if bias is None else self._biased(convolution, bias + values)
        scaled = constant(weights * values.reshape(-1, 1, 1, 1))
        convolution = relax.Call(convolution.op, [convolution.args[0], scaled], convolution.attrs)
        return self.builder_.normalize(convolution) if bias is None else self._biased(convolution, bias * values)

    def _convolution_and_bias(self, data: relax.Expr) -> tuple[relax.Call | None, np.ndarray | None]:
        value = self.bound_value(data)
        if is_call(value, "relax.nn.conv2d"):
            return value, None
        if is_call(value, "relax.add"):
            for data_side, bias_side in (value.args, list(value.args)[::-1]):
                inner = self.bound_value(data_side)
                if is_call(inner, "relax.nn.conv2d"):
                    channels = int(inner.args[1].ty.shape[0])
                    bias = _per_channel(constant_value(bias_side), channels)
                    if bias is not None:
                        return inner, bias
        return None, None

    def _biased(self, convolution: relax.Call, bias: np.ndarray) -> relax.Expr:
        return relax.op.add(self.emit(convolution), constant(bias.reshape(1, -1, 1, 1)))
