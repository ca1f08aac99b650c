"""What became of a network: its functions in the order of their work, the transposes left, what was removed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tvm import relax

from edgedeploy.compile.expressions import call_counts, calls_of, function_name
from edgedeploy.compile.loops import stores_of
from edgedeploy.compile.passes.builtin import SLOW_OPERATORS
from edgedeploy.compile.pipeline import Lowered

# Values that one thread stores one by one within about a microsecond: fewer are not worth a line.
FEW_STORES = 4_000


def explain(network: Lowered) -> dict[str, Any]:
    """A report that can be written as JSON.

    Its fields are `functions` and `transposes`, as the functions of these names give them; `removed`: for
    each layer that lost channels its name, and how many there were `before` and `after`; and `slow_operators`: by name,
    those of the network that are slow or may be, and why.
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
    layer's data: uint8 or int8 where it computes in integers), `tuned` (by measurements), `exact` (a faster form was
    passed over for its rounding errors), `tile` (with the inner step that multiplies, and its products per cycle),
    `reason` (why integers are summed up in float), `parallel`, `mflop`: millions of arithmetic operations in all
    calls together, and `fallback`: whether more than `FEW_STORES` of its values are computed one after the other by one
    thread, with no vectors. `cpu` says why a function runs on the CPU though the board has a device beside it; None for
    all others. A template is None where TVM's own form was kept: what no template takes, and reshapes, which cost
    nothing (`free`).
    """
    records = []
    for name, count in call_counts(network.module).items():
        entry = network.functions.get(name)
        records.append(
            {
                "function": name.removesuffix("_scheduled"),
                "calls": count,
                "template": entry.template if entry else None,
                "type": str((entry.function if entry else network.module[name]).params[0].ty.dtype),
                "tuned": entry.tuned if entry else False,
                "exact": entry.exact if entry else False,
                "tile": entry.tile if entry else "",
                "reason": entry.reason if entry else "",
                "parallel": entry.parallel if entry else False,
                "fallback": entry is not None and stores_of(entry.function).serial_scalar > FEW_STORES,
                "cpu": network.on_cpu.get(name),
                "free": _is_free(network, name),
                "mflop": round(entry.operations * count / 1e6, 3) if entry else 0.0,
            }
        )
    return sorted(records, key=lambda record: (-record["mflop"], record["function"]))


def gigaflops(network: Lowered) -> float:
    """Thousands of millions of arithmetic operations in one inference."""
    counts = call_counts(network.module)
    return sum(entry.operations * counts.get(name, 1) for name, entry in network.functions.items()) / 1e9


def transposes(network: Lowered) -> dict[str, int]:
    """How many calls of one inference only, or also, transpose.

    Those at the `edges` read an input of the network or write an output, but for free reshapes; layouts that
    differ from a user's NCHW cost them. The others are `inside`.
    """
    calls = list(calls_of(network.module["main"]))
    given, returned = set(network.module["main"].params), _returned(network)
    for variable, call in calls:
        if _is_free(network, function_name(call)) and given & set(call.args[1].fields):
            given.add(variable)
    for variable, call in reversed(calls):
        if _is_free(network, function_name(call)) and variable in returned:
            returned |= set(call.args[1].fields)
    edges = [
        variable in returned or bool(given & set(call.args[1].fields))
        for variable, call in calls
        if "transpose" in function_name(call)
    ]
    return {"edges": sum(edges), "inside": len(edges) - sum(edges)}


def _is_free(network: Lowered, name: str) -> bool:
    return name not in network.functions and bool(relax.analysis.has_reshape_pattern(network.module[name]))


def _returned(network: Lowered) -> set[Any]:
    """The variables whose values are the network's outputs."""
    main = network.module["main"].body
    bindings = {binding.var: binding.value for block in main.blocks for binding in block.bindings}
    found, pending = set(), [main.body]
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
