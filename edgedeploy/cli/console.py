"""What the commands print with: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from edgedeploy import interruption
from edgedeploy.errors import ConfigurationError, EdgedeployError
from edgedeploy.progress import Progress
from edgedeploy.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from edgedeploy.catalog import Catalog
    from edgedeploy.documents import Document


def stdout() -> Console:
    """The console of results."""
    from rich.console import Console

    # Into a pipe, tables are as wide as they need to be.
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)


def stderr() -> Console:
    """The console of progress, notes and errors."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(content: Any) -> None:
    """Print one JSON value for scripts."""
    print(json.dumps(content, indent=2, ensure_ascii=False))


def print_json_line(content: Any) -> None:
    """Print one JSON value of several, on a line of its own and at once."""
    print(json.dumps(content, ensure_ascii=False), flush=True)


@contextmanager
def until_interrupted() -> Iterator[Callable[[], bool]]:
    """Within the block Ctrl-C only asks for an end: the call says whether it came. A second one interrupts as ever."""
    asked = False

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(number, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


def readable(catalog: Catalog[Document]) -> list[tuple[Path, Document]]:
    """All documents of a catalogue with their files; a warning for each broken one, which must not hide the rest."""
    entries = []
    for name in catalog.names():
        try:
            entries.append((catalog.find(name), catalog.load(name)))
        except ConfigurationError as error:
            stderr().print(f"warning: the {catalog.noun} {name} is left out: {error}", markup=False)
    return entries


def print_error(error: EdgedeployError) -> None:
    """Print what happened, why, and what to try. Names from files, and what boards and drivers say, are in there."""
    console = stderr()
    console.print("error:", style="bold red", end=" ")
    console.print(foreign(*str(error).expandtabs().splitlines()))
    for hint in error.hints:
        console.print(foreign(f"  try: {hint}"))


def foreign(*lines: str, style: str = "") -> Text:
    """Text that anybody may have written, as a console and tables take it: no markup, nothing that moves the cursor."""
    from rich.text import Text

    return Text("\n".join(map(printable, lines)), style)


class ConsoleProgress(Progress):
    """Progress as bars on a terminal, and as plain lines elsewhere; always on standard error."""

    def __init__(self) -> None:
        self._console = stderr()

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Show a spinner while the step runs, and one line with its time after it."""
        started = perf_counter()
        if self._console.is_terminal:
            with self._console.status(title):
                yield
        else:
            yield
        interruption.check()
        self._console.print(f"  {title:<42} {perf_counter() - started:6.2f} s", markup=False)

    @contextmanager
    def transfer(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
        """Show a bar with size, speed and remaining time."""
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Bars

        if not self._console.is_terminal:
            self._console.print(f"  {title} ({total:,} bytes)", markup=False)
            yield lambda count: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        with Bars(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=self._console) as bars:
            task = bars.add_task(title, total=total, completed=done)
            yield lambda count: bars.advance(task, count)

    @contextmanager
    def steps(self, title: str, total: int) -> Iterator[Callable[[], None]]:
        """Show a bar with the remaining time, and one line with the whole time after it."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        started = perf_counter()
        if self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            # By default rich would take over results on their way into a file, too.
            redirect = sys.stdout.isatty()
            with Bars(*columns, console=self._console, transient=True, redirect_stdout=redirect) as bars:
                task = bars.add_task(title, total=total)
                yield lambda: bars.advance(task)
        else:
            self._console.print(f"  {title} ({total} steps)", markup=False)
            yield lambda: None
        self._console.print(f"  {title:<42} {perf_counter() - started:6.2f} s", markup=False)

    def note(self, text: str) -> None:
        """Print the line."""
        self._console.print(text, markup=False)


def quiet_if(json_output: bool) -> Progress:
    """The progress listener of a command: silent where a script reads JSON and nobody watches."""
    return Progress() if json_output and not sys.stderr.isatty() else ConsoleProgress()
