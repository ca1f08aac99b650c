"""What LLVM's scheduling models predict for the innermost loops that ARM boards run, and for whole tiles of layers.

    python benchmarks/arm_loops.py [NETWORK ...] [--boards NAMES] [--tiles] [--json]

No board is needed: networks are cross-compiled, the loops that multiply and add floats or bytes are taken out of the
assembly, and llvm-mca predicts how many cycles an iteration takes. The bound is the cycles that the multiply-adds alone
need.
With --tiles, each loop over tiles of each layer: the loop of its sums as often as the layer's shape says, and the code
around it, which is biases, activations or requantisation, and stores. Products are those of the layer, without padding.
Copies that a task makes before its tiles are left out, and so are memory and caches.
Without NETWORKs, which are ONNX files, the layers of `benchmarks/layers.yaml` are taken one by one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assembly import Loop, innermost_loops, nests
from errors import ending_with_errors
from layers import networks
from mca import Analyser
from rich.console import Console
from rich.table import Table
from whole_tiles import predict_tile, tile_loops, work_of

from edgedeploy.compile.backends import host_of
from edgedeploy.compile.backends.cpu.configuration import Winograd
from edgedeploy.compile.output.packing import scheduled_name
from edgedeploy.compile.pipeline import Compiled, compile_network, optimise
from edgedeploy.target.board import load_board

REGISTER_OR_LABEL = re.compile(r"\b[dqrsvwx]\d+\b|\.L\w+")

BOARDS = ["rpi4", "rpi3", "rpi5", "rpi-armhf"]

# Loops beyond this multiple of what their arithmetic or their loads need are marked.
TOLERANCE = 1.10


# Tiles of a network that are named, if there are no more.
FEW = 2


@dataclass(frozen=True)
class Record:
    """One loop; cycles are of one iteration.

    `bound` is what the multiply-adds alone need, `arithmetic_bound` what all arithmetic on vectors that are summed up
    needs, with biases and activations where the loop has them, and `load_bound` what the loads need.
    """

    board: str
    model: str
    network: str
    tiles: str
    accumulates: bool
    instructions: int
    multiply_adds: int
    products: int
    loads: int
    stores: int
    stack_accesses: int
    cycles: float
    bound: float
    arithmetic_bound: float
    load_bound: float
    ratio: float


@dataclass(frozen=True)
class TileRecord:
    """A loop over tiles of a layer; cycles, accesses to the stack and products are of one tile.

    `sum_cycles` are those of `cycles` that the loops of the sums take.
    """

    board: str
    model: str
    network: str
    function: str
    tile: str
    cycles: float
    sum_cycles: float
    stack_accesses: float
    products: float
    products_per_cycle: float


def hot_loops(compiled: Compiled) -> list[Loop]:
    """The innermost loops with multiply-adds, those that differ in more than the names of registers."""
    loops: dict[tuple[str, ...], Loop] = {}
    for loop in innermost_loops(compiled.code.inspect("asm")):
        if loop.multiply_adds:
            loops.setdefault(tuple(REGISTER_OR_LABEL.sub("", line) for line in loop.instructions), loop)
    return list(loops.values())


def look(board_name: str, paths: list[Path]) -> Iterator[Record]:
    """One record for each loop of each network on a board."""
    board = load_board(board_name)
    analyser = Analyser(board)
    for name, network in networks(paths):
        compiled = compile_network(network, board)
        chosen = sorted({entry.tile for entry in compiled.functions.values() if entry.tile})
        tiles = "; ".join(chosen) if len(chosen) <= FEW else f"{len(chosen)} kinds"
        for loop in hot_loops(compiled):
            prediction = analyser.predict(loop)
            yield Record(
                board=board_name,
                model=analyser.model,
                network=name,
                tiles=tiles,
                accumulates=loop.accumulates,
                instructions=len(loop.instructions),
                multiply_adds=len(loop.multiply_adds),
                products=loop.products,
                loads=len(loop.loads),
                stores=len(loop.stores),
                stack_accesses=len(loop.stack_accesses),
                cycles=round(prediction.cycles, 2),
                bound=prediction.multiply_adds,
                arithmetic_bound=prediction.arithmetic,
                load_bound=prediction.loads,
                ratio=round(prediction.ratio, 3),
            )


def look_at_tiles(board_name: str, paths: list[Path]) -> Iterator[TileRecord]:
    """One record for each loop over tiles of each layer on a board, but for Winograd's, which are of several kinds."""
    board = load_board(board_name)
    analyser = Analyser(board)
    for name, network in networks(paths):
        compiled, groups = compile_network(network, board), optimise(network, board).groups
        layers = {scheduled_name(function): group.layer for function, group in groups.items()}
        for nest in nests(compiled.code.inspect("asm")):
            function = nest.own.function.removeprefix("__tvm_ffi_").removesuffix("_compute_")
            configuration = compiled.functions[function].configuration if function in layers else None
            if configuration is None or isinstance(configuration, Winograd):
                continue
            work = work_of(host_of(board).strategy(layers[function]), configuration)
            for loop in tile_loops(nest):
                tile = predict_tile(loop, work, analyser)
                yield TileRecord(
                    board=board_name,
                    model=analyser.model,
                    network=name,
                    function=function,
                    tile=compiled.functions[function].tile,
                    cycles=round(tile.cycles, 1),
                    sum_cycles=round(tile.sums, 1),
                    stack_accesses=round(tile.stack_accesses, 1),
                    products=round(tile.useful, 1),
                    products_per_cycle=round(tile.products_per_cycle, 2),
                )


def as_table_of_tiles(records: list[TileRecord]) -> Table:
    """The records of one board; accesses to the stack stand out."""
    first = records[0]
    table = Table(title=f"{first.board}, predicted by LLVM's model of {first.model}", title_justify="left")
    for column in ("network", "layer", "tile"):
        table.add_column(column)
    for column in ("cycles", "of sums", "stack", "products/cycle"):
        table.add_column(column, justify="right")
    for record in records:
        stack = f"[red]{record.stack_accesses:g}" if record.stack_accesses else "0"
        cycles = f"{record.cycles:.1f}", f"{record.sum_cycles:.1f}"
        table.add_row(record.network, record.function, record.tile, *cycles, stack, f"{record.products_per_cycle:.2f}")
    return table


def as_table(records: list[Record]) -> Table:
    """The records of one board; loops beyond the tolerance and accesses to the stack stand out."""
    first = records[0]
    table = Table(title=f"{first.board}, predicted by LLVM's model of {first.model}", title_justify="left")
    for column in ("network", "tile", "loop"):
        table.add_column(column)
    for column in (
        "fma",
        "loads",
        "stores",
        "stack",
        "cycles",
        "fma bound",
        "fp bound",
        "load bound",
        "ratio",
        "products/cycle",
    ):
        table.add_column(column, justify="right")
    for record in records:
        stack = f"[red]{record.stack_accesses}" if record.stack_accesses else "0"
        slow = record.cycles > TOLERANCE * max(record.arithmetic_bound, record.load_bound)
        ratio = f"[red]{record.ratio:.2f}" if slow else f"{record.ratio:.2f}"
        table.add_row(
            record.network,
            record.tiles,
            "sum" if record.accumulates else "tile",
            *(str(count) for count in (record.multiply_adds, record.loads, record.stores)),
            stack,
            *(f"{cycles:.1f}" for cycles in (record.cycles, record.bound, record.arithmetic_bound, record.load_bound)),
            ratio,
            f"{record.products / record.cycles:.1f}",
        )
    return table


def run(arguments: argparse.Namespace) -> None:
    """Look at all boards, and print."""
    find: Callable[[str, list[Path]], Iterator[Any]] = look_at_tiles if arguments.tiles else look
    show: Callable[[list[Any]], Table] = as_table_of_tiles if arguments.tiles else as_table
    found = {board: list(find(board, arguments.networks)) for board in arguments.boards.split(",")}
    if arguments.json:
        print(json.dumps([asdict(record) for records in found.values() for record in records], indent=2))
        return
    console = Console(width=None if sys.stdout.isatty() else 140)
    for records in found.values():
        if records:
            console.print(show(records))


def main() -> None:
    """Parse the command line; errors end as those of `edgedeploy` do."""
    parser = argparse.ArgumentParser(description="Predict the innermost loops of networks on ARM boards.")
    parser.add_argument("networks", nargs="*", type=Path, metavar="NETWORK", help="ONNX files; layers by default")
    parser.add_argument("--boards", default=",".join(BOARDS), help=f"separated by commas ({','.join(BOARDS)})")
    parser.add_argument("--tiles", action="store_true", help="whole tiles of layers in the place of innermost loops")
    parser.add_argument("--json", action="store_true", help="print one JSON value for scripts")
    arguments = parser.parse_args()
    with ending_with_errors():
        run(arguments)


if __name__ == "__main__":
    main()
