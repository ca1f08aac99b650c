"""The pass that makes networks of quantised tensors run in 8-bit integers between their layers.

Networks say by pairs of `quantize` and `dequantize` where tensors are quantised. What lies between a `dequantize` and
the next `quantize` and is known here works on bytes; all else stays in float, between the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.constants import fold_constants
from edgedeploy.compile.expressions import Rewriter, constant_value, is_call, rewritten
from edgedeploy.compile.integer_layers import IntegerLayer, Storage, Values, activation_before, is_away, layer_of
from edgedeploy.compile.integer_moves import move_integers
from edgedeploy.compile.integer_operators import OPERATORS, Surroundings
from edgedeploy.compile.integer_scaling import scaled_layers
from edgedeploy.compile.optraits import Kind, is_kind, moves_values
from edgedeploy.compile.quantisation import BYTES, Steps, steps_of, to_floats, to_integers
from edgedeploy.compile.types import is_floating

# The attribute of a network that is computed in integers from its inputs to its outputs: its values are exact where its
# layers' sums are.
THROUGHOUT = "edgedeploy.integers_throughout"


def compute_in_integers(module: tvm.IRModule, storage: Storage) -> tvm.IRModule:
    """Compute in bytes what a network says in quantised tensors; constants that are left are folded.

    A network none of whose layers can be computed so stays as it was. One that has nothing in float but conversions at
    its inputs and outputs, and rounds halves to even, gets the attribute `THROUGHOUT`.

    Args:
        module: the network, in NCHW; its weights may be `dequantize` of constants.
        storage: how the CPU stores quantised tensors.
    """
    taken: list[IntegerLayer] = []
    scaled: list[relax.Expr] = []
    moved = move_integers(module, storage.activation_type)
    written = rewritten(_Writer, moved, storage, _type_in_file(module), taken, scaled)
    if taken:
        # First what only floats needed vanishes, then what is left at the borders is written out.
        written = relax.transform.CanonicalizeBindings()(written)
        module = rewritten(_Border, written)
        if not scaled and _is_throughout(written) and not any(map(is_away, _calls(moved))):
            module = module.with_attr(THROUGHOUT, True)
    return fold_constants(module)


def _is_throughout(module: tvm.IRModule) -> bool:
    """Whether only inputs are quantised, all outputs are integers or were, and nothing between is rounded in float."""
    function = module["main"]
    values = Values(function, Counter())

    def before_moves(expression: relax.Expr) -> list[relax.Expr]:
        call = values.of(expression)
        if isinstance(call, relax.Tuple):
            return [each for field in call.fields for each in before_moves(field)]
        if moves_values(call):
            return before_moves(call.args[0])
        return [call]

    calls = _calls(module)
    if any(is_call(call, "relax.nn.avg_pool2d") for call in calls):
        return False  # averages are computed in float, where the order of a sum decides what lies at a half
    read = [each for call in calls if is_call(call, "relax.quantize") for each in before_moves(call.args[0])]
    given = before_moves(function.body.body)
    return all(each in list(function.params) for each in read) and all(
        is_call(each, "relax.dequantize") or not is_floating(str(each.ty.dtype)) for each in given
    )


def _calls(module: tvm.IRModule) -> list[relax.Expr]:
    return [binding.value for block in module["main"].body.blocks for binding in block.bindings]


def _type_in_file(module: tvm.IRModule) -> str:
    """The type of most quantised feature maps of a network."""
    found = Counter(steps.dtype for steps in map(steps_of, _calls(module)) if steps)
    return max(BYTES, key=lambda dtype: found[dtype])


class _Writer(Rewriter):
    """Writes what a `quantize` stands behind in integers."""

    def __init__(
        self,
        module: tvm.IRModule,
        storage: Storage,
        dtype: str,
        taken: list[IntegerLayer],
        scaled: list[relax.Expr],
    ) -> None:
        """Begin with a network; what it takes is appended to `taken`, what is rounded as floats to `scaled`."""
        super().__init__(module)
        self._dtype = dtype
        self._storage = storage
        self._taken, self._scaled = taken, scaled
        self._values = Values(module["main"], self.uses)

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if is_call(original, "relax.quantize"):
            steps = steps_of(original)
            return None if steps is None else self._quantised(original.args[0], steps)
        layer = layer_of(self._values, original, self._source)
        if layer is not None:
            self._taken.append(layer)
            return layer.floats(self.builder_, self.visit_expr(layer.data), self._storage)
        return None

    def _quantised(self, value: relax.Expr, steps: Steps) -> relax.Expr | None:
        """The integers of a value that is computed from integers."""
        if steps.dtype != self._storage.activation_type:
            return None
        found = activation_before(self._values, value)
        steps = replace(steps, away=found.away)
        if not self._values.is_shared(found.source):
            layer = layer_of(self._values, self._values.of(found.source), self._source, found)
            if layer is not None:
                self._taken.append(layer)
                return layer.integers(self.builder_, self.visit_expr(layer.data), steps, self._storage)
        reading = self._integers, self._layer, self._floats
        surroundings = Surroundings(self.builder_, self._values, *reading, self._dtype)
        for operator in OPERATORS:
            result = operator(surroundings, found, steps)
            if result is not None:
                return found.moved(self.builder_, result)
        result = scaled_layers(surroundings, found, steps)
        if result is not None:
            self._scaled.append(value)
            return found.moved(self.builder_, result)
        if not steps.away:
            return None
        result = to_integers(self.builder_, self.visit_expr(found.source), steps, found.bounds(steps))
        return found.moved(self.builder_, result)

    def _integers(self, expression: relax.Expr) -> tuple[relax.Expr, Steps] | None:
        """As `_source`, in the network as it is now."""
        found = self._source(expression)
        return None if found is None else (self.visit_expr(found[0]), found[1])

    def _layer(self, expression: relax.Expr) -> IntegerLayer | None:
        """The layer that an expression computes, which may be written anew elsewhere."""
        return layer_of(self._values, self._values.of(expression), self._source)

    def _floats(self, layer: IntegerLayer, divisor: np.float32) -> relax.Expr:
        self._taken.append(layer)
        return layer.floats(self.builder_, self.visit_expr(layer.data), self._storage, divisor)

    def _source(self, expression: relax.Expr) -> tuple[relax.Expr, Steps] | None:
        """The integers that an expression was dequantised from, in the network as it was, and their steps."""
        call = self._values.of(expression)
        if not is_call(call, "relax.dequantize") or constant_value(call.args[0]) is not None:
            return None
        steps = steps_of(call)
        return None if steps is None or steps.dtype != self._storage.activation_type else (call.args[0], steps)


class _Readers:
    """What reads the tensors of a network."""

    def __init__(self, function: relax.Function) -> None:
        self._readers: dict[relax.Var, list[relax.VarBinding]] = {}
        for binding in (each for block in function.body.blocks for each in block.bindings):
            parts: list[relax.Expr] = []
            relax.analysis.post_order_visit(binding.value, parts.append)
            for each in dict.fromkeys(each for each in parts if isinstance(each, relax.Var)):
                self._readers.setdefault(each, []).append(binding)

    def are_loops_apart(self, variables: Sequence[relax.Var]) -> bool:
        """Whether a tensor is read by elementwise operators alone, in several loops: in bytes they read a fourth.

        Args:
            variables: which hold it.
        """
        first = [reader for each in variables for reader in self._readers.get(each, [])]
        if len(first) < 2 or not all(is_kind(reader.value, Kind.ELEMENTWISE) for reader in first):
            return False
        reached = [self._loop(reader.var) for reader in first]
        return len(set().union(*reached)) == sum(map(len, reached))

    def _loop(self, variable: relax.Var) -> set[relax.Var]:
        """What elementwise operators make of a tensor, one after the other, itself among it."""
        found, left = {variable}, [variable]
        while left:
            for reader in self._readers.get(left.pop(), []):
                quantises = is_call(reader.value, "relax.quantize") or is_call(reader.value, "relax.dequantize")
                if reader.var not in found and (quantises or is_kind(reader.value, Kind.ELEMENTWISE)):
                    found.add(reader.var)
                    left.append(reader.var)
        return found


class _Border(Rewriter):
    """Writes out the conversions between what is in integers and what is in float."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        bindings = [each for block in module["main"].body.blocks for each in block.bindings]
        dequantised: dict[relax.Var, list[relax.Var]] = {}
        for each in bindings:
            if is_call(each.value, "relax.dequantize"):
                dequantised.setdefault(each.value.args[0], []).append(each.var)
        readers = _Readers(module["main"])
        # Those whose integers nothing needs: they are rounded in float.
        self._in_float = {
            each.var: each.value
            for each in bindings
            if is_call(each.value, "relax.quantize")
            and self.uses[each.var] == len(floats := dequantised.get(each.var, []))
            and not readers.are_loops_apart(floats)
        }
        self._dequantised: dict[relax.Var, relax.Call] = {
            each.var: each.value
            for each in bindings
            if is_call(each.value, "relax.dequantize")
            and each.value.args[0] not in self._in_float
            and constant_value(each.value.args[0]) is None
            and steps_of(each.value)
        }

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        steps = steps_of(call)
        if is_call(call, "relax.quantize") and steps:
            kept = any(original.same_as(each) for each in self._in_float.values())
            return None if kept else to_integers(self.builder_, self._own(call, original).args[0], steps)
        if any(original.same_as(each) for each in self._dequantised.values()):
            return self._floats(original)
        return self._own(call, original) if is_kind(call, Kind.ELEMENTWISE) else None

    def _floats(self, original: relax.Call) -> relax.Expr:
        steps = steps_of(original)
        assert steps is not None
        return to_floats(self.builder_, self.visit_expr(original.args[0]), steps)

    def _own(self, call: relax.Call, original: relax.Call) -> relax.Call:
        """An elementwise operator with its own conversions of what it reads: they become one function with it."""
        arguments = [
            self.emit(self._floats(self._dequantised[before])) if before in self._dequantised else now
            for before, now in zip(original.args, call.args, strict=True)
        ]
        return relax.Call(call.op, arguments, call.attrs)
