"""Results of long runs, kept in a JSON file as they come, so that a run can go on where it was ended; their tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from edgedeploy.base.files import replacing

Kind = TypeVar("Kind")


def read_results(file: Path | None, kind: type[Kind]) -> list[Kind]:
    """The results, records of a dataclass, that a file has; none if there is no file."""
    if file is None or not file.exists():
        return []
    return [kind(**each) for each in json.loads(file.read_text(encoding="utf-8"))]


def write_results(file: Path, results: Sequence[Any]) -> None:
    """Write all results."""
    with replacing(file) as temporary:
        temporary.write_text(json.dumps([asdict(result) for result in results], indent=1), encoding="utf-8")


def as_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in Markdown, the first of them the heads."""
    head, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---", *["---:"] * (len(head) - 1)], *others])
