"""What records say, ordered for a reader: by network, with its runs and its tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from edgedeploy.records.events import Event, RunEnded, RunStarted, TaskEnded, TaskResult, TaskSummary
from edgedeploy.records.lines import Content
from edgedeploy.records.trial import Trial, by_workload, overview


@dataclass
class Run:
    """A run with its own results, by workload, and trials; one that was killed has no end."""

    started: RunStarted
    ended: RunEnded | None = None
    results: dict[str, TaskResult] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)


@dataclass(frozen=True)
class Task:
    """A task with all its trials, of any run.

    Attributes:
        result: of the last run that ended it; otherwise from its trials.
        ended: whether a run ended it.
        mflop: millions of operations of one run; 0 if no run stated it.
    """

    result: TaskResult
    ended: bool
    mflop: float
    trials: list[Trial]

    @property
    def gflops(self) -> float | None:
        """The rate of the best candidate, in 10^9 operations a second."""
        return self.mflop / self.result.best_ms if self.mflop and self.result.best_ms else None


@dataclass(frozen=True)
class Network:
    """A network that was tuned; without a name, the tasks that no run named, such as those of imported records."""

    name: str | None
    runs: list[Run]
    tasks: list[Task]


def networks_of(content: Content) -> list[Network]:
    """The networks of records, in the order in which they were first tuned; tasks of no run come last."""
    trials = by_workload(content.trials)
    runs = _runs(content.events)
    for trial in content.trials:
        if run := runs.get(trial.run):
            run.trials.append(trial)
    named: dict[str, list[Run]] = {}
    for run in runs.values():
        named.setdefault(run.started.model, []).append(run)
    networks = [Network(name, own, _tasks(own, trials)) for name, own in named.items()]
    told = {task.result.workload for network in networks for task in network.tasks}
    strays = [
        TaskSummary(number=number, name=each[-1].task, workload=key, weight=1, mflop=0, candidates=None, trials=0)
        for number, (key, each) in enumerate(trials.items())
        if key not in told
    ]
    if strays:
        networks.append(Network(None, [], [_task(stray, trials[stray.workload]) for stray in strays]))
    return networks


def _runs(events: Iterable[Event]) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    for event in events:
        if isinstance(event, RunStarted):
            runs[event.run] = Run(event)
        elif isinstance(event, TaskEnded) and (run := runs.get(event.run)):
            run.results[event.result.workload] = event.result
        elif isinstance(event, RunEnded) and (run := runs.get(event.run)):
            run.ended = event
    return runs


def _tasks(runs: list[Run], trials: dict[str, list[Trial]]) -> list[Task]:
    summaries = {summary.workload: summary for run in runs for summary in run.started.tasks}
    results = {workload: result for run in runs for workload, result in run.results.items()}
    tasks = [_task(summary, trials.get(key, []), results.get(key)) for key, summary in summaries.items()]
    return sorted(tasks, key=lambda task: task.result.number)


def _task(summary: TaskSummary, trials: list[Trial], result: TaskResult | None = None) -> Task:
    if result:
        return Task(result, True, summary.mflop, trials)
    known = next(iter(overview(trials)), None)
    derived = TaskResult(
        number=summary.number,
        name=summary.name,
        workload=summary.workload,
        weight=summary.weight,
        default_ms=known.default_ms if known else None,
        best_ms=known.best_ms if known else None,
        trials=sum(not trial.final for trial in trials),
        failures=sum(trial.failure is not None for trial in trials if not trial.final),
        configuration=known.configuration if known else None,
    )
    return Task(derived, False, summary.mflop, trials)
