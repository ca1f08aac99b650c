"""What records say, ordered for a reader: by network, with its runs and its tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from edgedeploy.records.database import read_records
from edgedeploy.records.events import Event, RunEnded, RunStarted, TaskEnded, TaskResult, TaskSummary
from edgedeploy.records.header import Header
from edgedeploy.records.overview import overview
from edgedeploy.records.trial import Trial, by_workload


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
    content = read_records(folder)
    trials = by_workload(content.trials)
    runs = _runs(content.events)
    by_run = {run.started.run: run for run in runs}
    for trial in content.trials:
        if run := by_run.get(trial.run):
            run.trials.append(trial)
    networks = [
        Network(name, own, _tasks(own, trials))
        for name in dict.fromkeys(run.started.model for run in runs)
        if (own := [run for run in runs if run.started.model == name])
    ]
    told = {task.result.workload for network in networks for task in network.tasks}
    if strays := [_task(number, each) for number, (key, each) in enumerate(trials.items()) if key not in told]:
        networks.append(Network(None, [], strays))
    return History(folder, content.header, networks)


def _runs(events: Iterable[Event]) -> list[Run]:
    """Runs with what each told, in order. The end of a task that names no run is of the last one before it."""
    runs: dict[str, Run] = {}
    last = ""
    for event in events:
        if isinstance(event, RunStarted):
            last = event.run
            runs[last] = Run(event)
        elif isinstance(event, TaskEnded) and (run := runs.get(event.run or last)):
            run.results[event.result.workload] = event.result
        elif isinstance(event, RunEnded) and (run := runs.get(event.run)):
            run.ended = event
    return list(runs.values())


def _tasks(runs: list[Run], trials: dict[str, list[Trial]]) -> list[Task]:
    """The tasks of a network's runs, each as the last run tells it."""
    summaries = {summary.workload: summary for run in runs for summary in run.started.tasks}
    results = {workload: result for run in runs for workload, result in run.results.items()}
    tasks = [
        _task(summary.number, trials.get(workload, []), summary, results.get(workload))
        for workload, summary in summaries.items()
    ]
    return sorted(tasks, key=lambda task: task.result.number)


def _task(
    number: int, trials: list[Trial], summary: TaskSummary | None = None, result: TaskResult | None = None
) -> Task:
    mflop = summary.mflop if summary else None
    if result:
        return Task(result, True, mflop, trials)
    known = next(iter(overview(trials)), None)
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
        configuration=known.configuration if known else None,
    )
    return Task(derived, False, mflop, trials)
