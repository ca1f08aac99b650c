"""Avoids copies: a convolution of concatenated channels is a sum of convolutions of the parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import bound_value, constant, constant_value, is_call, rewritten, use_counts


def split_concatenations(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite `conv(concat(a, b), w)` to `conv(a, w_a) + conv(b, w_b)` where that moves fewer values.

    A maximum over windows in between is taken of each part. Expects NCHW activations and OIHW weights. Exact up to
    the order of the sums.
    """
    return rewritten(_Splitter(module, use_counts(module["main"])), module)


@relax.expr_functor.mutator
class _Splitter(relax.PyExprMutator):
    def __init__(self, module: tvm.IRModule, uses: dict[Any, int]) -> None:
        super().__init__(module)
        self._uses = uses

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        original = call
        call = self.visit_expr_post_order(call)
        if is_call(call, "relax.nn.max_pool2d") and self._uses.get(original.args[0], 0) == 1:
            parts = self._parts(call.args[0])
            if parts and call.attrs.layout == "NCHW":
                pooled = [self.builder_.emit(relax.Call(call.op, [part], call.attrs)) for part in parts]
                return self.builder_.normalize(relax.op.concat(pooled, axis=1))
        if is_call(call, "relax.nn.conv2d") and self._uses.get(original.args[0], 0) == 1:
            split = self._convolve(call)
            return call if split is None else split
        return call

    def _parts(self, data: relax.Expr) -> list[relax.Expr]:
        """What a value is the concatenation of, by channels."""
        value = bound_value(self, data)
        if not is_call(value, "relax.concat") or value.attrs.axis is None or int(value.attrs.axis) != 1:
            return []
        parts = bound_value(self, value.args[0])
        return list(parts.fields) if isinstance(parts, relax.Tuple) else []

    def _convolve(self, call: relax.Call) -> relax.Expr | None:
        attrs, weights = call.attrs, constant_value(call.args[1])
        parts = self._parts(call.args[0])
        if not parts or weights is None or int(attrs.groups) != 1 or attrs.data_layout != "NCHW":
            return None
        shape = [int(size) for size in call.args[0].ty.shape]
        copied = 2 * np.prod(shape)
        added = 2 * (len(parts) - 1) * np.prod([int(size) for size in call.ty.shape])
        if added >= copied:
            return None
        channels = [int(part.ty.shape[1]) for part in parts]
        total: relax.Expr | None = None
        for part, piece in zip(parts, np.split(weights, np.cumsum(channels)[:-1], axis=1), strict=True):
            convolved = relax.Call(call.op, [part, constant(piece)], attrs)
            if total is None:
                total = convolved
            else:
                total = relax.op.add(self.builder_.emit(convolved), self.builder_.emit(total))
        return self.builder_.normalize(total)
