"""Predicts ncnn's own benchmark networks, and puts the times that ncnn publishes beside them, for docs/predictions.md.

    python benchmarks/published.py FOLDER [NETWORK ...] [--ncnn VERSION]

FOLDER is ncnn's `benchmark/models`. Weights are zero, as in ncnn's benchmark; published times are in published.yaml.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

from edgedeploy.bench.engines.engine import Task
from edgedeploy.board import load_board
from edgedeploy.cli.console import ConsoleProgress, print_error
from edgedeploy.errors import EdgedeployError
from edgedeploy.predict.machine import machine
from edgedeploy.predict.means import Means
from edgedeploy.predict.peers import predict_engine
from edgedeploy.predict.wheels import site

BOARD = "rpi4"
# The version at the time when those times were published: later ones have other kernels, above all for bytes.
VERSION = "1.0.20230517"
PUBLISHED = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def rows(folder: Path, networks: list[str], version: str) -> Iterator[str]:
    """The rows of the table in Markdown, as they come."""
    progress, board = ConsoleProgress(), load_board(BOARD)
    means, ncnn = Means.of(BOARD, board), site("ncnn", version, board.architecture, progress)
    yield f"ncnn {ncnn.version}, {means.name}"
    yield ""
    yield "| network | published, ms | core alone, ms | predicted, ms | ratio |"
    yield "|---|---:|---:|---:|---:|"
    for name in networks:
        published = PUBLISHED[name]
        with tempfile.TemporaryDirectory(prefix="edgedeploy-published-") as place:
            (root := Path(place) / "root").mkdir()
            (own := Path(place) / "own").mkdir()
            machine(board, means.core, root, progress)
            inputs = {"data": np.full((1, 3, published["size"], published["size"]), 0.01, np.float32)}
            task = Task(Path(), Path(), inputs, [], threads=1, folder=own)
            found, _ = predict_engine("ncnn", ncnn, folder / f"{name}.param", task, root, board, means, progress)
        core = found.cycles.core / (found.clock_mhz * 1e3)
        remark = " (fitted)" if published.get("fitted") else ""
        ratio = found.ms / published[BOARD]
        yield f"| {name} | {published[BOARD]:.1f} | {core:.1f} | {found.ms:.1f} | {ratio:.2f}{remark} |"


def main() -> None:
    """Parse the command line; errors end as those of `edgedeploy` do."""
    parser = argparse.ArgumentParser(description="Predict ncnn's benchmark networks beside its published times.")
    parser.add_argument("folder", type=Path, help="ncnn's benchmark/models")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(PUBLISHED)}; all by default")
    parser.add_argument("--ncnn", default=VERSION, metavar="VERSION", help="of the wheel")
    arguments = parser.parse_args()
    if unknown := set(arguments.networks) - PUBLISHED.keys():
        parser.error(f"unknown networks: {', '.join(sorted(unknown))}")
    try:
        for row in rows(arguments.folder, arguments.networks or list(PUBLISHED), arguments.ncnn):
            print(row, flush=True)
    except EdgedeployError as error:
        print_error(error)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
