"""Quantised weights, which stay integer constants under `dequantize` while their layout changes."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.constants import ConstantFolder, fold_constants
from edgedeploy.compile.expressions import constant, constant_value, is_call, shape_of
from edgedeploy.compile.optraits import along_axis, evaluate, moves_values


def fold_beside_integers(module: tvm.IRModule) -> tvm.IRModule:
    """Fold constants as `fold_constants` does, but for `dequantize` of integers: what moves its values moves these."""
    return fold_constants(module, _Folder)


class _Folder(ConstantFolder):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if is_call(call, "relax.dequantize"):
            return None
        if moves_values(call):
            source = self.bound_value(call.args[0])
            if is_call(source, "relax.dequantize") and constant_value(source.args[0]) is not None:
                return _moved(self.builder_.normalize(call), source)
        return super().replacement(call, original)


def _moved(call: relax.Call, source: relax.Call) -> relax.Expr | None:
    """A dequantize of moved integers; None where the scales are no longer those of one axis."""
    values = constant_value(source.args[0])
    assert values is not None
    integers = evaluate(call, [values])
    if integers is None:
        return None
    axis = -1
    if shape_of(source.args[1]):
        count = values.shape[source.attrs.axis]
        channels = along_axis(np.arange(count), source.attrs.axis, values.ndim)
        places = evaluate(call, [np.ascontiguousarray(np.broadcast_to(channels, values.shape))])
        assert places is not None
        fitting = [
            each
            for each, size in enumerate(places.shape)
            if size == count and (places == along_axis(np.arange(count), each, places.ndim)).all()
        ]
        if not fitting:
            return None
        axis = fitting[0]
    return relax.op.dequantize(constant(integers, values.dtype.name), source.args[1], source.args[2], axis=axis)
