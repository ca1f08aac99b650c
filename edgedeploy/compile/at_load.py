"""Weights that are transformed when a network is loaded: packages hold them as they were, which takes less room.

A transform is a function that the network calls with a constant. `lifted` moves all these calls into a function of the
library, which takes the constants and gives what the network is called with then, after its inputs.
"""

from __future__ import annotations

import hashlib
import math
from typing import NamedTuple

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te

from edgedeploy.compile.backend import Backend
from edgedeploy.compile.expressions import Rewriter, calls_of, constant_value, is_call, result_types
from edgedeploy.compile.schedules.kernel import Packing
from edgedeploy.compile.types import bytes_of
from edgedeploy.package.manifest import TRANSFORM

# Marks functions that transform a constant.
TRANSFORM_ATTRIBUTE = "edgedeploy.transform"

# Weights that grow by fewer bytes stay in the library, transformed when it is built.
LEAST_GROWTH = 1 << 16


def transform_of(packing: Packing, weights: np.ndarray, backend: Backend) -> tvm.tirx.PrimFunc | None:
    """The function that packs weights when a network is loaded; None where they are to be packed when it is built.

    That is where they do not grow by it, or too little.
    """
    if packing.form is None:
        return None
    plain = te.placeholder(weights.shape, str(weights.dtype), name="plain")
    packed = packing.form(plain)
    if math.prod(map(int, packed.shape)) * bytes_of(str(packed.dtype)) < weights.nbytes + LEAST_GROWTH:
        return None
    scheduled = backend.schedule(te.create_prim_func([plain, packed], index_dtype_override="int64"), set())
    assert scheduled is not None, "the CPU takes what no other backend takes"
    return scheduled.function.without_attr("global_symbol").with_attr(TRANSFORM_ATTRIBUTE, 1)


class Lifted(NamedTuple):
    """A module whose weights are transformed when it is loaded.

    Attributes:
        module: its entries take the transformed weights after their inputs; its function `TRANSFORM` makes them. Where
            there are none, the module is as it was.
        weights: what that function takes, in order.
    """

    module: tvm.IRModule
    weights: list[np.ndarray]


def lifted(module: tvm.IRModule) -> Lifted:
    """Move the transforms that a module's entries call into one function: of each constant, each once."""
    entries = {variable: each for variable, each in module.functions_items() if isinstance(each, relax.Function)}
    transforms = _Transforms(module)
    for entry in entries.values():
        for _, call in calls_of(entry):
            transforms.note(call)
    if not transforms.results:
        return Lifted(module, [])
    for variable, entry in entries.items():
        given = [relax.Var(f"transformed_{place}", kind) for place, (*_, kind) in enumerate(transforms.results)]
        walk = relax.expr_functor.mutator(_Lifter)(module, transforms, given)
        rest = walk.visit_expr(entry)
        whole = relax.Function([*rest.params, *given], rest.body, rest.ret_ty, rest.is_pure, rest.attrs)
        module = tvm.IRModule({**module.functions, variable: whole}, attrs=module.attrs)
    return Lifted(transforms.added_to(module), list(transforms.weights.values()))


class _Transforms:
    """The different transforms that a module calls.

    Attributes:
        weights: what they take, by a hash of the content.
        results: of each the function, the index of what it takes, and the type of what it gives.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        self.weights: dict[str, np.ndarray] = {}
        self.results: list[tuple[tvm.ir.GlobalVar, int, relax.TensorType]] = []
        self._module = module
        self._places: dict[tuple[int, int], int] = {}

    def note(self, call: relax.Call) -> int | None:
        """Which of the results a call gives; None where it is no transform."""
        function = self._module[call.args[0]]
        if not (function.attrs and TRANSFORM_ATTRIBUTE in function.attrs):
            return None
        [array] = map(constant_value, call.args[1].fields)
        assert array is not None, "only constants are transformed"
        digest = hashlib.sha256(repr((array.dtype.str, array.shape)).encode() + array.tobytes()).hexdigest()
        self.weights.setdefault(digest, array)
        taken = list(self.weights).index(digest)
        [kind] = result_types(call)
        key = tvm_ffi.structural_hash(function.without_attr("global_symbol")), taken
        if key not in self._places:
            self._places[key] = len(self.results)
            self.results.append((call.args[0], taken, kind))
        return self._places[key]

    def added_to(self, module: tvm.IRModule) -> tvm.IRModule:
        """The module with a function that computes all results."""
        builder = relax.BlockBuilder(module)
        types = [relax.TensorType(each.shape, str(each.dtype)) for each in self.weights.values()]
        plain = [relax.Var(f"plain_{place}", kind) for place, kind in enumerate(types)]
        with builder.function(TRANSFORM, plain):
            with builder.dataflow():
                values = [
                    builder.emit(relax.call_tir(function, relax.Tuple([plain[taken]]), kind))
                    for function, taken, kind in self.results
                ]
                output = builder.emit_output(relax.Tuple(values))
            builder.emit_func_output(output)
        return relax.transform.DeadCodeElimination()(builder.get())


class _Lifter(Rewriter):
    """Takes transformed weights from an entry's parameters."""

    def __init__(self, module: tvm.IRModule, transforms: _Transforms, given: list[relax.Var]) -> None:
        super().__init__(module)
        self._transforms, self._given = transforms, given

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        place = self._transforms.note(call) if is_call(call, "relax.call_tir") else None
        return None if place is None else self._given[place]
