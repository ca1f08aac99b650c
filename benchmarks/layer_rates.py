"""What part of this machine's peak the functions of networks reach, on one thread.

    python benchmarks/layer_rates.py [NETWORK ...] [--repeats N] [--json]

The peak is measured in the same run: multiply-adds of registers only, as many at once as tiles have sums. Functions
are called one by one with random values, and the shortest of many times counts. Operations are those of a direct
convolution, so that Winograd's may pass 100 %. Without NETWORKs, which are ONNX files, the layers of
`benchmarks/layers.yaml` are taken.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Read by TVM when it is imported: a pool of one worker, which may run on any core.
os.environ.update(TVM_NUM_THREADS="1", TVM_BIND_THREADS="0")

import numpy as np
import tvm
from layers import networks
from rich.console import Console
from rich.table import Table
from tvm import te
from tvm.s_tir import Schedule

from edgedeploy.compile.ir.types import lanes_for
from edgedeploy.compile.output.codegen import link
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.model.network import Network
from edgedeploy.target.board import Board, load_board

# Functions of fewer operations are left out: calling them takes as long as their work.
LEAST_OPERATIONS = 1_000_000


@dataclass(frozen=True)
class Rate:
    """One function: its template and tile, best time in microseconds, GFLOP/s, and the part of the peak."""

    network: str
    function: str
    template: str
    tile: str
    microseconds: float
    gflops: float
    part: float


def measured_peak(board: Board, repeats: int) -> float:
    """Single-precision GFLOP/s of one core: a register tile over operands that stay in the L1 cache."""
    pixels, vectors, depth, rounds = 14 if board.vector.registers >= 32 else 6, 2, 64, 400
    channels = vectors * lanes_for(board, "float32")
    inputs, weights = te.placeholder((pixels, depth), name="inputs"), te.placeholder((depth, channels), name="weights")
    again, term = te.reduce_axis((0, rounds)), te.reduce_axis((0, depth))
    sums = te.compute(
        (pixels, channels), lambda p, c: te.sum(inputs[p, term] * weights[term, c], axis=[again, term]), name="sums"
    )
    schedule = Schedule(te.create_prim_func([inputs, weights, sums]))
    block = schedule.get_sblock("sums")
    pixel, channel, again, term = schedule.get_loops(block)
    vector, lane = schedule.split(channel, [None, lanes_for(board, "float32")])
    schedule.reorder(again, term, pixel, vector, lane)
    schedule.vectorize(lane)
    schedule.unroll(vector)
    schedule.unroll(pixel)
    stored = schedule.cache_write(block, 0, "local")
    _, lane = schedule.split(schedule.get_loops(stored)[-1], [None, lanes_for(board, "float32")])
    schedule.vectorize(lane)
    schedule.decompose_reduction(block, again)
    compiled = tvm.compile(schedule.mod, target=tvm.target.Target(board.cpu_target()))
    shapes = [(pixels, depth), (depth, channels), (pixels, channels)]
    seconds = best_time(compiled.mod, "main", shapes, repeats)
    return 2 * pixels * channels * depth * rounds / seconds / 1e9


def best_time(library: Any, function: str, shapes: list[tuple[int, ...]], repeats: int) -> float:
    """The shortest of `repeats` calls with random float32 tensors of these shapes, in seconds."""
    random = np.random.default_rng(0)
    tensors = [tvm.runtime.tensor(random.random(shape, dtype=np.float32)) for shape in shapes]
    timer = library.time_evaluator(function, tvm.cpu(), number=1, repeat=repeats)
    return float(min(timer(*tensors).results))


def rates(network: Network, name: str, board: Board, peak: float, repeats: int) -> Iterator[Rate]:
    """The functions of a network, in its order."""
    compiled = compile_network(network, board)
    with tempfile.TemporaryDirectory() as folder:
        link(compiled.code, Path(folder) / "model.so", board)
        library = tvm.runtime.load_module(str(Path(folder) / "model.so")).imports[0]
        for function, scheduled in compiled.functions.items():
            if scheduled.operations < LEAST_OPERATIONS:
                continue
            shapes = [tuple(int(size) for size in tensor.ty.shape) for tensor in scheduled.function.params]
            seconds = best_time(library, function, shapes, repeats)
            gflops = scheduled.operations / seconds / 1e9
            yield Rate(name, function, scheduled.template, scheduled.tile, seconds * 1e6, gflops, gflops / peak)


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", type=Path, metavar="NETWORK")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    board = load_board("local")
    peak = measured_peak(board, arguments.repeats)
    named = networks(arguments.networks)
    found = [
        rate
        for name, network in named
        for rate in rates(network, name.removesuffix(".onnx"), board, peak, arguments.repeats)
    ]
    if arguments.json:
        json.dump({"peak_gflops": peak, "rows": [asdict(rate) for rate in found]}, sys.stdout, indent=2)
        print()
        return 0
    table = Table(title=f"one thread, peak {peak:.0f} GFLOP/s")
    for column in ("network", "template", "tile", "us", "GFLOP/s", "of peak"):
        table.add_column(column, justify="right" if column in ("us", "GFLOP/s", "of peak") else "left")
    for rate in found:
        numbers = f"{rate.microseconds:.0f}", f"{rate.gflops:.0f}", f"{rate.part:.0%}"
        table.add_row(rate.network, rate.template, rate.tile, *numbers)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
