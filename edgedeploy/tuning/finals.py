"""The end of a tuning run: what did well alone is tried in the network itself, and that decides.

Alone, a function finds other things in the caches than between the others of its network. So the network is built in
several ways, each with another finalist of every task, and the functions' times there are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from edgedeploy.compile.configuration import Configuration, Tuned, workload_hash
from edgedeploy.compile.packing import scheduled_name
from edgedeploy.records.events import TaskResult
from edgedeploy.records.trial import Trial
from edgedeploy.tuning.task import Task

if TYPE_CHECKING:
    from tvm import IRModule

# Finalists of a task beside the default, and how much slower than that they may be alone.
IN_NETWORK = 7
MOST_SLOWER = 1.2

# What the best must save of the default's time to be preferred: less may be chance.
LEAST_GAIN = 0.02


class Finals:
    """The finalists of all tasks of a run, and what became of them.

    Attributes:
        finalists: of each task the default, and what came near it or passed it alone, the fastest first.
        results: of each task that was tuned.
    """

    def __init__(self, run: str, tasks: Sequence[Task], record: Callable[[Trial], None]) -> None:
        """Nobody is in it yet.

        Args:
            run: the identity of the run.
            tasks: of the run.
            record: records a trial.
        """
        self.finalists: dict[str, list[tuple[Configuration, Trial]]] = {}
        self.results: dict[str, TaskResult] = {}
        self._run, self._tasks, self._record = run, tasks, record

    def enter(self, task: Task, contenders: Sequence[tuple[Configuration, Trial]]) -> None:
        """Take the default of a task, its first contender, and the fastest of those that came near it or passed it."""
        default, *others = contenders
        most_s = MOST_SLOWER * (default[1].median_s or 0.0)
        near = [each for each in others if each[1].seconds and (each[1].median_s or 0.0) <= most_s]
        near.sort(key=lambda each: each[1].median_s or 0.0)
        self.finalists[task.key] = [default, *near[:IN_NETWORK]]

    def variants(self) -> list[Tuned]:
        """Ways to build the network that between them have every finalist of every task, the first one the defaults."""
        count = max((len(each) for each in self.finalists.values()), default=0)
        return [self._variant(number) for number in range(count)] if count > 1 else []

    def _variant(self, number: int) -> Tuned:
        def find(workload: IRModule) -> Configuration | None:
            finalists = self.finalists.get(workload_hash(workload), [])
            return finalists[number][0] if number < len(finalists) else None

        return find

    def settle(self, times_s: Sequence[Mapping[str, float]]) -> None:
        """Decide which candidates builds take, by their times in the network, and record them.

        Args:
            times_s: for each of `variants` and each function of the network, the time of its calls in one inference.

        Raises:
            OutputError: records cannot be written.
        """
        for task in self._tasks:
            finalists = self.finalists.get(task.key, [])
            if len(finalists) > 1:
                measured = [
                    sum(times.get(scheduled_name(name), 0.0) for name in task.names) / task.weight
                    for times in times_s[: len(finalists)]
                ]
                self._conclude(task, [(*each, time) for each, time in zip(finalists, measured, strict=True)], "network")

    def withdraw(self) -> None:
        """Have builds take the defaults: what won function by function does not make the whole network quicker.

        Raises:
            OutputError: records cannot be written.
        """
        for task in self._tasks:
            for default, trial in self.finalists.get(task.key, [])[:1]:
                seconds = (self.results[task.key].default_ms or 0.0) / 1000
                self._conclude(task, [(default, trial, seconds)], "withdrawn")

    def _conclude(self, task: Task, contenders: Sequence[tuple[Configuration, Trial, float]], stage: str) -> None:
        """Record the default, the first contender, and the fastest if it is one to prefer, for builds to take."""
        index = preferred([seconds for *_, seconds in contenders])
        for _, trial, seconds in [contenders[each] for each in sorted({0, index})]:
            later = {"run": f"{self._run}-{stage}", "time": datetime.now(timezone.utc), "seconds": [seconds]}
            self._record(trial.model_copy(update=later))
        winner, _, seconds = contenders[index]
        self.results[task.key] = self.results[task.key].model_copy(
            update={
                "default_ms": 1000 * contenders[0][2],
                "best_ms": 1000 * seconds,
                "configuration": winner.model_dump(mode="json"),
            }
        )


def preferred(seconds: Sequence[float | None]) -> int:
    """The index of the fastest of some contenders, if it saves enough of what the first takes, the default; else 0.

    Args:
        seconds: what each takes; None or 0 if that is not known.
    """
    known = [index for index, each in enumerate(seconds) if each]
    fastest = min(known, key=lambda index: seconds[index] or 0.0, default=0)
    default, best = seconds[0], seconds[fastest]
    return 0 if default and best and best > (1 - LEAST_GAIN) * default else fastest
