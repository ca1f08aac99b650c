"""What records say, ordered for a reader: by network, with its runs and its tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from edgedeploy.tune.content import Entry, by_workload, events_in, trials_in
from edgedeploy.tune.events import Event, RunEnded, RunStarted, TaskEnded, TaskResult, TaskSummary
from edgedeploy.tune.header import Header, read_header
from edgedeploy.tune.overview import overview
from edgedeploy.tune.trial import Trial


@dataclass
class Run:
    """A run.

    Attributes:
        started, ended: what it told; one that was killed told no end.
        results: of the tasks that it ended, by workload.
        trials: those that it measured.
    """

    started: RunStarted
    ended: RunEnded | None = None
    results: dict[str, TaskResult] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)


@dataclass(frozen=True)
class Task:
    """A task with all its trials, of whichever run.

    Attributes:
        result: of the last run that ended it; otherwise what its trials say.
        ended: whether a run ended it.
        mflop: millions of operations of one run; None if no run told.
        trials: in the order in which they were measured.
    """

    result: TaskResult
    ended: bool
    mflop: float | None
    trials: list[Trial]

    @property
    def gflops(self) -> float | None:
        """The rate of the best candidate, in 10^9 operations a second."""
        return self.mflop / self.result.best_ms if self.mflop and self.result.best_ms else None


@dataclass(frozen=True)
class Network:
    """A network that was tuned; without a name, the tasks that no run told of, as those of imported records."""

    name: str | None
    runs: list[Run]
    tasks: list[Task]


@dataclass(frozen=True)
class History:
    """All that a folder of records says.

    Attributes:
        folder: where the records lie.
        header: whose they are.
        networks: in the order in which they were first tuned; those of no run last.
    """

    folder: Path
    header: Header
    networks: list[Network]


def read_history(folder: Path) -> History:
    """Read a folder of records.

    Raises:
        RecordsError: it holds none, or they are damaged.
    """
    header = read_header(folder)
    # A run tells of a task before it measures it, so that trials are read first where one is adding to both.
    entries = by_workload(trials_in(folder))
    runs = _runs(events_in(folder))
    by_run = {run.started.run: run for run in runs}
    for each in entries.values():
        for entry in each:
            if run := by_run.get(entry.trial.run):
                run.trials.append(entry.trial)
    networks = [
        Network(name, own, _tasks(own, entries))
        for name in dict.fromkeys(run.started.model for run in runs)
        if (own := [run for run in runs if run.started.model == name])
    ]
    told = {task.result.workload for network in networks for task in network.tasks}
    if strays := [_task(number, each) for number, (key, each) in enumerate(entries.items()) if key not in told]:
        networks.append(Network(None, [], strays))
    return History(folder, header, networks)


def _runs(events: Iterable[Event]) -> list[Run]:
    """Runs with what each told, in order. One begins after the other: the folder is locked."""
    runs: list[Run] = []
    for event in events:
        if isinstance(event, RunStarted):
            runs.append(Run(event))
        elif runs and isinstance(event, TaskEnded):
            runs[-1].results[event.result.workload] = event.result
        elif runs and isinstance(event, RunEnded) and event.run == runs[-1].started.run:
            runs[-1].ended = event
    return runs


def _tasks(runs: list[Run], entries: dict[str, list[Entry]]) -> list[Task]:
    """The tasks of a network's runs, each as the last run tells it."""
    summaries = {summary.workload: summary for run in runs for summary in run.started.tasks}
    results = {workload: result for run in runs for workload, result in run.results.items()}
    tasks = [
        _task(summary.number, entries.get(workload, []), summary, results.get(workload))
        for workload, summary in summaries.items()
    ]
    return sorted(tasks, key=lambda task: task.result.number)


def _task(
    number: int, entries: list[Entry], summary: TaskSummary | None = None, result: TaskResult | None = None
) -> Task:
    trials = [entry.trial for entry in entries]
    mflop = summary.mflop if summary else None
    if result:
        return Task(result, True, mflop, trials)
    known = next(iter(overview(entries)), None)
    last = trials[-1] if trials else None
    derived = TaskResult(
        number=number,
        name=summary.name if summary else last.task if last else "",
        workload=summary.workload if summary else last.workload if last else "",
        weight=summary.weight if summary else 1,
        default_ms=known.default_ms if known else None,
        best_ms=known.best_ms if known else None,
        trials=sum(not trial.final for trial in trials),
        failures=sum(trial.failure is not None for trial in trials if not trial.final),
        configuration=known.best.configuration if known and known.best else None,
    )
    return Task(derived, False, mflop, trials)
