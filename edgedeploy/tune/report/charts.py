"""The drawings of a report, as SVG: how a task's search converged, how warm the boards became."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import accumulate, groupby
from xml.etree.ElementTree import Element

from edgedeploy.text import milliseconds, significant
from edgedeploy.tune.report.axis import Axis
from edgedeploy.tune.report.markup import element, length
from edgedeploy.tune.trial import Trial

WIDTH, HEIGHT = 560, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 548, 30, 212

# Failures have no time: they stand in a row above the times.
_FAILURES = 16

# A shorter time than this, in ms, no clock measures; only a file that is not ours holds one.
_SHORTEST_MS = 1e-9

# Boards beyond these share a colour.
BOARD_COLOURS = 6


def legend() -> Element:
    """What the marks of `convergence` mean."""
    marks = [
        (element("circle", cx=9, cy=6, r=3, class_="trial"), "a trial"),
        (element("path", d="M0 6H18", class_="best"), "best so far"),
        (element("path", d="M0 6H18", class_="default"), "untuned default"),
        (element("path", d=_diamond(9, 6), class_="final"), "measured in turns at the end"),
        (element("path", d=_cross(9, 6), class_="failure"), "failed"),
    ]
    return element(
        "ul",
        *(element("li", element("svg", mark, viewBox="0 0 18 12", class_="key"), text) for mark, text in marks),
        class_="legend",
    )


def convergence(trials: Sequence[Trial], default_ms: float | None) -> Element | None:
    """The times of a task's trials by their number, and the best so far; None if no trial succeeded.

    Args:
        trials: of one task, in any order.
        default_ms: what its untuned default takes, if that is known.
    """
    timed = [(trial, time) for trial in trials if (time := _milliseconds(trial)) is not None]
    if not timed:
        return None
    heights = [time for _, time in timed]
    if default_ms is not None and default_ms > _SHORTEST_MS:
        heights.append(default_ms)
    numbers = [trial.number for trial in trials]
    across = Axis(min(numbers) - 0.5, max(numbers) + 0.5, LEFT, RIGHT, whole=True)
    up = Axis.over(heights, BOTTOM, TOP)
    parts = [_grid(across, up, "trial", "ms")]
    if default_ms is not None and default_ms > _SHORTEST_MS:
        line = element("path", d=f"M{LEFT} {length(up.place(default_ms))}H{RIGHT}", class_="default")
        line.append(element("title", f"untuned default: {significant(default_ms)} ms"))
        parts.append(line)
    searched = [(trial, time) for trial, time in timed if not trial.final]
    parts += [
        element(
            "circle",
            element("title", f"trial {trial.number}: {significant(time)} ms"),
            cx=across.place(trial.number),
            cy=up.place(time),
            r=3,
            class_="trial",
        )
        for trial, time in searched
    ]
    if searched:
        parts.append(_best_so_far([(trial.number, time) for trial, time in searched], across, up))
    parts += [
        element(
            "path",
            element("title", f"trial {trial.number}: {trial.failure}"),
            d=_cross(across.place(trial.number), _FAILURES),
            class_="failure",
        )
        for trial in trials
        if trial.failure is not None
    ]
    parts += [
        element(
            "path",
            element("title", f"measured in turns at the end: {significant(time)} ms"),
            d=_diamond(across.place(trial.number), up.place(time)),
            class_="final",
        )
        for trial, time in timed
        if trial.final
    ]
    best = min(heights)
    return _drawing(f"{len(trials)} trials; the best takes {milliseconds(best)} ms", "convergence", parts)


def temperatures(trials: Iterable[Trial], hosts: Sequence[str]) -> Element | None:
    """The temperature of each board over the time of a run, and when it slowed itself down; None if none is known.

    Args:
        trials: of one run.
        hosts: the boards, in the order of their colours.
    """
    told = sorted(
        (
            (trial.time, trial.host, trial.conditions.temperature_c, bool(trial.conditions.throttled))
            for trial in trials
            if trial.conditions and trial.conditions.temperature_c is not None
        ),
        key=lambda point: (point[0], point[1]),
    )
    if not told:
        return None
    begin = told[0][0]
    unit, seconds = _unit((told[-1][0] - begin).total_seconds())

    def passed(time: datetime) -> float:
        return (time - begin).total_seconds() / seconds

    warmth = [temperature for _, _, temperature, _ in told]
    across = Axis(0, passed(told[-1][0]) or 1, LEFT, RIGHT)
    up = Axis(min(warmth) - 2, max(warmth) + 2, BOTTOM, TOP)
    parts = [_grid(across, up, unit, "°C")]
    for host, points in groupby(sorted(told, key=lambda point: point[1]), key=lambda point: point[1]):
        places = [(across.place(passed(time)), up.place(temperature)) for time, _, temperature, _ in points]
        corners = "L".join(f"{length(x)} {length(y)}" for x, y in places)
        # A lone point is a line too, which its round ends show.
        parts.append(
            element("path", element("title", host), d=f"M{corners}h0", class_=f"board {board_class(host, hosts)}")
        )
    parts += [
        element(
            "path",
            element("title", f"{host} slowed itself down at {temperature:.1f} °C"),
            d=_cross(across.place(passed(time)), up.place(temperature)),
            class_="failure",
        )
        for time, host, temperature, throttled in told
        if throttled
    ]
    summary = f"between {min(warmth):.1f} and {max(warmth):.1f} °C"
    return _drawing(summary, "temperatures", parts)


def board_class(host: str, hosts: Sequence[str]) -> str:
    """The class whose colour a board's line has."""
    place = hosts.index(host) if host in hosts else BOARD_COLOURS
    return f"board-{min(place, BOARD_COLOURS)}"


def _milliseconds(trial: Trial) -> float | None:
    median = trial.median_ms
    return median if median is not None and median > _SHORTEST_MS else None


def _best_so_far(points: list[tuple[int, float]], across: Axis, up: Axis) -> Element:
    """A line of steps: at each trial's number the best of all up to it."""
    points = sorted(points)
    best = accumulate((time for _, time in points), min)
    steps = [(number, time) for (number, _), time in zip(points, best, strict=True)]
    [(first, time), *rest] = steps
    path = f"M{length(across.place(first))} {length(up.place(time))}"
    path += "".join(f"H{length(across.place(number))}V{length(up.place(time))}" for number, time in rest)
    return element("path", d=f"{path}H{RIGHT}", class_="best")


def _grid(across: Axis, up: Axis, unit_across: str, unit_up: str) -> Element:
    """The lines behind the data, with their values, and the axes' names."""
    grid = element("g", class_="grid")
    for value, text in up.ticks():
        y = up.place(value)
        grid.append(element("path", d=f"M{LEFT} {length(y)}H{RIGHT}"))
        grid.append(element("text", text, x=LEFT - 6, y=y + 4, text_anchor="end", class_="tick-up"))
    for value, text in across.ticks():
        grid.append(element("text", text, x=across.place(value), y=BOTTOM + 16, text_anchor="middle", class_="tick"))
    grid.append(element("path", d=f"M{LEFT} {BOTTOM}H{RIGHT}", class_="axis"))
    grid.append(element("text", unit_across, x=RIGHT, y=BOTTOM + 32, text_anchor="end"))
    grid.append(element("text", unit_up, x=LEFT - 6, y=_FAILURES + 4, text_anchor="end"))
    return grid


def _drawing(summary: str, kind: str, parts: Sequence[Element]) -> Element:
    """A drawing that screen readers are told in a sentence."""
    return element(
        "svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=summary, class_=f"chart {kind}"
    )


def _unit(seconds: float) -> tuple[str, float]:
    """The unit that so long a time is told in, and how many seconds it has."""
    if seconds < 180:
        return "s", 1.0
    return ("min", 60.0) if seconds < 3 * 3600 else ("h", 3600.0)


def _cross(x: float, y: float) -> str:
    return f"M{length(x - 3.5)} {length(y - 3.5)}l7 7m0 -7l-7 7"


def _diamond(x: float, y: float) -> str:
    return f"M{length(x)} {length(y - 5)}l5 5l-5 5l-5 -5z"
