"""What the functions of a compiled network do in an inference: operations and bytes."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from edgedeploy.compile.entries import entry_name
from edgedeploy.compile.expressions import calls_of, function_name, result_types
from edgedeploy.compile.pipeline import Lowered
from edgedeploy.compile.types import bytes_of
from edgedeploy.package.members import FunctionWork


def work_of(network: Lowered, entries: int = 1) -> list[FunctionWork]:
    """The functions in the order of their first calls, those of each of a package's entries."""
    calls: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    types: dict[str, str] = {}
    for place in range(entries):
        for _, call in calls_of(network.module[entry_name(place)]):
            name = function_name(call)
            read = [argument.ty for argument in call.args[1].fields]
            calls[name] += 1
            moved[name] += sum(map(_bytes, [*read, *result_types(call)]))
            types.setdefault(name, str(next(iter([*read, *result_types(call)])).dtype))
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


def _bytes(kind: Any) -> int:
    return math.prod(int(size) for size in kind.shape) * bytes_of(str(kind.dtype))
