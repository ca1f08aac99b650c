"""Kernel elements that meet nothing but zeros of padding in a tile of pixels, as atrous ones do, are passed over."""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx
from tvm.s_tir import SBlockRealize, Schedule

from edgedeploy.compile.backends.cpu.statements import replaced
from edgedeploy.compile.layers import Convolution
from edgedeploy.compile.schedules.kernel import Kernel
from edgedeploy.compile.tiles import Tile

# Of the steps of all sums, the part below which a question before each kernel element is not worth it.
_FEWEST = 0.1


def saved(layer: Convolution, tile: Tile) -> float:
    """What part of a layer's sums reads nothing but padding, tile by tile."""
    read = 1.0
    for axis, size in enumerate((tile.rows, tile.columns)):
        count, window = layer.size[axis], layer.window
        first = [
            begin * window.strides[axis] + element * window.dilation[axis] - window.padding[axis]
            for begin in range(0, count, size)
            for element in range(window.kernel[axis])
        ]
        reach = (size - 1) * window.strides[axis]
        read *= sum(place + reach >= 0 and place < layer.data[1 + axis] for place in first) / len(first)
    return 1 - read


def pass_over_padding(kernel: Kernel, layer: Convolution, tile: Tile, sums: Any, channels: Any) -> None:
    """Let a loop over input channels run only where the kernel element before it meets the feature map in the tile.

    The schedule ends with this: nothing else may be done to it.

    Args:
        kernel: the function.
        layer: the convolution.
        tile: its register tile.
        sums: the block that accumulates.
        channels: its loop over input channels.
    """
    if saved(layer, tile) < _FEWEST:
        return
    schedule, window = kernel.schedule, layer.window
    block, wanted = schedule.get(sums), schedule.get(channels).loop_var
    names = [str(each.var.name).removeprefix("v").removeprefix("_") for each in block.iter_vars]

    def guarded(loop: Any) -> Any:
        if not isinstance(loop, tirx.For) or not loop.loop_var.same_as(wanted):
            return loop
        tile_loops, realise = _down_to_block(loop)
        values = dict(zip(names, realise.iter_values, strict=True))
        met = []
        for axis, (pixel, element) in enumerate((("y", "ry"), ("x", "rx"))):
            *steps, first = sym.detect_linear_equation(values[pixel], [each.loop_var for each in tile_loops])
            reach = sum(int(step) * (int(each.extent) - 1) for step, each in zip(steps, tile_loops, strict=True))
            place = first * window.strides[axis] + values[element] * window.dilation[axis] - window.padding[axis]
            met += [place + reach * window.strides[axis] >= 0, place < layer.data[1 + axis]]
        return tirx.IfThenElse(tirx.all(*met), loop, None)

    function = schedule.mod["main"]
    kernel.schedule = Schedule(function.with_body(replaced(function.body, guarded)))


def _down_to_block(loop: tirx.For) -> tuple[list[tirx.For], SBlockRealize]:
    """The loops in a loop, and the block in them."""
    loops, statement = [], loop.body
    while isinstance(statement, tirx.For):
        loops.append(statement)
        statement = statement.body
    return loops, statement
