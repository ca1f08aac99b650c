"""Functions that operators write loop by loop, once more for the board: recurrent layers, rows, frames of cameras."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tvm.s_tir import Schedule

from edgedeploy.base.documents import Record
from edgedeploy.compile.ir.types import lanes_for
from edgedeploy.compile.operators import preparation, recurrent_loop
from edgedeploy.compile.operators import rows as row_operators
from edgedeploy.compile.operators.preparation import PREPARATION_ATTRIBUTE
from edgedeploy.compile.operators.recurrence import RECURRENCE_ATTRIBUTE, Recurrence
from edgedeploy.compile.operators.recurrent_loop import LoopTile
from edgedeploy.compile.operators.rows import ROWS_ATTRIBUTE, Rows
from edgedeploy.compile.schedules.kernel import Kernel, Packing
from edgedeploy.compile.tiles import divisors, is_worth_threads
from edgedeploy.target.board import Board
from edgedeploy.vision.frames import Preparation

_WEIGHTS = 1  # the parameter that holds the weights of a recurrent layer's state

_Any = TypeVar("_Any", bound=Record)


def has(attribute: str) -> Callable[[Kernel], bool]:
    """Match functions with an attribute that describes what they compute."""
    return lambda kernel: attribute in (kernel.function.attrs or {})


def _described(kernel: Kernel, attribute: str, kind: type[_Any]) -> _Any:
    return kind.model_validate_json(str(kernel.function.attrs[attribute]))


def recurrence(kernel: Kernel, board: Board) -> None:
    """Tiles of units whose gates are summed up in registers, with constant weights packed by these tiles."""
    layer = _described(kernel, RECURRENCE_ATTRIBUTE, Recurrence)
    tile = _tile(layer, board)
    packed = _WEIGHTS in kernel.packable
    if packed:
        kernel.packing = Packing(_WEIGHTS, partial(recurrent_loop.pack, layer, tile))
    kernel.configuration = tile
    kernel.operations = layer.operations
    worthwhile = is_worth_threads(layer.operations, board.fma.per_cycle * tile.lanes)
    kernel.parallel = worthwhile and layer.directions * layer.batch > tile.rows
    kernel.schedule = Schedule(recurrent_loop.write(layer, tile, packed=packed, parallel=kernel.parallel))


def _tile(layer: Recurrence, board: Board) -> LoopTile:
    """As few units as hide the latency of multiply-adds, and as many sequences as registers are left for."""
    lanes = lanes_for(board, layer.dtype)
    gates = max(map(len, layer.phases))
    wanted = -(-int(board.fma.latency * board.fma.per_cycle) // gates)
    most = max(board.vector.registers - 4, gates) // gates
    count = min(wanted, most, max(layer.hidden // lanes, 1))
    fitting = [each for each in divisors(layer.batch) if each == 1 or each * count <= most]
    rows = 1 if layer.lengths else max(fitting)  # sequences that end together
    return LoopTile(rows=rows, units=count * lanes, lanes=lanes)


def rows(kernel: Kernel, board: Board) -> None:
    """Softmax and norms along rows: vectors of partial sums, rows on all threads."""
    operator = _described(kernel, ROWS_ATTRIBUTE, Rows)
    lanes = min(lanes_for(board, "float32"), 1 << operator.columns.bit_length() - 1)
    kernel.operations = operator.operations
    kernel.parallel = is_worth_threads(operator.operations, lanes) and operator.rows > 1
    kernel.schedule = Schedule(row_operators.write(operator, lanes, parallel=kernel.parallel))


def frames(kernel: Kernel, board: Board) -> None:
    """A camera's frame as a network's input: rows on all threads, sums of pixels by whole vectors."""
    wanted = _described(kernel, PREPARATION_ATTRIBUTE, Preparation)
    lanes = lanes_for(board, "int16")  # of levels between the axes
    kernel.operations = preparation.operations(wanted)
    kernel.parallel = is_worth_threads(kernel.operations, lanes)
    kernel.schedule = Schedule(preparation.write(wanted, lanes, parallel=kernel.parallel))
