"""A prediction as a page: a network's cycles by function, as a chart and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.base.files import write_text
from edgedeploy.base.text import significant
from edgedeploy.predicting.peers import PeerPrediction
from edgedeploy.predicting.prediction import Cycles, FunctionCycles, Prediction
from edgedeploy.report import html, render
from edgedeploy.report.charts import chart, short

# Functions of a chart; all others are one bar.
_MOST = 24
_LONGEST_NAME = 32
_COLOURS = {"core": "#2a78d6", "branches": "#8a6fd1", "caches": "#1baf7a", "memory": "#e0792f", "stores": "#c43d5b"}


@dataclass(frozen=True)
class Beside:
    """A table of edgedeploy and other engines, and the reasons why others are left out."""

    titles: list[str]
    rows: list[list[str]]
    left_out: list[tuple[str, str]]


def beside(prediction: Prediction, peers: Sequence[PeerPrediction]) -> Beside:
    """The table of other engines: cycles in millions, and their ratio to edgedeploy's."""
    titles = ["engine", "cycles, M", "ms", "/ edgedeploy", *prediction.cycles.by_kind(), "instructions, M", "of peak"]
    named = [("edgedeploy", prediction)]
    named += [(f"{each.engine} {each.version}", each.prediction) for each in peers if each.prediction]
    rows = [
        [
            name,
            f"{each.cycles.total / 1e6:.2f}",
            significant(each.ms),
            f"{each.cycles.total / prediction.cycles.total:.2f}",
            *(f"{value / 1e6:.2f}" for value in each.cycles.by_kind().values()),
            f"{each.instructions / 1e6:.2f}",
            f"{each.of_peak:.0%}",
        ]
        for name, each in named
    ]
    return Beside(titles, rows, [(each.engine, each.left_out) for each in peers if each.left_out])


def write_page(path: Path, prediction: Prediction, title: str, facts: dict[str, str], compared: Beside) -> None:
    """Write a page about a prediction, with `facts` at its head."""
    kinds = list(prediction.cycles.by_kind())
    titles = ["function", "calls", "million cycles", *kinds, "million products", "in a cycle", "of the peak"]
    rows = [[each.name, each.calls, *cells(each)] for each in prediction.functions]
    text = render(
        __package__,
        "prediction.html",
        title=title,
        header=facts,
        chart=html(_drawn(prediction.functions)),
        titles=titles,
        rows=rows,
        compared=compared,
    )
    write_text(path, text)


def cells(function: FunctionCycles) -> list[str]:
    """The cells of a function after its name and calls: millions, then products in a cycle, and a share."""
    cycles = function.cycles
    millions = [cycles.total, *cycles.by_kind().values(), function.products]
    return [
        *(f"{value / 1e6:.3f}" for value in millions),
        f"{function.products_per_cycle:.2f}",
        f"{function.of_peak:.0%}",
    ]


def _drawn(functions: Sequence[FunctionCycles]) -> str:
    """A bar for each function, the longest at the top, in parts by cause."""
    bars = [(each.name, each.cycles) for each in functions[:_MOST]]
    if others := functions[_MOST:]:
        bars.append((f"{len(others)} others", sum((each.cycles for each in others), Cycles())))
    names = [short(name, _LONGEST_NAME) for name, _ in bars]
    longest, cycles = bars[0]
    with chart(f"{len(functions)} functions; {longest} takes {significant(cycles.total / 1e6)} million cycles") as made:
        axes, places = made.axes, range(len(bars))
        begin = [0.0] * len(bars)
        for kind, colour in _COLOURS.items():
            widths = [getattr(cycles, kind) / 1e6 for _, cycles in bars]
            axes.barh(places, widths, left=begin, color=colour, label=kind)
            begin = [left + width for left, width in zip(begin, widths, strict=True)]
        axes.set_yticks(places, names, fontsize=7)
        axes.invert_yaxis()
        axes.set_axisbelow(True)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        axes.set_xlabel("million cycles")
    return made.svg
