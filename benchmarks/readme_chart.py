"""Draws the chart of the README, docs/charts/engines.svg, from the tables of the pages on performance.

The scripts that write these pages redraw it; so does `python benchmarks/readme_chart.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import geometric_mean

from edgedeploy.base.text import significant
from edgedeploy.benchmarking.page import COLOURS
from edgedeploy.report import require_report
from edgedeploy.report.charts import alone, chart

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "docs" / "charts" / "engines.svg"
ENGINES = ("onnxruntime", "openvino", "ncnn", "mnn")
WIDTH = 0.8 / (1 + len(ENGINES))


def measured() -> dict[str, list[float]]:
    """By engine, how many times as long as edgedeploy it takes on each network of docs/performance.md."""
    rows = _table("performance.md", "| model | edgedeploy ms |")
    titles = [title.removesuffix(" ms (ratio)") for title in rows[0]]
    cells = {title: [row[place] for row in rows[1:]] for place, title in enumerate(titles)}
    ratios = {name: [re.search(r"\(([\d.]+)\)", cell) for cell in cells[name]] for name in ENGINES}
    return {name: [1 / float(ratio[1]) for ratio in found if ratio] for name, found in ratios.items()}


def predicted(board: str) -> dict[str, list[float]]:
    """The same of cycles that docs/predictions.md predicts for a board."""
    rows = _table("predictions.md", f"On `{board}`, 1 thread:\n\n| network |")
    cells = {title: [row[place] for row in rows[1:]] for place, title in enumerate(rows[0])}
    return {name: [float(cell) for cell in cells[name] if cell] for name in ENGINES if name in cells}


def groups() -> dict[str, dict[str, float]]:
    """The bars of the chart: by machine and engine, the geometric mean of the times, of which edgedeploy's is 1."""
    machines = {
        "x86-64,\nmeasured": measured(),
        "Raspberry Pi 4,\npredicted": predicted("rpi4"),
        "Raspberry Pi 5,\npredicted": predicted("rpi5"),
    }
    return {
        machine: {"edgedeploy": 1.0, **{name: geometric_mean(ratios) for name, ratios in found.items()}}
        for machine, found in machines.items()
    }


def write() -> None:
    """Draw the chart, and write its file; as `require_report` where what draws is not installed."""
    require_report()
    CHART.write_text(_drawn(), encoding="utf-8")
    print(CHART)


def _drawn() -> str:
    found = groups()
    engines = ("edgedeploy", *ENGINES)
    with chart("time of an inference beside other engines, edgedeploy = 1") as made:
        made.axes.set(ylabel="time of an inference, edgedeploy = 1")
        made.axes.set_axisbelow(True)
        for place, engine in enumerate(engines):
            label: str | None = engine
            for x, (machine, bars) in enumerate(found.items()):
                if engine not in bars:
                    continue
                own = list(bars).index(engine) - (len(bars) - 1) / 2
                [bar] = made.axes.bar(x + own * WIDTH, bars[engine], 0.9 * WIDTH, color=COLOURS[place], label=label)
                label = None
                text = significant(bars[engine])
                made.axes.annotate(text, (x + own * WIDTH, bars[engine]), ha="center", va="bottom", fontsize=9)
                made.tell(bar, "bar", [f"{engine}, {' '.join(machine.split())}: {text}"])
        made.axes.set_xticks(range(len(found)), list(found))
    return alone(made.svg, background="#ffffff")


def _table(page: str, beginning: str) -> list[list[str]]:
    """The cells of the first table of a page that begins so: its titles, and the rows of networks."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    lines = text[text.index(beginning) :].split("| ", 1)[1].split("\n\n", 1)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [rows[0], *(row for row in rows[2:] if not row[0].startswith("geometric mean"))]


if __name__ == "__main__":
    write()
