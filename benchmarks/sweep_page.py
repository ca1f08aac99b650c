"""docs/networks.md: the results of the sweep as a page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import geometric_mean, median
from textwrap import fill
from typing import TYPE_CHECKING

from edgedeploy.base.text import count, significant
from edgedeploy.benchmarking.report import this_machine
from edgedeploy.version import __version__

if TYPE_CHECKING:
    from sweep_result import Result

SLOW = 1.10  # what the project's aim allows, in onnxruntime's times
WORTH_NAMING = 0.02  # of a network's time, below which no fallback is named

PAGE = """\
# Popular networks

Written by `python benchmarks/sweep.py measure --output docs/networks.md` on {date}, with
{versions}.

{remark}The networks are architectures of torchvision, timm and Ultralytics, and small ones of other kinds
(`benchmarks/networks/pytorch.py`), from PyTorch's exporters: `legacy` and `dynamo` are its two exporters to ONNX,
`pt2` are exported programs, and `tflite` is litert-torch. Weights are random, with batch normalisation fitted to random
inputs. `benchmarks/sweep_networks.yaml` lists the networks with their inputs.

Each is built for this machine like `edgedeploy build`, with its self-test. Times are medians of processor time on one
thread; the network's exported forms and onnxruntime take {rounds} turns each, in one process. The ratio is edgedeploy's
time divided by onnxruntime's: below 1, edgedeploy is faster. onnxruntime runs the older exporter's file if there is
one. On {threads} threads, times are wall-clock times, and each engine has its own process. Machine: {machine}.

{totals}

* **on threads**: the ratio on {threads} threads.
* **to legacy**: edgedeploy's time divided by its time for the older exporter's file.
* **general**: the share of time of functions that use the general template.
* **scalar**: the share of fallbacks, which compute one value at a time (`edgedeploy build --explain`); fallbacks of
  {worth} % or more are named.
* **error**: why it was not built or measured.

{tables}
"""


def page(results: Sequence[Result], names: Sequence[str], rounds: int, threads: int, remark: str | None) -> str:
    """The page.

    Args:
        results: of networks, in the order in which they are shown.
        names: of all networks that could have results.
        rounds: how often each engine had its turn.
        threads: the larger of both numbers of threads.
        remark: a sentence about the machine's state.
    """
    families = list(dict.fromkeys(_parts(result)[0] for result in results))
    return PAGE.format(
        date=date.today().isoformat(),
        versions=", ".join([f"edgedeploy {__version__}", *(f"{name} {found}" for name, found in _versions())]),
        remark=f"**{remark.strip()}**\n\n" if remark else "",
        rounds=rounds,
        threads=threads,
        machine=this_machine().model_copy(update={"load": None}).line(),
        totals=_totals(results, len(names)),
        worth=round(WORTH_NAMING * 100),
        tables="\n\n".join(
            f"## {family}\n\n{_table([each for each in results if _parts(each)[0] == family])}" for family in families
        ),
    )


_PACKAGES = ("apache-tvm", "onnxruntime", "torch", "torchvision", "timm", "ultralytics", "litert-torch")


def _versions() -> Iterator[tuple[str, str]]:
    """Packages that are here, with their versions."""
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            yield name, version(name)


def _parts(result: Result) -> tuple[str, str, str]:
    """Family, network and exporter of a result."""
    family, _, rest = result.name.partition(".")
    network, _, exporter = rest.rpartition(".")
    return family, network, exporter


def _totals(results: Sequence[Result], listed: int) -> str:
    groups: dict[str, list[Result]] = {}
    for part in (0, 2):
        for result in results:
            groups.setdefault(_parts(result)[part], []).append(result)
    head = ["package or exporter", "networks", "built", "refused", "caught", "other", "measured"]
    summary = ["median", "geometric mean", f"above {SLOW:.2f}"]
    head += [*summary, "on threads", *summary]
    lines = [f"| {' | '.join([*head, 'to legacy'])} |", "|---|" + "--:|" * len(head)]
    for name, members in {**groups, "all": list(results)}.items():
        outcomes = Counter(result.outcome for result in members)
        ratios = [result.ratio for result in members if result.ratio]
        known = sum(outcomes[each] for each in ("built", "refused", "caught"))
        others = [result.to_legacy for result in members if result.to_legacy]
        shared = f"{geometric_mean(others):.2f}" if others else ""
        parallel = [result.parallel_ratio for result in members if result.parallel_ratio]
        counts = [len(members), outcomes["built"], outcomes["refused"], outcomes["caught"], len(members) - known]
        cells = [name, *counts, *_summary(ratios), *_summary(parallel), shared]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    left = listed - len(results)
    missing = f"{count(left, 'network')} of the list {'has' if left == 1 else 'have'} no result yet." if left else ""
    return "\n".join(lines) + (f"\n\n{fill(missing, 120)}" if missing else "")


def _summary(ratios: Sequence[float]) -> list[str]:
    """How many there are, their median and geometric mean, and how many are too large."""
    if not ratios:
        return ["0", "", "", ""]
    slow = sum(ratio > SLOW for ratio in ratios)
    return [str(len(ratios)), f"{median(ratios):.2f}", f"{geometric_mean(ratios):.2f}", str(slow)]


def _table(results: Sequence[Result]) -> str:
    head = ["network", "exporter", "builds", "ms", "ratio", "on threads", "to legacy", "general", "scalar", "error"]
    lines = [f"| {' | '.join(head)} |", "|---|---|---|--:|--:|--:|--:|--:|---|---|"]
    for result in results:
        _, network, exporter = _parts(result)
        cells = [network, exporter, "yes" if result.outcome == "built" else result.outcome]
        cells += ["" if result.ours_ms is None else significant(result.ours_ms)]
        ratios = result.ratio, result.parallel_ratio, result.to_legacy
        cells += ["" if each is None else _emphasised(each) for each in ratios]
        cells += ["" if result.general is None else f"{result.general:.0%}", _scalar(result)]
        lines.append(f"| {' | '.join([*cells, _line(result.message or result.unmeasured)])} |")
    return "\n".join(lines)


def _emphasised(ratio: float) -> str:
    return f"**{ratio:.2f}**" if ratio > SLOW else f"{ratio:.2f}"


def _scalar(result: Result) -> str:
    """The part of the time that fallbacks take, and which ones."""
    if not result.scalar or result.scalar < WORTH_NAMING / 2:
        return ""
    named = [f"{name} {share:.0%}" for name, _, fallback, share in result.functions if fallback]
    shares = [share for _, _, fallback, share in result.functions if fallback]
    worth = [name for name, share in zip(named, shares, strict=True) if share >= WORTH_NAMING]
    return f"{result.scalar:.0%}" + (f" ({', '.join(worth)})" if worth else "")


def _line(message: str) -> str:
    """A message as a cell of a table."""
    text = message.replace("|", "\\|").replace("<", "&lt;")
    return text if len(text) <= 240 else text[:237] + "..."


def read_page(file: Path) -> list[Result]:
    """What a page says of its networks, to the digits that it shows; nothing if there is no page.

    Messages that it cuts short stay so.
    """
    from sweep_result import Result

    results = []
    for part in file.read_text(encoding="utf-8").split("\n## ")[1:] if file.is_file() else []:
        family, *lines = part.splitlines()
        rows = [[cell.strip() for cell in _CELL.split(line)[1:-1]] for line in lines if line.startswith("| ")]
        head = rows[0] if rows else []
        for row in rows[1:]:
            cells = dict(zip(head, row, strict=True))
            built = cells["builds"] == "yes"
            error = cells["error"].replace("\\|", "|").replace("&lt;", "<")
            scalar, _, named = cells["scalar"].partition("% (")
            functions = [each.rpartition(" ") for each in named.removesuffix(")").split(", ") if each]
            results.append(
                Result(
                    f"{family}.{cells['network']}.{cells['exporter']}",
                    "built" if built else cells["builds"],
                    message="" if built else error,
                    ours_ms=_number(cells["ms"]),
                    ratio=_number(cells["ratio"]),
                    parallel_ratio=_number(cells.get("on threads", "")),
                    to_legacy=_number(cells.get("to legacy", "")),
                    general=_number(cells["general"], 0.01),
                    scalar=_number(scalar, 0.01),
                    functions=[(name, None, True, float(share.rstrip("%")) / 100) for name, _, share in functions],
                    unmeasured=error if built else "",
                )
            )
    return results


# What is between the cells of a table's row.
_CELL = re.compile(r"(?<!\\)\|")


def _number(cell: str, unit: float = 1) -> float | None:
    """A cell's number; None if it is empty."""
    digits = cell.strip("*%").replace(",", "")
    return float(digits) * unit if digits else None
