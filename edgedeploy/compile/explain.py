"""What became of a network: its functions in the order of their work, with the template and tile of each."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tvm import relax

from edgedeploy.compile.folding import is_call
from edgedeploy.compile.pipeline import Compiled


def explain(compiled: Compiled) -> list[dict[str, Any]]:
    """One record for each function, most work first.

    The fields are `function`, `calls` (in one inference), `template`, `tile`, `parallel`, and `mflop`: millions
    of arithmetic operations in all calls together. A template is None where TVM's own form was kept: a reshape
    that costs nothing.
    """
    calls = _calls(compiled)
    records = []
    for name, count in calls.items():
        entry = compiled.functions.get(name)
        records.append(
            {
                "function": name.removesuffix("_scheduled"),
                "calls": count,
                "template": entry.template if entry else None,
                "tile": entry.tile if entry else "",
                "parallel": entry.parallel if entry else False,
                "mflop": round(entry.operations * count / 1e6, 3) if entry else 0.0,
            }
        )
    return sorted(records, key=lambda record: (-record["mflop"], record["function"]))


def transposes(compiled: Compiled) -> int:
    """How many calls of one inference only, or also, transpose."""
    return sum(count for name, count in _calls(compiled).items() if "transpose" in name)


def _calls(compiled: Compiled) -> Counter[str]:
    counts: Counter[str] = Counter()

    def visit(expression: relax.Expr) -> None:
        if is_call(expression, "relax.call_tir"):
            counts[expression.args[0].name_hint] += 1

    relax.analysis.post_order_visit(compiled.module["main"].body, visit)
    return counts
