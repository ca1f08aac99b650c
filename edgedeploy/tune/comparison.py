"""The end of a tuning run: the network built without records and with them, in turns on the board."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from edgedeploy.board import Overrides
from edgedeploy.build import build
from edgedeploy.progress import Progress
from edgedeploy.runtime.arrays import fill
from edgedeploy.runtime.opening import Place, opened_together
from edgedeploy.source import Source
from edgedeploy.tune.best import NO_RECORDS

ROUNDS = 15

# What a turn takes at least, in milliseconds, and how many inferences it has at most.
_TURN_MS, _MOST_INFERENCES = 100, 50


@dataclass(frozen=True)
class Comparison:
    """Medians of one inference, in milliseconds."""

    before_ms: float
    after_ms: float


def compare(
    source: Source,
    board_name: str,
    place: Place,
    records: Path,
    progress: Progress,
    *,
    overrides: Overrides,
    threads: int | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Comparison | None:
    """Build a network twice, and measure both in turns; None if the user asked for an end meanwhile.

    Args:
        source: the network.
        board_name: what it is built for.
        place: where it runs.
        records: the folder of tuning records.
        progress: is told about each step.
        overrides: as for `build`.
        threads: to run with; the board's cores if None.
        stopping: whether the user asked for an end.

    Raises:
        EdgedeployError: as `build` and `opened_together`.
    """
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
        packages = []
        for name, chosen in (("untuned", NO_RECORDS), ("tuned", str(records))):
            if stopping():
                return None
            path = Path(folder) / name / f"{source.name}.tar.gz"
            progress.note(f"{source.name}, {name}")
            packages.append(
                build(source, board_name, path, overrides=overrides, tuning_records=chosen, progress=progress).path
            )
        with opened_together(packages, place, threads, progress) as networks, progress.stage("measure in turns"):
            runners = [network.runner for network in networks]
            tensors = {spec.name: fill(spec, "random") for spec in runners[0].inputs}
            typical = [runner.measure(tensors, repeat=3, warmup=2).median_ms for runner in runners]
            count = max(1, min(_MOST_INFERENCES, round(_TURN_MS / max(*typical, 1e-3))))
            turns: list[list[float]] = [[] for _ in runners]
            for _ in range(ROUNDS):
                if stopping():
                    return None
                for runner, times in zip(runners, turns, strict=True):
                    times.append(runner.measure(tensors, repeat=count, warmup=1).median_ms)
    before, after = (median(times) for times in turns)
    return Comparison(before, after)
