"""The pass that makes networks of quantised tensors run in 8-bit integers between their layers.

Networks say by pairs of `quantize` and `dequantize` where tensors are quantised. What lies between a `dequantize` and
the next `quantize` and is known here works on bytes; all else stays in float, between the two.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from edgedeploy.compile.constants import fold_constants
from edgedeploy.compile.expressions import Rewriter, constant_value, is_call, rewritten
from edgedeploy.compile.integer_layers import IntegerLayer, Storage, Values, layer_before
from edgedeploy.compile.integer_moves import move_integers
from edgedeploy.compile.quantisation import Steps, steps_of, to_floats, to_integers

# Whether a layer is computed in integers.
Choice = Callable[[IntegerLayer], bool]


def everywhere(layer: IntegerLayer) -> bool:
    """Integers wherever a layer and its neighbours allow."""
    return True


def compute_in_integers(module: tvm.IRModule, storage: Storage, choice: Choice = everywhere) -> tvm.IRModule:
    """Compute in bytes what a network says in quantised tensors; constants that are left are folded.

    A network none of whose layers can be computed so stays as it was.

    Args:
        module: the network, in NCHW; its weights may be `dequantize` of constants.
        storage: how the CPU stores quantised tensors.
        choice: which of the layers that could be are computed in integers.
    """
    taken: list[IntegerLayer] = []
    moved = move_integers(module, storage.activation_type)
    written = rewritten(_Writer, moved, storage, choice, taken)
    if taken:
        # First what only floats needed vanishes, then what is left at the borders is written out.
        module = rewritten(_Border, relax.transform.CanonicalizeBindings()(written))
    return fold_constants(module)


class _Writer(Rewriter):
    """Writes what a `quantize` stands behind in integers."""

    def __init__(self, module: tvm.IRModule, storage: Storage, choice: Choice, taken: list[IntegerLayer]) -> None:
        super().__init__(module)
        self._storage = storage
        self._choice = choice
        self._taken = taken
        self._values = Values(module["main"], self.uses)

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        steps = steps_of(original) if is_call(original, "relax.quantize") else None
        if steps is None or steps.dtype != self._storage.activation_type:
            return None
        layer = layer_before(self._values, original.args[0], self._source)
        if layer is not None and self._choice(layer):
            self._taken.append(layer)
            return layer.result(self.builder_, self.visit_expr(layer.data), steps, self._storage)
        return None

    def _source(self, expression: relax.Expr) -> tuple[relax.Expr, Steps] | None:
        """The integers that an expression was dequantised from, in the network as it was, and their steps."""
        call = self._values.of(expression)
        if not is_call(call, "relax.dequantize") or constant_value(call.args[0]) is not None:
            return None
        steps = steps_of(call)
        return None if steps is None or steps.dtype != self._storage.activation_type else (call.args[0], steps)


class _Border(Rewriter):
    """Writes out the conversions between what is in integers and what is in float."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        bindings = [each for block in module["main"].body.blocks for each in block.bindings]
        dequantised = [each.value.args[0] for each in bindings if is_call(each.value, "relax.dequantize")]
        # Those whose integers nothing needs: they are rounded in float.
        self._in_float = {
            each.var: each.value
            for each in bindings
            if is_call(each.value, "relax.quantize") and self.uses[each.var] == dequantised.count(each.var)
        }

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        steps = steps_of(call)
        if steps is None:
            return None
        if is_call(call, "relax.quantize"):
            kept = any(original.same_as(each) for each in self._in_float.values())
            return None if kept else to_integers(self.builder_, call.args[0], steps)
        kept = original.args[0] in self._in_float or constant_value(call.args[0]) is not None
        return None if kept else to_floats(self.builder_, call.args[0], steps)
