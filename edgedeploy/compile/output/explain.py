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
from edgedeploy.package.members import FunctionWork

# Values that one thread stores one by one within about a microsecond: fewer are not worth a line.
FEW_STORES = 4_000

_CONCURRENT = {ForKind.PARALLEL, ForKind.THREAD_BINDING}


def explain(network: Lowered) -> dict[str, Any]:
    """A report that can be written as JSON.

    Its fields are `functions` and `transposes`, the results of the functions of these names; `removed`: for each layer
    that lost channels its name, and how many there were `before` and `after`; and `slow_operators`: by name, those of
    the network that are slow or may be, and why.
    """
    return {
        "functions": functions(network),
        "transposes": transposes(network),
        "removed": [asdict(layer) for layer in network.removed],
        "slow_operators": {str(name): str(why) for name, why in network.module.attrs[SLOW_OPERATORS].items()},
    }


def functions(network: Lowered) -> list[dict[str, Any]]:
    """One record for each function, most work first.

    The fields are `function`, `calls` (in one inference), `template`, `type` (of the tensor that it reads first, a
    layer's data: uint8 or int8 if it computes in integers), `tuned` (by measurements), `exact` (a faster form was
    passed over for its rounding errors), `tile` (with the inner step that multiplies, and its products per cycle),
    `reason` (why integers are summed up in float), `parallel`, `mflop`: millions of arithmetic operations in all
    calls together, and `fallback`: whether one thread computes more than `FEW_STORES` of its values one after the
    other, without vectors. `cpu` is why a function runs on the CPU although the board has a device; None for all
    others. A template is None for functions of TVM's own form: those that no template takes, and reshapes, which cost
    nothing (`free`).
    """
    records = []
    for name, count in call_counts(network.module).items():
        entry = network.functions.get(name) or Scheduled(network.module[name], "", None, None, 0, False)
        records.append(
            {
                "function": name.removesuffix("_scheduled"),
                "calls": count,
                "template": entry.template or None,
                "type": str(entry.function.params[0].ty.dtype),
                "tuned": entry.tuned,
                "exact": entry.exact,
                "tile": entry.tile,
                "reason": entry.reason,
                "parallel": entry.parallel,
                "fallback": bool(entry.template) and stores_of(entry.function).serial_scalar > FEW_STORES,
                "cpu": network.on_cpu.get(name),
                "free": _is_free(network, name),
                "mflop": round(entry.operations * count / 1e6, 3),
            }
        )
    return sorted(records, key=lambda record: (-record["mflop"], record["function"]))


def gigaflops(network: Lowered) -> float:
    """Thousands of millions of arithmetic operations in one inference."""
    counts = call_counts(network.module)
    return sum(entry.operations * counts.get(name, 1) for name, entry in network.functions.items()) / 1e9


def transposes(network: Lowered) -> dict[str, int]:
    """How many calls of one inference only, or also, transpose.

    Transposes at the `edges` read an input of the network or write an output, maybe through free reshapes; layouts that
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
    bindings = {binding.var: binding.value for binding in bindings_of(main)}
    found, pending = set(), [main.body.body]
    while pending:
        expression = pending.pop()
        if isinstance(expression, relax.Tuple):
            pending.extend(expression.fields)
            continue
        found.add(expression)
        value = bindings.get(expression)
        if isinstance(value, relax.Var | relax.Tuple):
            pending.append(value)
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
    """How many values one call of a function stores, sorted by the loops around the store.

    A sum stores once for each of its terms.

    Attributes:
        total: all of them.
        scalar: those stored one by one, outside of vectorised loops.
        serial_scalar: those of `scalar` that one thread stores; work-items of a device are several.
    """

    total: int
    scalar: int
    serial_scalar: int


def stores_of(function: tvm.tirx.PrimFunc) -> Stores:
    """Count the stores of a function; of loops whose lengths depend on others, the longest."""
    found: list[list[tvm.tirx.For]] = []
    around: list[tvm.tirx.For] = []

    def in_loop(loop: tvm.tirx.For, visitor: Any) -> None:
        around.append(loop)
        visitor.default_visit(loop)
        around.pop()

    def note(store: tvm.tirx.BufferStore, visitor: Any) -> None:
        found.append([*around])

    structural_visit(function.body, [(tvm.tirx.For, in_loop), (tvm.tirx.BufferStore, note)])
    counted = [(math.prod(_lengths(loops)), {loop.kind for loop in loops}) for loops in found]
    scalar = [(count, kinds) for count, kinds in counted if ForKind.VECTORIZED not in kinds]
    return Stores(
        total=sum(count for count, _ in counted),
        scalar=sum(count for count, _ in scalar),
        serial_scalar=sum(count for count, kinds in scalar if not kinds & _CONCURRENT),
    )


def _lengths(loops: Iterable[tvm.tirx.For]) -> Iterator[int]:
    """How often each of nested loops runs at most."""
    bounds = sym.Analyzer()
    for loop in loops:
        yield int(bounds.const_int_bound(loop.extent).max_value)
        bounds.bind(loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent))
