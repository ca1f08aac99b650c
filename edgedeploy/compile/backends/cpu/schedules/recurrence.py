"""Recurrent layers: tiles of units whose gates are summed up in registers; sequences and directions on all threads."""

from __future__ import annotations

from functools import partial

from tvm.s_tir import Schedule

from edgedeploy.board import Board
from edgedeploy.compile.operators.recurrence import RECURRENCE_ATTRIBUTE, Recurrence
from edgedeploy.compile.operators.recurrent_loop import LoopTile, pack, write
from edgedeploy.compile.schedules.kernel import Kernel, Packing
from edgedeploy.compile.tiles import divisors, is_worth_threads
from edgedeploy.compile.types import lanes_for

# The parameter that holds the weights of the state.
_WEIGHTS = 1


def matches(kernel: Kernel) -> bool:
    """A function that says which layer it holds."""
    return RECURRENCE_ATTRIBUTE in (kernel.function.attrs or {})


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Write the layer anew for the board; its weights are packed by tiles of units if they are constants."""
    layer = Recurrence.model_validate_json(str(kernel.function.attrs[RECURRENCE_ATTRIBUTE]))
    tile = _tile(layer, board)
    packed = _WEIGHTS in kernel.packable
    kernel.configuration = tile
    kernel.operations = layer.operations
    worthwhile = is_worth_threads(layer.operations, board.fma.per_cycle * tile.lanes)
    kernel.parallel = worthwhile and layer.directions * layer.batch > tile.rows
    kernel.schedule = Schedule(write(layer, tile, packed=packed, parallel=kernel.parallel))
    return Packing(_WEIGHTS, partial(pack, layer, tile)) if packed else None


def _tile(layer: Recurrence, board: Board) -> LoopTile:
    """As few units as hide the latency of multiply-adds, and as many sequences as registers are left for."""
    lanes = lanes_for(board, layer.dtype)
    gates = max(map(len, layer.phases))
    wanted = -(-int(board.fma.latency * board.fma.per_cycle) // gates)
    most = max(board.vector.registers - 4, gates) // gates
    count = min(wanted, most, max(layer.hidden // lanes, 1))
    rows = 1
    if not layer.lengths:  # sequences that end together
        rows = max(each for each in divisors(layer.batch) if each == 1 or each * count <= most)
    return LoopTile(rows=rows, units=count * lanes, lanes=lanes)
