"""Predicts ncnn's own benchmark networks, and puts the times that ncnn publishes beside them, for docs/predictions.md.

    python benchmarks/published.py FOLDER [NETWORK ...] [--ncnn VERSION]

FOLDER is ncnn's `benchmark/models`. Weights are zero, as in ncnn's benchmark; published times are in published.yaml.
Beside them stands what edgedeploy's code for the same networks takes, predicted on one thread. What was recorded before
is in arm_engines.jsonl.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from arm_engines import RESULTS
from arm_engines import rows as predicted
from arm_engines_tables import PUBLISHED
from errors import ending_with_errors

from edgedeploy.base.progress import Progress
from edgedeploy.benchmarking.engines.engine import Task
from edgedeploy.benchmarking.wheels import Target, site
from edgedeploy.cli.console import ConsoleProgress
from edgedeploy.frontends.format import ImportOptions
from edgedeploy.predicting.peers import Key, PeerResult, PeerResults, record_engine
from edgedeploy.predicting.prediction import priced
from edgedeploy.predicting.recording import PYTHON, machine
from edgedeploy.predicting.tools import Means
from edgedeploy.target.board import Board, load_board

BOARD = "rpi4"
# The version at the time when those times were published: later ones have other kernels, above all for bytes.
VERSION = "1.0.20230517"

# What the version can run with weights of zero.
NAMES = [name for name, published in PUBLISHED.items() if "size" in published]


def rows(folder: Path, networks: list[str], version: str) -> Iterator[str]:
    """The rows of the table in Markdown, as they come."""
    progress, board, results = ConsoleProgress(), load_board(BOARD), PeerResults(RESULTS)
    means = Means.of(BOARD, board)
    yield f"ncnn {version}, {means.name}"
    yield ""
    heads = ["network", "published, ms", "core alone, ms", "predicted, ms", "ratio", "edgedeploy, predicted, ms"]
    heads += [f"4 threads: {head}" for head in ("published, ms", "predicted, ms", "ratio")]
    yield f"| {' | '.join(heads)} |"
    yield f"|---|{'---:|' * (len(heads) - 1)}"
    for name in networks:
        published = PUBLISHED[name]
        inputs = {"data": np.full((1, 3, published["size"], published["size"]), 0.01, np.float32)}
        file = folder / f"{name}.param"
        key = Key.of("ncnn", version, file, inputs, board, means)
        result = results.find(key)
        if result is None:
            result = recorded(key, file, inputs, board, means, progress)
            results.add(result)
        alone, four = (priced(result.executed, board, means.core, threads) for threads in (1, 4))
        [ours] = predicted({str(file): ImportOptions(weights="random")}, BOARD, "")
        core = alone.cycles.core / (alone.clock_mhz * 1e3)
        remark = " (fitted)" if published.get("fitted") else ""
        one, together = (published[BOARD][threads] for threads in (1, 4))
        yield (
            f"| {name} | {one:.1f} | {core:.1f} | {alone.ms:.1f} | {alone.ms / one:.2f}{remark} | {ours.ours.ms:.1f} "
            f"| {together:.1f} | {four.ms:.1f} | {four.ms / together:.2f} |"
        )


def recorded(
    key: Key, file: Path, inputs: dict[str, np.ndarray], board: Board, means: Means, progress: Progress
) -> PeerResult:
    """What ncnn executes for a network."""
    wheel = site(key.engine, key.version, Target(board.architecture, PYTHON), progress)
    with tempfile.TemporaryDirectory(prefix="edgedeploy-published-") as place:
        (root := Path(place) / "root").mkdir()
        (own := Path(place) / "own").mkdir()
        machine(board, means.core, root, progress)
        task = Task(file, Path(), inputs, [], threads=1, folder=own)
        executed, _ = record_engine(key.engine, wheel, task, root, board, means, progress)
    return PeerResult(key, file.name, wheel.sha256, tuple(executed))


def main() -> None:
    """Parse the command line; errors end as those of `edgedeploy` do."""
    parser = argparse.ArgumentParser(description="Predict ncnn's benchmark networks beside its published times.")
    parser.add_argument("folder", type=Path, help="ncnn's benchmark/models")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--ncnn", default=VERSION, metavar="VERSION", help="of the wheel")
    arguments = parser.parse_args()
    if unknown := set(arguments.networks) - set(NAMES):
        parser.error(f"unknown networks: {', '.join(sorted(unknown))}")
    with ending_with_errors():
        for row in rows(arguments.folder, arguments.networks or NAMES, arguments.ncnn):
            print(row, flush=True)


if __name__ == "__main__":
    main()
