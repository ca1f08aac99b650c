"""The tables of benchmarks/arm_engines.py in Markdown, and the page that they stand in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import geometric_mean

import yaml
from cycles import NETWORKS

from edgedeploy.base.text import count, significant
from edgedeploy.model.quantised import Half
from edgedeploy.predicting.peers import NAMES, PeerPrediction
from edgedeploy.predicting.prediction import Prediction

PUBLISHED = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))
# What a page has around the tables, those of floats and those of bytes.
BEGIN, END = "<!-- written by benchmarks/arm_engines.py -->", "<!-- until here -->"
BEGIN_OF_BYTES = "<!-- of bytes, written by benchmarks/arm_engines.py -->"
BEGIN_OF_HALF = "<!-- of half precision, written by benchmarks/arm_engines.py -->"


@dataclass(frozen=True)
class Row:
    """A network: what it takes, and what it takes in other engines.

    Attributes:
        in_single: what the same network takes in single precision, for one of bytes or with layers in half.
        half: its layers in half precision.
    """

    network: str
    ours: Prediction
    peers: Sequence[PeerPrediction]
    in_single: Prediction | None = None
    half: Half | None = None

    def ratio(self, engine: str) -> float | None:
        """An engine's cycles / edgedeploy's; None if the engine has none."""
        found = {each.engine: each.prediction for each in self.peers}.get(engine)
        return found.cycles.total / self.ours.cycles.total if found else None

    @property
    def best(self) -> float | None:
        """edgedeploy's cycles / those of the best of the other engines."""
        ratios = [ratio for peer in self.peers if (ratio := self.ratio(peer.engine))]
        return 1 / min(ratios) if ratios else None


def tables(found: Mapping[str, Sequence[Row]], threads: int) -> str:
    """A table for each board, with who is left out and why."""
    peers = [peer for rows in found.values() for row in rows for peer in row.peers]
    versions = {peer.engine: peer.version for peer in peers if peer.version}
    said = ", ".join(f"{engine} {versions[engine]}" for engine in NAMES if engine in versions)
    parts = [f"Written on {date.today().isoformat()} with the wheels of {said or 'no engine'}."]
    for board, rows in found.items():
        parts += [f"On `{board}`, {count(threads, 'thread')}:", _table(board, rows, threads)]
    return "\n\n".join([*parts, _left_out(found)]).rstrip()


def _table(board: str, rows: Sequence[Row], threads: int) -> str:
    beside_single = any(row.in_single for row in rows)
    in_half = any(row.half for row in rows)
    named = {peer.engine for row in rows for peer in row.peers}
    engines = [name for name in NAMES if name in named]
    ncnn = "ncnn-half" if in_half else "ncnn"
    titles = [
        "network",
        "edgedeploy, M cycles",
        "ms",
        *engines,
        "edgedeploy / best",
        *(["/ in single"] if beside_single else []),
        *(["layers in half", "error"] if in_half else []),
        *([f"{ncnn} predicted, ms", "published, ms"] if in_half or not beside_single else []),
    ]
    lines = [titles, ["---", *["---:"] * (len(titles) - 1)]]
    published = {
        each["network"]: each[board][threads]
        for each in PUBLISHED.values()
        if "network" in each and threads in each.get(board, {})
    }
    for row in rows:
        beside = []
        if beside_single:
            beside.append(_cell(row.ours.cycles.total / row.in_single.cycles.total if row.in_single else None))
        if in_half:
            half = row.half
            beside += [f"{half.used} of {half.layers}", f"{half.error:.4f}"] if half else ["", ""]
        if in_half or not beside_single:
            predicted = {peer.engine: peer.prediction for peer in row.peers}.get(ncnn)
            beside += [
                significant(predicted.ms) if predicted else "",
                f"{published[row.network]:.1f}" if row.network in published else "",
            ]
        lines.append(
            [
                row.network,
                f"{row.ours.cycles.total / 1e6:.1f}",
                significant(row.ours.ms),
                *(_cell(row.ratio(engine)) for engine in engines),
                _cell(row.best),
                *beside,
            ]
        )
    of_files = beside_single and not in_half
    means = [row.best for row in rows if row.best and (of_files or row.network in NETWORKS)]
    if means:
        blank = [""] * (len(engines) + 2)
        what = f"geometric mean of {len(means)} {'files' if of_files else 'development networks'}"
        lines.append([what, *blank, f"{geometric_mean(means):.2f}", *[""] * len(beside)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(ratio: float | None) -> str:
    return f"{ratio:.2f}" if ratio else ""


def _left_out(found: Mapping[str, Sequence[Row]]) -> str:
    """A line for each engine and reason, with the networks."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for board, rows in found.items():
        for row in rows:
            for peer in row.peers:
                if peer.left_out:
                    reasons.setdefault((peer.engine, peer.left_out), []).append(f"{row.network} ({board})")
    return "\n".join(f"- {engine}: {why}: {', '.join(names)}" for (engine, why), names in reasons.items())


def page(before: str, text: str, begin: str = BEGIN) -> str:
    """A page with other tables where `begin` stands.

    Raises:
        ValueError: the page lacks the marks around them.
    """
    head, mark, rest = before.partition(begin)
    _, end, tail = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"the page lacks {begin} or {END}")
    return f"{head}{begin}\n\n{text}\n\n{END}{tail}"
