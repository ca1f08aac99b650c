"""What a tuning run found, as cells of tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from edgedeploy.records.events import TaskResult
from edgedeploy.records.trial import speed_up
from edgedeploy.text import milliseconds, printable, significant, times

TITLES = ("task", "weight", "default ms", "best ms", "speed-up", "trials", "failures")


def cells(results: Sequence[TaskResult]) -> list[list[str]]:
    """The lines of the table below its titles: one for each task, and their weighted sum where there are several."""
    lines = [
        [
            f"{result.number}  {printable(result.name)}",
            str(result.weight),
            milliseconds(result.default_ms),
            milliseconds(result.best_ms),
            times(result.speed_up),
            str(result.trials),
            str(result.failures),
        ]
        for result in results
    ]
    if len(results) > 1:
        default = _weighted([(result.weight, result.default_ms) for result in results])
        best = _weighted([(result.weight, result.best_ms) for result in results])
        trials, failures = sum(result.trials for result in results), sum(result.failures for result in results)
        gain = times(speed_up(default, best))
        lines.append(
            ["all, by weight", "", milliseconds(default), milliseconds(best), gain, str(trials), str(failures)]
        )
    return lines


def end_to_end(before_ms: float | None, after_ms: float | None) -> str:
    """What one inference took before and after, in a sentence without a full stop."""
    if not before_ms or not after_ms:
        return "one inference was not measured before and after"
    return (
        f"one inference: {significant(before_ms)} ms before, {significant(after_ms)} ms after, "
        f"{times(before_ms / after_ms)}, interleaved"
    )


def _weighted(values: list[tuple[int, float | None]]) -> float | None:
    """The sum of weight times value; None if a value is not known."""
    known = [weight * value for weight, value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
