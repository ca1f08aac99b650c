"""The charts of a report: how a task's search converged, how warm the boards became."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from edgedeploy.base.text import count, milliseconds, significant
from edgedeploy.records.schema import Trial
from edgedeploy.report.charts import chart

# In ms; no clock measures shorter times, which only files of others have.
_SHORTEST_MS = 1e-9

# Of a board's name in a legend; more would leave no room for the chart.
_LONGEST_NAME = 40

_TRIAL, _BEST, _DEFAULT, _FINAL, _FAILURE = "#9bb4d3", "#2a78d6", "#888888", "#0b0b0b", "#d03b3b"


def convergence(trials: Sequence[Trial], default_ms: float | None) -> str | None:
    """The times of a task's trials by their number, and the best so far; None if no trial succeeded."""
    timed = [(trial, time) for trial in trials if (time := trial.median_ms or 0.0) > _SHORTEST_MS]
    if not timed:
        return None
    default_ms = default_ms if default_ms is not None and default_ms > _SHORTEST_MS else None
    times = [time for _, time in timed] + ([] if default_ms is None else [default_ms])
    searched = sorted((trial.number, time) for trial, time in timed if not trial.final)
    finals = [(trial.number, time) for trial, time in timed if trial.final]
    failed = [trial for trial in trials if trial.failure is not None]
    with chart(f"{count(len(trials), 'trial')}; the best takes {milliseconds(min(times))} ms") as made:
        axes = made.axes
        made.scale_vertical(times)
        made.count_horizontally()
        axes.set(xlabel="trial", ylabel="ms")
        if default_ms is not None:
            line = axes.axhline(default_ms, color=_DEFAULT, linestyle="--", label="untuned default")
            made.tell(line, "default", [f"untuned default: {significant(default_ms)} ms"])
        if searched:
            numbers, heights = zip(*searched, strict=True)
            [marks] = axes.plot(numbers, heights, "o", color=_TRIAL, label="a trial")
            made.tell(marks, "trial", [f"trial {number}: {significant(time)} ms" for number, time in searched])
            best = list(accumulate(heights, min))
            end = max(trial.number for trial in trials)
            [line] = axes.step([*numbers, end], [*best, best[-1]], where="post", color=_BEST, label="best so far")
            made.tell(line, "best", [f"best so far: {significant(best[-1])} ms at the end"])
        if finals:
            numbers, heights = zip(*finals, strict=True)
            [marks] = axes.plot(
                numbers, heights, "D", markersize=6, color=_FINAL, fillstyle="none", label="interleaved, at the end"
            )
            made.tell(marks, "final", [f"interleaved, at the end: {significant(time)} ms" for _, time in finals])
        if failed:  # they have no time: they stand in a row above the chart
            places = [trial.number for trial in failed], [1.04] * len(failed)
            row = axes.get_xaxis_transform()
            [marks] = axes.plot(*places, "x", transform=row, clip_on=False, color=_FAILURE, label="failed")
            made.tell(marks, "failure", [f"trial {trial.number}: {trial.failure}" for trial in failed])
    return made.svg


def temperatures(trials: Iterable[Trial], hosts: Sequence[str]) -> str | None:
    """The temperature of each board over the time of a run, and when it slowed itself down; None if none is known."""
    readings = sorted(
        (
            (trial.time, trial.host, trial.conditions.temperature_c, bool(trial.conditions.throttled))
            for trial in trials
            if trial.conditions and trial.conditions.temperature_c is not None
        ),
        key=lambda reading: reading[:2],
    )
    if not readings:
        return None
    begin = readings[0][0]
    taken_s = (readings[-1][0] - begin).total_seconds()
    unit, seconds = ("s", 1.0) if taken_s < 180 else ("min", 60.0) if taken_s < 3 * 3600 else ("h", 3600.0)
    points = [((time - begin).total_seconds() / seconds, host, degrees, slow) for time, host, degrees, slow in readings]
    warmth = [temperature for _, _, temperature, _ in points]
    with chart(f"between {min(warmth):.1f} and {max(warmth):.1f} °C") as made:
        made.axes.set(xlabel=unit, ylabel="°C")
        for host in dict.fromkeys([*hosts, *(host for _, host, _, _ in points)]):
            own = [(x, temperature) for x, name, temperature, _ in points if name == host]
            if own:
                # With markers, as a line of one point is invisible.
                [line] = made.axes.plot(*zip(*own, strict=True), ".-", label=host[:_LONGEST_NAME])
                made.tell(line, "board", [f"{host}: {temperature:.1f} °C" for _, temperature in own])
        slow = [(x, temperature, host) for x, host, temperature, throttled in points if throttled]
        if slow:
            places = [x for x, _, _ in slow], [y for _, y, _ in slow]
            [marks] = made.axes.plot(*places, "x", color=_FAILURE, markersize=8)
            made.tell(marks, "failure", [f"{host} slowed itself down at {y:.1f} °C" for _, y, host in slow])
    return made.svg
