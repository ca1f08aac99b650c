"""The end of a tuning run: the network itself runs on the board, built in several ways that run interleaved."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

from edgedeploy.building import Referenced, build
from edgedeploy.compile.configuration import Tuned
from edgedeploy.progress import Progress
from edgedeploy.runtime.arrays import fill
from edgedeploy.runtime.interface import Runner
from edgedeploy.runtime.opening import Place, opened_together
from edgedeploy.tensors import Tensors
from edgedeploy.zoo.source import Source

ROUNDS = 15

# What a turn takes at least, in milliseconds, and how many inferences it has at most.
_TURN_MS, _MOST_INFERENCES = 100, 50


@dataclass(frozen=True)
class Comparison:
    """Where networks are compared.

    Attributes:
        source: the network.
        place: where it runs, on the board that it is built for.
        progress: is told about each step.
        stopping: whether the user asked for an end.
    """

    source: Source
    place: Place
    progress: Progress
    stopping: Callable[[], bool]

    @cached_property
    def referenced(self) -> Referenced:
        """The network with its reference's results, which all variants share."""
        return Referenced.of(self.source)

    def inference_times_ms(self, variants: Sequence[Tuned]) -> list[float] | None:
        """The median time of one inference of each variant; None if the user asked for an end meanwhile.

        Raises:
            EdgedeployError: as `build` and `opened_together`.
        """

        def measure(runner: Runner, tensors: Tensors, count: int) -> dict[str, list[float]]:
            return {"": [runner.measure(tensors, repeat=count, warmup=1).median_ms]}

        found = self._medians(variants, measure)
        return [times[""] for times in found] if found else None

    def function_times_s(self, variants: Sequence[Tuned]) -> list[dict[str, float]] | None:
        """For each variant and each function the median time of its calls in one inference; None as above.

        Raises:
            EdgedeployError: as `build` and `opened_together`.
        """
        found = self._medians(
            variants, lambda runner, tensors, count: runner.function_times(tensors, repeat=count, warmup=2)
        )
        return [{name: ms / 1000 for name, ms in times.items()} for times in found] if found else None

    def _medians(
        self, variants: Sequence[Tuned], measure: Callable[[Runner, Tensors, int], Mapping[str, list[float]]]
    ) -> list[dict[str, float]] | None:
        """For each variant the medians of what `measure` finds with its runner, inputs and the inferences of a turn."""
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
                    # Boards test what they are sent.
                    built = build(
                        self.source,
                        self.place.board,
                        path,
                        tuning=variant,
                        referenced=self.referenced,
                        checks="here",
                    )
                    packages.append(built.path)
                    advance()
            with opened_together(packages, self.place, None, self.progress, temporarily=True) as networks:
                runners = [network.runner for network in networks]
                tensors = {spec.name: fill(spec, "random") for spec in built.manifest.inputs}
                with self.progress.steps(f"try each of {len(runners)} ways", len(runners)) as advance:
                    typical = 0.0
                    for runner in runners:
                        typical = max(typical, runner.measure(tensors, repeat=3, warmup=2).median_ms)
                        advance()
                yield runners, tensors, max(1, min(_MOST_INFERENCES, round(_TURN_MS / max(typical, 1e-3))))
