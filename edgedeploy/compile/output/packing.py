"""Replaces functions by scheduled ones, and packs their constants when a network is built or when it is loaded.

Weights that grow are packed when a network is loaded: packages hold them as they were, which takes less room. A
*transform* is a function that the network calls with a constant. `lifted` moves all these calls into a function of the
library, which takes the constants and returns further arguments of the network, after its inputs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te

from edgedeploy.compile.backend import Backend
from edgedeploy.compile.ir import expressions as ir
from edgedeploy.compile.ir.types import bytes_of
from edgedeploy.compile.schedules import Scheduled
from edgedeploy.compile.schedules.kernel import Packing
from edgedeploy.package.manifest import TRANSFORM

TRANSFORM_ATTRIBUTE = "edgedeploy.transform"  # marks functions that transform a constant
LEAST_GROWTH = 1 << 16  # weights that grow by fewer bytes are packed when the library is built

# Returns the function that packs weights when a network is loaded, or None if they are packed when it is built.
TransformOf = Callable[[Packing, np.ndarray], tvm.tirx.PrimFunc | None]


def constant_parameters(module: tvm.IRModule) -> dict[str, set[int]]:
    """For each function by name, the parameters that are constants in every call of it."""
    found: dict[str, set[int]] = {}
    for _, call in ir.calls_of(module["main"]):
        values = map(ir.constant_value, call.args[1].fields)
        constants = {index for index, value in enumerate(values) if value is not None}
        found[ir.function_name(call)] = found.get(ir.function_name(call), constants) & constants
    return found


def scheduled_name(name: str) -> str:
    """The name of a function's scheduled form."""
    return f"{name}_scheduled"


def transform_of(packing: Packing, weights: np.ndarray, backend: Backend) -> tvm.tirx.PrimFunc | None:
    """The function that packs weights when a network is loaded; None if they do not grow, or too little."""
    if packing.form is None:
        return None
    plain = te.placeholder(weights.shape, str(weights.dtype), name="plain")
    packed = packing.form(plain)
    if math.prod(map(int, packed.shape)) * bytes_of(str(packed.dtype)) < weights.nbytes + LEAST_GROWTH:
        return None
    scheduled = backend.schedule(te.create_prim_func([plain, packed], index_dtype_override="int64"), set())
    assert scheduled is not None, "the CPU takes what no other backend takes"
    return scheduled.function.without_attr("global_symbol").with_attr(TRANSFORM_ATTRIBUTE, 1)


class _Replacer(ir.Rewriter):
    def __init__(self, module: tvm.IRModule, scheduled: Mapping[str, Scheduled], transform: TransformOf | None) -> None:
        super().__init__(module)
        self._scheduled, self._transform = scheduled, transform
        self._added: dict[str, relax.GlobalVar] = {}

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        name = ir.function_name(call) if ir.is_call(call, "relax.call_tir") else ""
        replacement = self._scheduled.get(name)
        if replacement is None:
            return None
        if name not in self._added:
            # A new global: `update_func` would keep the old function's type.
            self._added[name] = self.builder_.add_func(replacement.function, scheduled_name(name))
        arguments = list(call.args[1].fields)
        if packing := replacement.packing:
            value = ir.constant_value(arguments[packing.parameter])
            assert value is not None, "only constants are packed"
            arguments[packing.parameter] = self._packed(packing, value)
        return relax.call_tir(self._added[name], relax.Tuple(arguments), ir.result_types(call))

    def _packed(self, packing: Packing, value: np.ndarray) -> relax.Expr:
        transform = self._transform(packing, value) if self._transform else None
        if transform is None:
            return ir.constant(packing.pack(value))
        result = transform.params[-1].ty
        added = self.builder_.add_func(transform, "transform")
        kind = relax.TensorType(result.shape, str(result.dtype))
        return self.emit(relax.call_tir(added, relax.Tuple([ir.constant(value)]), kind))


def replace_functions(
    module: tvm.IRModule, scheduled: Mapping[str, Scheduled], transform: TransformOf | None = None
) -> tvm.IRModule:
    """Call the scheduled functions instead of those of the same name; without `transform`, weights are packed now."""
    return _Replacer.rewritten(module, scheduled, transform)


class Lifted(NamedTuple):
    """A module whose entries take the results of its function `TRANSFORM` after their inputs, and its arguments."""

    module: tvm.IRModule
    weights: list[np.ndarray]


def lifted(module: tvm.IRModule) -> Lifted:
    """Move the transforms that a module's entries call into one function, each of each constant once."""
    entries = {variable: each for variable, each in module.functions_items() if isinstance(each, relax.Function)}
    transforms = _Transforms(module)
    for entry in entries.values():
        for _, call in ir.calls_of(entry):
            transforms.note(call)
    if not transforms.results:
        return Lifted(module, [])
    kinds = [kind for *_, kind in transforms.results.values()]
    for variable, entry in entries.items():
        added = [relax.Var(f"transformed_{place}", kind) for place, kind in enumerate(kinds)]
        rest = relax.expr_functor.mutator(_Lifter)(module, transforms, added).visit_expr(entry)
        whole = relax.Function([*rest.params, *added], rest.body, rest.ret_ty, rest.is_pure, rest.attrs)
        module = tvm.IRModule({**module.functions, variable: whole}, attrs=module.attrs)
    return Lifted(transforms.added_to(module), list(transforms.weights.values()))


class _Transforms:
    """The different transforms that a module calls."""

    def __init__(self, module: tvm.IRModule) -> None:
        self.weights: dict[str, np.ndarray] = {}  # the arguments, by a hash of their content
        # The function of each, the index of its argument, and the type of its result, by what makes it a different one.
        self.results: dict[tuple[int, int], tuple[tvm.ir.GlobalVar, int, relax.TensorType]] = {}
        self._module = module

    def note(self, call: relax.Call) -> int | None:
        """The index of a call's result; None if it is not a transform."""
        function = self._module[call.args[0]]
        if not (function.attrs and TRANSFORM_ATTRIBUTE in function.attrs):
            return None
        [array] = map(ir.constant_value, call.args[1].fields)
        assert array is not None, "only constants are transformed"
        digest = hashlib.sha256(repr((array.dtype.str, array.shape)).encode() + array.tobytes()).hexdigest()
        self.weights.setdefault(digest, array)
        taken = list(self.weights).index(digest)
        [kind] = ir.result_types(call)
        key = tvm_ffi.structural_hash(function.without_attr("global_symbol")), taken
        self.results.setdefault(key, (call.args[0], taken, kind))
        return list(self.results).index(key)

    def added_to(self, module: tvm.IRModule) -> tvm.IRModule:
        """The module with a function that computes all results."""
        builder = relax.BlockBuilder(module)
        types = [relax.TensorType(each.shape, str(each.dtype)) for each in self.weights.values()]
        plain = [relax.Var(f"plain_{place}", kind) for place, kind in enumerate(types)]
        with builder.function(TRANSFORM, plain):
            with builder.dataflow():
                values = [
                    builder.emit(relax.call_tir(function, relax.Tuple([plain[taken]]), kind))
                    for function, taken, kind in self.results.values()
                ]
                output = builder.emit_output(relax.Tuple(values))
            builder.emit_func_output(output)
        return relax.transform.DeadCodeElimination()(builder.get())


class _Lifter(ir.Rewriter):
    """Takes transformed weights from an entry's parameters."""

    def __init__(self, module: tvm.IRModule, transforms: _Transforms, added: list[relax.Var]) -> None:
        super().__init__(module)
        self._transforms, self._added = transforms, added

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        place = self._transforms.note(call) if ir.is_call(call, "relax.call_tir") else None
        return None if place is None else self._added[place]
