"""Reports what became of a network: its functions, their loops and their work, transposes, and removed channels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import tvm
from tvm import relax, sym
from tvm.tirx import ForKind
from tvm_ffi import structural_visit

from edgedeploy.compile.ir.expressions import bindings_of, call_counts, calls_of, function_name, result_types
from edgedeploy.compile.ir.types import bytes_of
from edgedeploy.compile.output.entries import entry_name
from edgedeploy.compile.passes.layouts import SLOW_OPERATORS
from edgedeploy.compile.pipeline import Lowered
from edgedeploy.compile.schedules import Scheduled
from edgedeploy.package.archive import FunctionWork

FEW_STORES = 4_000  # values that one thread stores one by one within about a microsecond: fewer are not worth a line

_CONCURRENT = ForKind.PARALLEL, ForKind.THREAD_BINDING


def explain(network: Lowered) -> dict[str, Any]:
    """A report that can be written as JSON.

    Besides the results of the functions of these names, it has `removed`: for each layer that lost channels its name,
    and how many there were `before` and `after`; and `slow_operators`: those that are slow or may be, and why.
    """
    return {
        "functions": functions(network),
        "transposes": transposes(network),
        "removed": [asdict(layer) for layer in network.removed],
        "slow_operators": {str(name): str(why) for name, why in network.module.attrs[SLOW_OPERATORS].items()},
    }


def functions(network: Lowered) -> list[dict[str, Any]]:
    """One record for each function, most work first, with fields of `Scheduled` and others."""
    records = []
    for name, count in call_counts(network.module).items():
        entry = network.functions.get(name) or Scheduled(network.module[name], "", None, None, 0, False)
        records.append(
            {
                "function": name.removesuffix("_scheduled"),
                "calls": count,  # in one inference
                "template": entry.template or None,  # None if no template takes it, and for reshapes
                "type": str(entry.function.params[0].ty.dtype),  # of a layer's data: of bytes if it adds integers
                **{field: getattr(entry, field) for field in ("tuned", "exact", "tile", "reason", "parallel")},
                # Whether one thread computes many of its values one after the other, without vectors.
                "fallback": bool(entry.template) and stores_of(entry.function).serial_scalar > FEW_STORES,
                "cpu": network.on_cpu.get(name),  # why it runs on the CPU although the board has a device
                "free": _is_free(network, name),  # whether it is a reshape, which costs nothing
                "mflop": round(entry.operations * count / 1e6, 3),  # of all calls together
            }
        )
    return sorted(records, key=lambda record: (-record["mflop"], record["function"]))


def gigaflops(network: Lowered) -> float:
    """Thousands of millions of arithmetic operations in one inference."""
    counts = call_counts(network.module)
    return sum(entry.operations * counts.get(name, 1) for name, entry in network.functions.items()) / 1e9


def transposes(network: Lowered) -> dict[str, int]:
    """How many calls of one inference only, or also, transpose.

    Those at the `edges` read an input of the network or write an output, maybe through free reshapes; layouts that
    differ from a user's NCHW cost them. The others are `inside`.
    """
    calls = list(calls_of(network.module["main"]))
    inputs, returned = set(network.module["main"].params), _returned(network)
    for variable, call in calls:
        if _is_free(network, function_name(call)) and inputs & set(call.args[1].fields):
            inputs.add(variable)
    for variable, call in reversed(calls):
        if _is_free(network, function_name(call)) and variable in returned:
            returned |= set(call.args[1].fields)
    edges = [
        variable in returned or bool(inputs & set(call.args[1].fields))
        for variable, call in calls
        if "transpose" in function_name(call)
    ]
    return {"edges": sum(edges), "inside": len(edges) - sum(edges)}


def _is_free(network: Lowered, name: str) -> bool:
    return name not in network.functions and bool(relax.analysis.has_reshape_pattern(network.module[name]))


def _returned(network: Lowered) -> set[Any]:
    """The variables whose values are the network's outputs."""
    main = network.module["main"]
    found = set(relax.analysis.free_vars(main.body.body))
    for binding in reversed(bindings_of(main)):
        if binding.var in found and isinstance(binding.value, relax.Var | relax.Tuple):
            found.update(relax.analysis.free_vars(binding.value))
    return found


def work_of(network: Lowered, entries: int = 1) -> list[FunctionWork]:
    """The operations and bytes of functions, in the order of their first calls, for each of a package's entries."""
    calls: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    types: dict[str, str] = {}
    for place in range(entries):
        for _, call in calls_of(network.module[entry_name(place)]):
            name = function_name(call)
            tensors = [*(argument.ty for argument in call.args[1].fields), *result_types(call)]
            calls[name] += 1
            moved[name] += sum(math.prod(map(int, each.shape)) * bytes_of(str(each.dtype)) for each in tensors)
            types.setdefault(name, str(tensors[0].dtype))
    return [
        FunctionWork(
            function=name,
            calls=count,
            template=entry.template if (entry := network.functions.get(name)) else None,
            type=types[name],
            operations=round(entry.operations * count) if entry else 0,
            bytes=moved[name],
        )
        for name, count in calls.items()
    ]


@dataclass(frozen=True)
class Stores:
    """How many values one call of a function stores; a sum stores once for each of its terms."""

    total: int
    scalar: int  # one by one, outside of vectorised loops
    serial_scalar: int  # by one thread, too; work-items of a device are several


def stores_of(function: tvm.tirx.PrimFunc) -> Stores:
    """Count the stores of a function; of loops whose lengths depend on others, the longest."""
    found: list[list[tvm.tirx.For]] = []
    around: list[tvm.tirx.For] = []

    def in_loop(loop: tvm.tirx.For, visitor: Any) -> None:
        around.append(loop)
        visitor.default_visit(loop)
        around.pop()

    at_store = tvm.tirx.BufferStore, lambda store, visitor: found.append([*around])
    structural_visit(function.body, [(tvm.tirx.For, in_loop), at_store])
    counted = [(math.prod(_lengths(loops)), {loop.kind for loop in loops}) for loops in found]

    def outside(*kinds: ForKind) -> int:
        return sum(count for count, loops in counted if loops.isdisjoint(kinds))

    return Stores(outside(), outside(ForKind.VECTORIZED), outside(ForKind.VECTORIZED, *_CONCURRENT))


def _lengths(loops: Iterable[tvm.tirx.For]) -> Iterator[int]:
    """How often each of nested loops runs at most."""
    bounds = sym.Analyzer()
    for loop in loops:
        yield int(bounds.const_int_bound(loop.extent).max_value)
        bounds.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))
