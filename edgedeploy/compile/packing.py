"""Puts scheduled functions in the place of the original ones, and packs the constants they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import (
    Rewriter,
    calls_of,
    constant,
    constant_value,
    function_name,
    is_call,
    result_types,
    rewritten,
)
from edgedeploy.compile.schedules import Scheduled
from edgedeploy.compile.schedules.kernel import Packing


def constant_parameters(module: tvm.IRModule) -> dict[str, set[int]]:
    """For each function by name, the parameters that are constants in every call of it."""
    found: dict[str, set[int]] = {}
    for _, call in calls_of(module["main"]):
        values = map(constant_value, call.args[1].fields)
        constants = {index for index, value in enumerate(values) if value is not None}
        found[function_name(call)] = found.get(function_name(call), constants) & constants
    return found


def scheduled_name(name: str) -> str:
    """What the scheduled form of a function is called."""
    return f"{name}_scheduled"


# The function that packs constants when a network is loaded, or None where they are packed when it is built.
TransformOf = Callable[[Packing, np.ndarray], tvm.tirx.PrimFunc | None]


def all_when_built(packing: Packing, weights: np.ndarray) -> None:
    """A `TransformOf` that leaves nothing to do when a network is loaded."""


def replace_functions(
    module: tvm.IRModule, scheduled: Mapping[str, Scheduled], transform_of: TransformOf = all_when_built
) -> tvm.IRModule:
    """Call the scheduled functions instead of the original ones of the same name; the others stay."""
    return rewritten(_Replacer, module, scheduled, transform_of)


class _Replacer(Rewriter):
    def __init__(self, module: tvm.IRModule, scheduled: Mapping[str, Scheduled], transform_of: TransformOf) -> None:
        super().__init__(module)
        self._scheduled, self._transform_of = scheduled, transform_of
        self._added: dict[str, relax.GlobalVar] = {}

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        name = function_name(call) if is_call(call, "relax.call_tir") else ""
        replacement = self._scheduled.get(name)
        if replacement is None:
            return None
        if name not in self._added:
            # A new global: `update_func` would keep the old function's type.
            self._added[name] = self.builder_.add_func(replacement.function, scheduled_name(name))
        arguments = list(call.args[1].fields)
        packing = replacement.packing
        if packing is not None:
            value = constant_value(arguments[packing.parameter])
            assert value is not None, "only constants are packed"
            arguments[packing.parameter] = self._packed(packing, value)
        return relax.call_tir(self._added[name], relax.Tuple(arguments), result_types(call))

    def _packed(self, packing: Packing, value: np.ndarray) -> relax.Expr:
        transform = self._transform_of(packing, value)
        if transform is None:
            return constant(packing.pack(value))
        result = transform.params[-1].ty
        added = self.builder_.add_func(transform, "transform")
        kind = relax.TensorType(result.shape, str(result.dtype))
        return self.emit(relax.call_tir(added, relax.Tuple([constant(value)]), kind))
