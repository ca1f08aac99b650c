"""`edgedeploy doctor`: check whether networks can be built, pushed and run, and suggest remedies."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from edgedeploy.cli.console import as_json, foreign, print_json, shown_progress, stdout
from edgedeploy.cli.options import BoardOption, Where
from edgedeploy.errors import NotReadyError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from edgedeploy.base.progress import Progress
    from edgedeploy.doctor.check import Result

_STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red", "not applicable": "dim"}


def doctor(board: BoardOption = "local", *, where: Where) -> None:
    """Check this machine and a board, and suggest fixes.

    Without a board, only this machine is checked. Nothing stays on a board; an unknown host key is recorded, as by
    every command. All checks together take half a minute at most. The exit code is 0 only if networks can be built,
    pushed and run; warnings do not count.

    Examples: edgedeploy doctor; edgedeploy doctor --board rpi4 --host pi@10.0.0.7; edgedeploy doctor -b rpi4 --virtual
    """
    results = _results(board, where, shown_progress())
    failures = [result.check.name for result in results if result.finding.state == "failed"]
    if as_json():
        print_json({"board": board, "ready": not failures, "checks": [_as_dict(result) for result in results]})
    else:
        _print(results)
    if failures:
        raise NotReadyError(f"{board} is not ready", why=f"not in order: {', '.join(failures)}")


def _results(board: str, where: Where, progress: Progress) -> list[Result]:
    """The results of the checks; if Python packages that the checks need are missing, only that result."""
    try:
        from edgedeploy.doctor.case import case_of
        from edgedeploy.doctor.examination import CHECKS, examine
        from edgedeploy.target.resolved import resolve
    except ImportError:
        from edgedeploy.doctor.check import Result, State
        from edgedeploy.doctor.packages import packages

        finding = packages.look(None)  # type: ignore[arg-type]
        if finding.state is not State.FAILED:
            raise
        return [Result(packages, finding)]
    # What hangs is for the checks to find, each in its time.
    resolved = resolve(board, ask_device=False)
    hosts, strict = where.host or (), where.strict_host_key
    with case_of(resolved, hosts, virtual=where.virtual, strict=strict, progress=progress) as case:
        return examine(case, CHECKS, progress=progress)


def _print(results: list[Result]) -> None:
    """A table on a terminal, lines elsewhere."""
    if sys.stdout.isatty():
        # Texts are long: unlike elsewhere, cells are to wrap.
        stdout(wrap=True).print(_table(results))
        return
    for line in _lines(results):
        stdout().print(line)


def _table(results: list[Result]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table("", "check", "", "found, and what to do", box=None, pad_edge=False)
    table.columns[1].no_wrap = table.columns[2].no_wrap = True
    group = None
    for result in results:
        finding, name = result.finding, result.check.group
        cell = foreign(*finding.found.split("\n"))
        for hint in finding.hints:
            cell.append("\n→ ", style="cyan").append(foreign(hint, style="cyan"))
        if group is not None and name != group:
            table.add_section()
        title = Text(name if name != group else "", style="bold")
        state = finding.state.value
        table.add_row(title, result.check.name, Text(state, style=_STYLES[state]), cell)
        group = name
    return table


def _lines(results: list[Result]) -> Iterator[str]:
    for result in results:
        state, found = result.finding.state.value, result.finding.found.replace("\n", "; ")
        yield f"{result.check.group}: {result.check.name}: {state}: {found}"
        yield from (f"  try: {hint}" for hint in result.finding.hints)


def _as_dict(result: Result) -> dict[str, Any]:
    about = {"name": result.check.name, "group": result.check.group}
    return {**about, **vars(result.finding), "seconds": round(result.seconds, 3)}
