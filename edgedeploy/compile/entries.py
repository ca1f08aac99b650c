"""Several entry points in one module: networks of the same weights for several shapes of their inputs."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, function_name, is_call, result_types


def entry_name(place: int) -> str:
    """What the function of the first, second, ... entry is called in a package's library."""
    return f"main_{place}" if place else "main"


def joined(modules: Sequence[tvm.IRModule]) -> tvm.IRModule:
    """One module with the functions of all; constants that are equal are then in the library once.

    Args:
        modules: each a network of scheduled functions, called from `main`.
    """
    first, *others = modules
    for place, other in enumerate(others, 1):
        walk = relax.expr_functor.mutator(_Joiner)(first, other, place)
        main = walk.visit_expr(other["main"]).with_attr("global_symbol", entry_name(place))
        walk.builder_.add_func(main, entry_name(place))
        first = walk.builder_.get()
    return first


def renamed(function: str, place: int) -> str:
    """What a function of an entry is called beside those of others."""
    return f"{function}_{entry_name(place)}" if place else function


class _Joiner(Rewriter):
    """Gives the functions that another network calls names that are free in this one."""

    def __init__(self, module: tvm.IRModule, other: tvm.IRModule, place: int) -> None:
        super().__init__(module)
        self._added = {}
        for variable, function in other.functions.items():
            if variable.name_hint != "main":
                name = renamed(variable.name_hint, place)
                self._added[variable.name_hint] = self.builder_.add_func(
                    function.with_attr("global_symbol", name), name
                )

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not is_call(call, "relax.call_tir"):
            return None
        return relax.call_tir(self._added[function_name(call)], call.args[1], result_types(call))
