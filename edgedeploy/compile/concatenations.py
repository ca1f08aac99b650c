"""Concatenations and splits: as trees where they have many parts; and the former avoided where a layer reads one."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import ir, relax, topi

from edgedeploy.compile.expressions import Rewriter, constant, constant_value, is_call, rewritten, shape_of
from edgedeploy.compile.fusion import OPAQUE
from edgedeploy.compile.types import is_floating

# TVM writes the choice between parts as nested conditions, and parts that are split off as nested buffers: its passes
# recurse through both. Besides, each use of a tuple takes time for all of its fields.
_MOST_PARTS = 32

_legalised = ir.Op.get("relax.concat").get_attr("FLegalize")


def _in_parts(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A concatenation as a function, or as a tree of functions that are not fused if it has many parts."""
    parts = call.args[0]
    while isinstance(parts, relax.Var) and builder.lookup_binding(parts) is not None:
        parts = builder.lookup_binding(parts)
    if not isinstance(parts, relax.Tuple) or len(parts.fields) <= _MOST_PARTS or call.attrs.axis is None:
        return _legalised(builder, call)
    axis, level = int(call.attrs.axis), list(parts.fields)

    def joined(group: list[relax.Expr]) -> relax.Expr:
        return builder.call_te(topi.concatenate, group, axis, primfunc_attrs={"op_pattern": OPAQUE})

    while len(level) > _MOST_PARTS:
        groups = (level[begin : begin + _MOST_PARTS] for begin in range(0, len(level), _MOST_PARTS))
        level = [builder.emit(joined(group)) for group in groups]
    return joined(level)


LEGALISATIONS = {"relax.concat": _in_parts}


def split_in_groups(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """A split into many parts as slices that are split in turn; equal parts share one function.

    Returns:
        A tuple of the parts, or None where there are few.
    """
    axis, parts = int(call.attrs.axis), list(call.ty.fields)
    if len(parts) <= _MOST_PARTS:
        return None
    ends = np.cumsum([int(each.shape[axis]) for each in parts])
    begin, found = 0, list[relax.Expr]()
    for group in np.split(ends, range(_MOST_PARTS, len(ends), _MOST_PARTS)):
        whole = builder.emit(relax.op.strided_slice(call.args[0], [axis], [begin], [int(group[-1])]))
        split = builder.emit(relax.op.split(whole, [int(end) - begin for end in group[:-1]], axis))
        found += [builder.emit(relax.TupleGetItem(split, place)) for place in range(len(group))]
        begin = int(group[-1])
    return relax.Tuple(found)


def split_concatenations(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite `conv(concat(a, b), w)` to `conv(a, w_a) + conv(b, w_b)` where that moves fewer values.

    A maximum over windows in between is taken of each part. Expects NCHW activations and OIHW weights. Exact up to
    the order of the sums.
    """
    return rewritten(_Splitter, module)


class _Splitter(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        pools = is_call(call, "relax.nn.max_pool2d") and call.attrs.layout == "NCHW"
        if not (pools or is_call(call, "relax.nn.conv2d")) or self.uses[original.args[0]] != 1:
            return None
        parts = self._parts(call.args[0])
        if not parts or not pools:
            return self._convolved(call, parts) if parts else None
        pooled = [self.emit(relax.Call(call.op, [part], call.attrs)) for part in parts]
        return self.builder_.normalize(relax.op.concat(pooled, axis=1))

    def _parts(self, data: relax.Expr) -> list[relax.Expr]:
        """What a value is the concatenation of, by channels."""
        value = self.bound_value(data)
        if not is_call(value, "relax.concat") or value.attrs.axis is None or int(value.attrs.axis) != 1:
            return []
        parts = self.bound_value(value.args[0])
        return list(parts.fields) if isinstance(parts, relax.Tuple) else []

    def _convolved(self, call: relax.Call, parts: list[relax.Expr]) -> relax.Expr | None:
        attrs, weights = call.attrs, constant_value(call.args[1])
        floating = is_floating(str(call.ty.dtype))  # sums of integers are four times as wide as what is copied
        if weights is None or int(attrs.groups) != 1 or attrs.data_layout != "NCHW" or not floating:
            return None
        copied, added = np.prod(shape_of(call.args[0])), (len(parts) - 1) * np.prod(shape_of(call))
        if added >= copied:
            return None
        ends = np.cumsum([shape_of(part)[1] for part in parts])
        total, *others = (
            relax.Call(call.op, [part, constant(piece)], attrs)
            for part, piece in zip(parts, np.split(weights, ends[:-1], axis=1), strict=True)
        )
        for each in others:
            total = relax.op.add(self.emit(each), self.emit(total))
        return self.builder_.normalize(total)
