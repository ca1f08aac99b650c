"""Keeps out of a layer's function what would slow it down there, before operators are fused."""

from __future__ import annotations

import math

import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, function_name, is_call, rewritten, shape_of

# TVM's `OpPatternKind::kInjective`: fused with what follows, but not into what comes before.
INJECTIVE = 2


def keep_broadcasts_apart(module: tvm.IRModule) -> tvm.IRModule:
    """Keep an operator that broadcasts what a layer computes out of the layer's function.

    The gate of a squeeze-and-excitation block has one pixel, which all pixels of a feature map are multiplied by: in
    one function the layer that computes the gate would be computed for each of them.
    """
    return rewritten(_Keeper, module)


class _Keeper(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not is_call(call, "relax.call_tir") or not isinstance(call.ty_args[0], relax.TensorType):
            return None
        function, whole = self.module[call.args[0]], math.prod(shape_of(call))
        computed = {each: math.prod(shape_of(each)) for each in original.args[1].fields if isinstance(each, relax.Var)}
        broadcasts = any(size < whole for size in computed.values())
        # Of a feature map that nothing else reads, the function of the layer that computes it is a good place.
        welcome = any(size == whole and self.uses[each] == 1 for each, size in computed.items())
        if not broadcasts or welcome or int(function.attrs.get("op_pattern", INJECTIVE)) >= INJECTIVE:
            return None
        apart = self.builder_.add_func(function.with_attr("op_pattern", INJECTIVE), function_name(call))
        return relax.call_tir(apart, call.args[1], call.ty_args[0])
