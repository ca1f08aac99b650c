"""What the commands print with: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Literal

import typer

from edgedeploy.base import interruption
from edgedeploy.base.attempts import first_failure
from edgedeploy.base.closing import beside
from edgedeploy.base.progress import SECONDS_PER_LINE, Notes, Progress
from edgedeploy.base.text import duration, json_text, printable, without_secrets
from edgedeploy.cli.global_options import global_options
from edgedeploy.errors import ConfigurationError, EdgedeployError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from edgedeploy.base.catalog import Catalog
    from edgedeploy.base.documents import Document


def stdout(*, wrap: bool = False) -> Console:
    """The console of results, which does not break lines unless `wrap`."""
    from edgedeploy.cli.terminal import Terminal

    # Into a pipe, tables are as wide as they need to be.
    return Terminal(soft_wrap=not wrap, width=None if sys.stdout.isatty() else 200)


def stderr() -> Console:
    """The console of progress, notes and errors."""
    from edgedeploy.cli.terminal import Terminal

    return Terminal(stderr=True, soft_wrap=True)


class _AsText(logging.Formatter):
    """Log messages of libraries, which may contain foreign text."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(printable, without_secrets(super().format(record)).splitlines()))


def log(level: int) -> None:
    """Log to standard error from a level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_AsText("%(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger().setLevel(level)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines that scripts compare, unwrapped, with unprintable characters escaped."""
    print(*map(printable, lines), sep="\n", flush=True)


def print_json(content: Any) -> None:
    """Print one JSON value for scripts."""
    print(_json(content, indent=2))


def as_json() -> bool:
    """Whether results are JSON."""
    return global_options().json


def print_result(value: Any, *shown: RenderableType) -> None:
    """Print a result: one JSON value for scripts, or lines and tables for people."""
    if as_json():
        print_json(value)
    print_text(*shown)


def print_text(*shown: RenderableType) -> None:
    """Print lines and tables of a result, unless it is JSON."""
    if shown and not as_json():
        stdout().print(*shown, sep="\n")


def print_json_line(content: Any) -> None:
    """Print one JSON value on a line of its own, at once."""
    print(_json(content), flush=True)


def _json(content: Any, indent: int | None = None) -> str:
    """JSON with exact strings and unprintable characters escaped."""
    text = json_text(content, indent=indent, ascii_only=False)
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


@contextmanager
def until_interrupted() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed once in the block; only a second one interrupts."""
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
    """All documents of a catalogue with their files; broken ones are left out with a warning."""
    entries = []
    for name in catalog.names():
        try:
            entries.append((catalog.find(name), catalog.load(name)))
        except ConfigurationError as error:
            stderr().print(f"warning: the {catalog.noun} {name} is left out: {error.cause}")
    return entries


def print_json_error(what: str, why: str | None, hints: Iterable[str], code: int) -> None:
    """Print the error that ends a command, instead of a result, as one JSON value."""
    print_json_line({"error": {"what": what, "why": why, "try": list(hints), "code": code}})


def print_error(error: EdgedeployError, heading: str = "error:") -> None:
    """Print what happened, why, and what to try, after a heading."""
    console = stderr()
    console.print(foreign(heading, style="bold red"), end=" ")
    console.print(*_lines(error.cause), sep="\n")
    for hint in error.hints:
        console.print(f"  try: {hint}")


def conclude(outcomes: Iterable[tuple[str, object]]) -> None:
    """Print failures of items with what `attempted` returned; end with their exit code (docs/exit-codes.md) if any."""
    found = list(outcomes)
    for name, outcome in found:
        if isinstance(outcome, EdgedeployError):
            print_error(outcome, f"{name} {outcome.state}:")
    if failure := first_failure(outcome for _, outcome in found):
        raise typer.Exit(failure.exit_code)


def print_outcomes(outcomes: Mapping[str, object], done: Callable[[Any], str], *, what: str = "network") -> None:
    """Print a table of items and what `attempted` returned to standard error, unless results are JSON.

    `done` words the outcome of an item that did not fail; `what` is the noun for items.
    """
    if as_json():
        return
    rows = (
        [name, outcome.state if isinstance(outcome, EdgedeployError) else done(outcome)]
        for name, outcome in outcomes.items()
    )
    stderr().print("", as_table([what, "result"], rows), sep="\n")


def _lines(text: str) -> list[str]:
    """The lines of a text; those after the first, from other programs, get a bar, so that none looks like a hint."""
    first, *further = text.expandtabs().splitlines() or [""]
    return [first, *(f"  | {line}" for line in further)]


def as_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    title: str | None = None,
) -> Table:
    """A table with titles of columns, and rows of strings or of what `foreign` returns.

    Columns in `right` are right-aligned, and texts of those in `whole` are not broken between words.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for name in titles:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(name, justify=justify, no_wrap=name in whole, overflow="fold" if name in whole else "ellipsis")
    for row in rows:
        table.add_row(*row)
    return table


def foreign(*lines: str, style: str = "") -> Text:
    """Foreign lines, made printable, as one text: for cells with several lines, or with a style."""
    from rich.text import Text

    return Text("\n".join(map(printable, lines)), style)


class ConsoleProgress(Progress):
    """Progress as bars on a terminal, and as plain lines elsewhere; always on standard error."""

    def __init__(self, *, every_s: float = SECONDS_PER_LINE, clock: Callable[[], float] = monotonic) -> None:
        """Set the time between lines without a bar, and a clock that gives seconds."""
        self._console = stderr()
        self._every_s, self._clock = every_s, clock

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Show a spinner while the step runs, and one line with its time after it."""
        with self._timed(title):
            with self._console.status(foreign(title)) if self._console.is_terminal else self._waiting(title):
                yield
            interruption.check()

    def transfer(self, title: str, total: int, done: int = 0) -> AbstractContextManager[Callable[[int], None]]:
        """Show a bar with size, speed and remaining time."""
        from rich.progress import DownloadColumn, TransferSpeedColumn

        if self._console.is_terminal:
            return self._bar(title, total, DownloadColumn(), TransferSpeedColumn(), done=done)
        return self._counted(title, f"{total:,} bytes", lambda sent: f"{sent / max(total, 1):.0%}", done)

    @contextmanager
    def steps(self, title: str, total: int) -> Iterator[Callable[[], None]]:
        """Show the remaining time on a bar, or in a line now and then; and one line with the whole time after it."""
        from rich.progress import MofNCompleteColumn

        started = perf_counter()

        def state(finished: int) -> str:
            left = (perf_counter() - started) / finished * (total - finished) if finished else None
            return f"{finished} of {total}" + (f", about {duration(left)} left" if left is not None else "")

        # By default rich would take over results on their way into a file, too.
        options: dict[str, Any] = {"transient": True, "redirect_stdout": sys.stdout.isatty()}
        with (
            self._timed(title),
            self._bar(title, total, MofNCompleteColumn(), **options)
            if self._console.is_terminal
            else self._counted(title, f"{total} steps", state) as advance,
        ):
            yield lambda: advance(1)

    @contextmanager
    def _timed(self, title: str) -> Iterator[None]:
        started = perf_counter()
        yield
        self._console.print(f"  {title:<42} {perf_counter() - started:6.2f} s")

    @contextmanager
    def _bar(
        self, title: str, total: int, *columns: Any, done: int = 0, **options: Any
    ) -> Iterator[Callable[[int], None]]:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        shown = (TextColumn("{task.description}", markup=False), BarColumn(), *columns, TimeRemainingColumn())
        with Bars(*shown, console=self._console, **options) as bars:
            task = bars.add_task(printable(title), total=total, completed=done)
            yield lambda count: bars.advance(task, count)

    @contextmanager
    def _counted(
        self, title: str, size: str, state: Callable[[int], str], done: int = 0
    ) -> Iterator[Callable[[int], None]]:
        self._console.print(f"  {title} ({size})")

        def advance(count: int) -> None:
            nonlocal done
            done += count

        with self._waiting(title, lambda: state(done)):
            yield advance

    def note(self, text: str) -> None:
        """Print the line, and the further lines of an error in it."""
        self._console.print(*_lines(text), sep="\n")

    @contextmanager
    def _waiting(self, title: str, state: Callable[[], str] | None = None) -> Iterator[None]:
        """Within the block, print a line now and then, so that long work does not look like a hang."""
        ended, started = threading.Event(), self._clock()

        def report() -> None:
            while not ended.wait(self._every_s):
                seconds = f"{self._clock() - started:.0f} s"
                self._console.print(f"  {title}: {state()}, {seconds}" if state else f"  {title}: {seconds}")

        with beside(report, ended.set):
            yield


def shown_progress() -> Progress:
    """The progress listener of a command: silent with --quiet, or if JSON is printed and nobody watches."""
    if global_options().verbosity < 0 or (as_json() and not sys.stderr.isatty()):
        return Progress()
    return ConsoleProgress() if global_options().progress else Notes(ConsoleProgress())
