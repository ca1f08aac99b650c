"""The output of `edgedeploy tune` during a run: a live display, plain lines, or JSON; and the results at its end.

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING

from edgedeploy.base.progress import Progress, paced
from edgedeploy.base.text import count, duration, milliseconds, printable, significant, times
from edgedeploy.cli.console import ConsoleProgress, as_json, as_table, foreign, print_json_line, print_text, stderr
from edgedeploy.records import schema
from edgedeploy.records.schema import Conditions, speed_up
from edgedeploy.tuning.state import TITLES, RunState, TaskState, cells, end_to_end

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

# Into a pipe, one line for this many trials, or seconds; a batch's trials come at once, within `TOGETHER` seconds.
TRIALS_PER_LINE, SECONDS_PER_LINE, TOGETHER = 16, 30.0, 1.0

THROTTLED = "throttled"

# A farm can have more boards than a terminal has lines.
MOST_BOARDS = 6


class Display(Progress):
    """Shows events, each by a call, and the progress of work between them. Calls may come from any thread."""

    def __call__(self, event: schema.Event) -> None:
        """Show an event."""

    def close(self) -> None:
        """Stop showing anything."""


@contextmanager
def display() -> Iterator[Display]:
    """The display of a run: JSON on standard output, or what suits standard error.

    It is a listener of events, and a `Progress` for steps between them, whose own bars would spoil a live display.
    """
    console = stderr()
    alive = console.is_terminal and not console.is_dumb_terminal
    shown: Display
    if as_json():
        shown = JsonDisplay(LiveDisplay() if alive else Display())
    else:
        shown = LiveDisplay() if alive else LineDisplay()
    try:
        yield shown
    finally:
        shown.close()


class JsonDisplay(Display):
    """One line of JSON for each event, including notes; another display handles the terminal."""

    def __init__(self, beside: Display, *, clock: Callable[[], float] = monotonic) -> None:
        self._beside = beside
        self._clock = clock
        self._lock = RLock()

    def __call__(self, event: schema.Event) -> None:
        """Print it."""
        with self._lock:
            print_json_line(event.model_dump(mode="json"))
            self._beside(event)

    def note(self, text: str) -> None:
        """Print it as an event."""
        self(schema.Noted(text=text))

    def stage(self, title: str) -> AbstractContextManager[None]:
        """Leave it to the other display."""
        return self._beside.stage(title)

    def transfer(self, title: str, total: int, done: int = 0) -> AbstractContextManager[Callable[[int], None]]:
        """Leave it to the other display."""
        return self._beside.transfer(title, total, done)

    @contextmanager
    def steps(self, title: str, total: int) -> Iterator[Callable[[], None]]:
        """Print an event now and then; otherwise leave it to the other display."""
        counted = paced(lambda done: self(schema.Progressed(title=title, done=done, total=total)), self._clock)
        with self._beside.steps(title, total) as advance:

            def step() -> None:
                counted()
                advance()

            yield step

    def close(self) -> None:
        """Close the other display."""
        self._beside.close()


class _TextDisplay(ConsoleProgress, Display):
    """The common part of the displays for people: lines that stay, and the results."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(clock=clock)
        self._state = RunState(clock)
        self._lock = RLock()

    def __call__(self, event: schema.Event) -> None:
        with self._lock:
            self._state.follow(event)
            match event:
                case schema.RunStarted():
                    self._say(_start_line(event))
                case schema.Noted(text=text):
                    self.note(text)
                case schema.TaskEnded(result=result):
                    self._say(f"  {_result_line(result)}")
                case schema.RunEnded():
                    self._end(event)

    def _say(self, line: str) -> None:
        """Print a line; names in it cannot break it."""
        self.note(printable(line))

    def _end(self, ended: schema.RunEnded) -> None:
        whole = f"{count(self._state.done, 'trial')} in {duration(ended.seconds)}"
        if ended.interrupted:
            self._say(f"interrupted after {whole}; the records keep them, and the same command goes on from there")
        else:
            self._say(f"done: {whole}")
        if started := self._state.started:
            print_text(f"{started.model} on {started.board}")
        if ended.results:
            print_text(as_table(TITLES, cells(ended.results), right=TITLES[1:], whole=TITLES[1:]))
        print_text(end_to_end(ended.before_ms, ended.after_ms))


class LineDisplay(_TextDisplay):
    """Plain lines, for pipes and logs: a few for each task."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(clock=clock)
        self._printed, self._printed_at = 0, clock()

    def __call__(self, event: schema.Event) -> None:
        """Print the lines of the event, if it is time for one."""
        with self._lock:
            super().__call__(event)
            match event:
                case schema.TaskStarted(task=summary):
                    self._say(_task_line(self._state, summary))
                    self._printed, self._printed_at = 0, self._clock()
                case schema.Measured(trial=trial) if not trial.final:
                    if task := self._state.tasks.get(trial.workload):
                        self._print_progress(task)

    @contextmanager
    def steps(self, title: str, total: int) -> Iterator[Callable[[], None]]:
        """Print a line now and then; none for short work."""
        yield paced(lambda done: self._console.print(f"  {title}: {done} of {total}"), self._clock)

    def _print_progress(self, task: TaskState) -> None:
        measured, waited = len(task.measured), self._clock() - self._printed_at
        if (measured - self._printed >= TRIALS_PER_LINE and waited >= TOGETHER) or waited >= SECONDS_PER_LINE:
            self._printed, self._printed_at = measured, self._clock()
            state = [_trial_line(task)]
            if (left := self._state.seconds_left) is not None:
                state.append(f"about {duration(left)} left")
            self._say("  " + ", ".join([*state, *_board_lines(self._state)]))


class LiveDisplay(_TextDisplay):
    """A few lines at the bottom of a terminal that show the state of the run; notes and results scroll above."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(clock=clock)
        self._live: Live | None = None
        self._doing: list[Callable[[], str]] = []  # the current lines of work between events

    def __call__(self, event: schema.Event) -> None:
        """Show the event."""
        with self._lock:
            if isinstance(event, schema.RunEnded):
                self.close()
            super().__call__(event)
            if isinstance(event, schema.RunStarted):
                self._open()
            self._update()

    def close(self) -> None:
        """Remove the lines at the bottom."""
        if self._live:
            self._live.stop()
            self._live = None

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Name it in the last line while it runs."""
        with self._activity(title) if self._live else super().stage(title):
            yield

    def transfer(self, title: str, total: int, done: int = 0) -> AbstractContextManager[Callable[[int], None]]:
        """Name it in the last line while it runs."""
        return self._activity(title) if self._live else super().transfer(title, total, done)

    @contextmanager
    def steps(self, title: str, total: int) -> Iterator[Callable[[], None]]:
        """Name it in the last line while it runs."""
        with self._activity(title, total) if self._live else super().steps(title, total) as advance:
            yield advance

    @contextmanager
    def _activity(self, title: str, steps: int | None = None) -> Iterator[Callable[..., None]]:
        done = 0

        def line() -> str:
            return title if steps is None else f"{title}: {done} of {steps}"

        def advance(*count: int) -> None:
            nonlocal done
            done += 1
            self._update()

        self._doing.append(line)
        self._update()
        try:
            yield advance
        finally:
            self._doing.remove(line)
            self._update()

    def _update(self) -> None:
        # The lines are created here, not when they are drawn: another thread draws, and holds its own locks.
        with self._lock:
            if self._live:
                self._live.update(self._lines())

    def _open(self) -> None:
        from rich.live import Live

        self.close()
        # By default rich would take over results on their way into a file, too.
        redirect = sys.stdout.isatty()
        self._live = Live(console=self._console, transient=True, redirect_stdout=redirect)
        self._live.start()

    def _lines(self) -> Table:
        """The lines at the bottom, as wide as the terminal."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        state, task = self._state, self._state.current
        width = max(8, min(30, self._console.width // 4))
        table = Table.grid(padding=(0, 1))
        table.add_column(width=width, no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        table.add_row(ProgressBar(state.done + state.left, state.done, width=width), _run_line(state))
        if task:
            table.add_row("", _task_line(state, task.summary))
            table.add_row(ProgressBar(task.summary.trials, task.done, width=width), _trial_line(task))
        for line in _board_lines(state):
            table.add_row("", foreign(line, style="red" if THROTTLED in line else ""))
        for work in self._doing[-1:]:
            table.add_row("", foreign(work(), style="dim"))
        return table


def _start_line(started: schema.RunStarted) -> str:
    trials = sum(task.trials for task in started.tasks)
    done = sum(task.done for task in started.tasks)
    parts = [
        f"{started.model} on {started.board}: {count(len(started.tasks), 'task')}",
        f"at most {count(trials, 'trial')}" + (f" with {done:,} of earlier runs" if done else ""),
        f"tuner {started.tuner}",
        f"measured by {', '.join(started.hosts)}" if started.hosts else "",
    ]
    return ", ".join(filter(None, parts)) + f"; records in {started.folder}"


def _run_line(state: RunState) -> str:
    parts = [
        f"{state.done:,} of {count(state.done + state.left, 'trial')}",
        f"{state.tasks_done} of {count(len(state.tasks), 'task')}",
        count(state.failures, "failure"),
    ]
    if (left := state.seconds_left) is not None:
        parts.append(f"about {duration(left)} left")
    return ", ".join(parts)


def _task_line(state: RunState, task: schema.TaskSummary) -> str:
    place = list(state.tasks).index(task.workload) + 1
    work = f", {significant(task.mflop)} MFLOP" if task.mflop else ""
    return f"{place} of {len(state.tasks)}: task {task.number}, {task.name} (weight {task.weight}{work})"


def _trial_line(task: TaskState) -> str:
    parts = [f"trial {task.done:,} of {task.summary.trials:,}"]
    if task.failed:
        parts.append(count(len(task.failed), "failure"))
    if task.best_s is not None:
        best = f"best {significant(task.best_s * 1e3)} ms"
        parts.append(f"{best}, {significant(task.gflops)} GFLOP/s" if task.gflops else best)
    if task.default_s is not None:
        gain = speed_up(task.default_s, task.best_s)
        parts.append(f"default {significant(task.default_s * 1e3)} ms" + (f" ({times(gain)})" if gain else ""))
    return ", ".join(parts)


def _result_line(result: schema.TaskResult) -> str:
    return (
        f"task {result.number}, {result.name}: default {milliseconds(result.default_ms)} ms, "
        f"best {milliseconds(result.best_ms)} ms, {times(result.speed_up)}, "
        f"{count(result.trials, 'trial')}, {count(result.failures, 'failure')}"
    )


def _board_lines(state: RunState) -> list[str]:
    """The conditions of the boards, a line for each; those beyond the first few are counted."""
    texts = {host: text for host, conditions in state.conditions.items() if (text := _conditions(conditions))}
    alone = len(state.conditions) == 1
    lines = [text if alone else f"{host}: {text}" for host, text in list(texts.items())[:MOST_BOARDS]]
    return [*lines, f"and {count(len(texts) - MOST_BOARDS, 'more board')}"] if len(texts) > MOST_BOARDS else lines


def _conditions(conditions: Conditions) -> str:
    parts = [
        f"{conditions.temperature_c:.1f} °C" if conditions.temperature_c is not None else "",
        f"{conditions.frequency_mhz:.0f} MHz" if conditions.frequency_mhz is not None else "",
        f"governor {conditions.governor}" if conditions.governor else "",
        THROTTLED if conditions.throttled else "",
    ]
    return ", ".join(filter(None, parts))
