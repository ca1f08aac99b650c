"""The end of a tuning run: candidates that did well alone are tried in the network itself, which decides.

Alone, a function finds other data in the caches than between the others of its network. So the network is built in
several ways, each with another finalist of every task, which run interleaved, and the functions' times are compared.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from edgedeploy.base.progress import Progress
from edgedeploy.building import Plan, Referenced
from edgedeploy.compile.configuration import Configuration, Tuned, workload_hash
from edgedeploy.compile.output.packing import scheduled_name
from edgedeploy.model.tensors import Tensors
from edgedeploy.records.schema import TaskResult, Trial
from edgedeploy.runtime.arrays import fill
from edgedeploy.runtime.opening import Place, Runner, opening
from edgedeploy.tuning.task import Task
from edgedeploy.zoo.source import Source

if TYPE_CHECKING:
    from tvm import IRModule

# Finalists of a task besides the default, and how much slower than that they may be alone.
IN_NETWORK = 7
MOST_SLOWER = 1.2

# What the best must save of the default's time to be preferred: less may be chance.
LEAST_GAIN = 0.02

ROUNDS = 15

# What a turn takes at least, in milliseconds, and how many inferences it has at most.
_TURN_MS, _MOST_INFERENCES = 100, 50


class Finals:
    """The finalists of all tasks of a run, and their results."""

    def __init__(self, run: str, tasks: Sequence[Task], record: Callable[[Trial], None]) -> None:
        # Of each task the default, and the candidates that came near it or passed it alone, the fastest first.
        self.finalists: dict[str, list[tuple[Configuration, Trial]]] = {}
        self.results: dict[str, TaskResult] = {}
        self._run, self._tasks, self._record = run, tasks, record

    def enter(self, task: Task, contenders: Sequence[tuple[Configuration, Trial]]) -> None:
        """Add the default of a task, its first contender, and the fastest others that came near it or passed it."""
        default, *others = contenders
        most_s = MOST_SLOWER * (default[1].median_s or 0.0)
        near = [each for each in others if each[1].seconds and (each[1].median_s or 0.0) <= most_s]
        near.sort(key=lambda each: each[1].median_s or 0.0)
        self.finalists[task.key] = [default, *near[:IN_NETWORK]]

    def variants(self) -> list[Tuned]:
        """Ways to build the network that together have every finalist of every task; the first has the defaults."""
        count = max((len(each) for each in self.finalists.values()), default=0)
        return [partial(self._finalist, number) for number in range(count)] if count > 1 else []

    def _finalist(self, number: int, workload: IRModule) -> Configuration | None:
        finalists = self.finalists.get(workload_hash(workload), [])
        return finalists[number][0] if number < len(finalists) else None

    def settle(self, times_s: Sequence[Mapping[str, float]]) -> None:
        """Decide which candidates builds take, by their times in the network, and record them.

        Args:
            times_s: for each of `variants` and each function of the network, the time of its calls in one inference.
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
        """Have builds take the defaults: the winners among functions do not make the whole network faster."""
        for task in self._tasks:
            for default, trial in self.finalists.get(task.key, [])[:1]:
                seconds = (self.results[task.key].default_ms or 0.0) / 1000
                self._conclude(task, [(default, trial, seconds)], "withdrawn")

    def _conclude(self, task: Task, contenders: Sequence[tuple[Configuration, Trial, float]], stage: str) -> None:
        """Record the default, the first contender, and the fastest if it is preferred, for builds to take."""
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
    """The index of the fastest contender, if it saves enough of the time of the default, the first; else 0.

    Times are None or 0 if they are not known.
    """
    known = [index for index, each in enumerate(seconds) if each]
    fastest = min(known, key=lambda index: seconds[index] or 0.0, default=0)
    default, best = seconds[0], seconds[fastest]
    return 0 if default and best and best > (1 - LEAST_GAIN) * default else fastest


@dataclass(frozen=True)
class Comparison:
    """A network, and where its variants are compared; `stopping` returns whether the user stopped the run."""

    source: Source
    place: Place
    progress: Progress
    stopping: Callable[[], bool]

    @cached_property
    def referenced(self) -> Referenced:
        """The network with its reference's results, which all variants share."""
        return Referenced.of(self.source)

    def inference_times_ms(self, variants: Sequence[Tuned]) -> list[float] | None:
        """The median time of one inference of each variant; None if the user stopped it."""
        found = self._medians(
            variants, lambda runner, tensors, count: {"": [runner.measure(tensors, repeat=count, warmup=1).median_ms]}
        )
        return [times[""] for times in found] if found else None

    def function_times_s(self, variants: Sequence[Tuned]) -> list[dict[str, float]] | None:
        """For each variant and each function the median time of its calls in one inference; None as above."""
        found = self._medians(
            variants, lambda runner, tensors, count: runner.function_times(tensors, repeat=count, warmup=2)
        )
        return [{name: ms / 1000 for name, ms in times.items()} for times in found] if found else None

    def _medians(
        self, variants: Sequence[Tuned], measure: Callable[[Runner, Tensors, int], Mapping[str, list[float]]]
    ) -> list[dict[str, float]] | None:
        """For each variant the median times that `measure` finds with a runner, inputs and inferences of a turn."""
        title = f"measure {self.source.name} in {len(variants)} ways, interleaved"
        with self._opened(variants) as (runners, tensors, count):
            turns: list[dict[str, list[float]]] = [defaultdict(list) for _ in runners]
            with self.progress.steps(title, ROUNDS * len(runners)) as advance:
                for runner, times in [*zip(runners, turns, strict=True)] * ROUNDS:
                    if self.stopping():
                        break
                    for name, found in measure(runner, tensors, count).items():
                        times[name] += found
                    advance()
        if self.stopping():
            return None
        return [{name: median(times) for name, times in each.items()} for each in turns]

    @contextmanager
    def _opened(self, variants: Sequence[Tuned]) -> Iterator[tuple[list[Runner], Tensors, int]]:
        """The variants, built and ready to run, their inputs, and the inferences of a turn."""
        with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
            packages = []
            with self.progress.steps(f"build {self.source.name} in {len(variants)} ways", len(variants)) as advance:
                for number, variant in enumerate(variants):
                    path = Path(folder) / str(number) / f"{self.source.name}.tar.gz"
                    # Boards run the self-test when they receive it.
                    plan = Plan(self.source, self.place.board, tuning=variant)
                    built = plan.build(path, referenced=self.referenced, checks="here")
                    packages.append(built.path)
                    advance()
            with opening(self.place, None, self.progress, temporarily=True) as open_all:
                runners = [network.runner for network in open_all(packages)]
                tensors = {spec.name: fill(spec, "random") for spec in built.manifest.inputs}
                with self.progress.steps(f"try each of {len(runners)} ways", len(runners)) as advance:
                    typical = 0.0
                    for runner in runners:
                        typical = max(typical, runner.measure(tensors, repeat=3, warmup=2).median_ms)
                        advance()
                yield runners, tensors, max(1, min(_MOST_INFERENCES, round(_TURN_MS / max(typical, 1e-3))))
