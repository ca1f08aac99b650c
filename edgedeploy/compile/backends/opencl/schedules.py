"""Schedule templates for OpenCL devices: how the loops of one fused function become kernels.

A work-item computes a tile, as on a CPU: some pixels by some channels, whose sums stay in its registers, with vectors
over channels. So neighbouring work-items read neighbouring weights, and the same pixels. Nothing is shared through
local memory: an integrated graphics processor's caches serve as well, and a CPU has nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple
from functools import partial
from typing import Any

from edgedeploy.compile.backends.opencl.strategy import WorkItem, device_of, group_parts, group_size, vector_width
from edgedeploy.compile.operators import direct
from edgedeploy.compile.operators.product import MATMUL, PACK
from edgedeploy.compile.schedules import Template, is_convolution, is_depthwise, is_product
from edgedeploy.compile.schedules.access import computes_with_conditions, fuse_contiguous
from edgedeploy.compile.schedules.kernel import Kernel, pack, schedule_blocks
from edgedeploy.compile.tiles import vector_length
from edgedeploy.target.board import Board


def _convolution(kernel: Kernel, board: Board) -> None:
    """A dense convolution; padding is a kernel of its own, and weights come in the order that work-groups read."""
    chosen = kernel.chosen(WorkItem)
    pack(kernel, kernel.block(direct.DENSE), chosen.group.channels * chosen.tile.channels)
    padding = kernel.needed_padding(direct.DENSE)
    _in_tiles(kernel, direct.DENSE, 3)
    for name in padding:
        _elementwise(kernel, name, board)


def _depthwise(kernel: Kernel, board: Board) -> None:
    """A depthwise convolution and everything fused with it; every kernel element checks whether it is padding."""
    kernel.inline(kernel.before(direct.DEPTHWISE))
    _in_tiles(kernel, direct.DEPTHWISE, 2)


def _product(kernel: Kernel, board: Board) -> None:
    """A product of matrices and everything fused with it: a work-item has some rows of a vector of columns."""
    if PACK in kernel.before(MATMUL):
        _elementwise(kernel, PACK, board)
    _in_tiles(kernel, MATMUL, 2)


def _in_tiles(kernel: Kernel, anchor: str, dimensions: int) -> None:
    """Let each work-item compute a tile of the anchor's sums, of 3 `dimensions` or the last 2, and all after it."""
    schedule, block, chosen = kernel.schedule, kernel.block(anchor), kernel.chosen(WorkItem)
    output = kernel.output_of(anchor)
    extents, loops = kernel.extents(output), kernel.result_loops(anchor, output)
    reduced = kernel.extents(block)[len(loops) :]
    sizes = astuple(chosen.tile)[-dimensions:]
    pairs = [schedule.split(loop, [None, size]) for loop, size in zip(loops[-dimensions:], sizes, strict=True)]
    tiles, inner = [*loops[:-dimensions], *(pair[0] for pair in pairs)], [pair[1] for pair in pairs]
    schedule.reorder(*tiles, *inner)
    kernel.operations += 2 * math.prod(extents) * math.prod(reduced)
    # Batches and stacks are not divided among groups; nor is a single row.
    item = _bind(kernel, tiles, [*[1] * len(tiles), *astuple(chosen.group)][-len(tiles) :])
    kernel.unroll_tile(inner, chosen.vector)
    kernel.accumulate(block, item, chosen.vector, pixels=len(inner) - 1)


def _has_loops(kernel: Kernel) -> bool:
    """Match functions of blocks with loops; operators without them, as scattering in TVM, are one block of code."""

    def has_loops(name: str) -> bool:
        block = kernel.block(name)
        if name in kernel.accumulating:
            return bool(kernel.spatial_and_reduced(block, kernel.schedule.get_loops(block))[1])
        return bool(kernel.schedule.get(block).iter_vars)

    return all(map(has_loops, kernel.names))


def _elementwise(kernel: Kernel, name: str, board: Board) -> None:
    """A work-item computes one vector of a block's values."""
    schedule, block = kernel.schedule, kernel.block(name)
    kernel.operations += math.prod(kernel.extents(block))
    if not schedule.get_loops(block):
        schedule.add_unit_loop(block)
    vector = _vector(kernel, block, board)
    fuse_contiguous(kernel, block)
    *outer, inner = schedule.get_loops(block)
    _bind_all(kernel, [*outer, kernel.vectorize(inner, vector)], board)


def _reduction(kernel: Kernel, name: str, board: Board) -> None:
    """A work-item sums up a vector of values over the last spatial dimension."""
    schedule, block = kernel.schedule, kernel.block(name)
    kernel.operations += math.prod(kernel.extents(block))
    spatial, reduced = kernel.spatial_and_reduced(block, schedule.get_loops(block))
    if not spatial:
        spatial = [schedule.add_unit_loop(reduced[0])]
    length = vector_length(kernel.extent(spatial[-1]), _vector(kernel, block, board))
    last, vector = schedule.split(spatial[-1], [None, length])
    schedule.reorder(*spatial[:-1], last, *reduced, vector)
    if length > 1:
        schedule.vectorize(vector)
    _bind_all(kernel, [*spatial[:-1], last], board)
    schedule.decompose_reduction(block, reduced[0])


def _vector(kernel: Kernel, block: Any, board: Board) -> int:
    """How many of a block's values a work-item computes at a time: one if conditions are values.

    True is 1 in OpenCL C, but -1 in its vectors, and TVM mixes them up in casts, and in choices of a vector by one.
    """
    if computes_with_conditions(kernel, block):
        return 1
    return vector_width(device_of(board), kernel.widest(block))


def _bind_all(kernel: Kernel, loops: list[Any], board: Board) -> None:
    """Run loops as work-items, in groups of the size in the board's profile."""
    extents, device = list(map(kernel.extent, loops)), device_of(board)
    _bind(kernel, loops, group_parts(extents, group_size(math.prod(extents), device.work_group, device.units)))


def _bind(kernel: Kernel, loops: list[Any], parts: Sequence[int]) -> Any:
    """Run loops as work-items, in groups that take a part of each; returns the loop over a group's items."""
    schedule = kernel.schedule
    both = zip(loops, parts, strict=True)
    pairs = [schedule.split(loop, [None, part], preserve_unit_iters=True) for loop, part in both]
    groups, items = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    schedule.reorder(*groups, *items)
    schedule.bind(kernel.fused(groups), "blockIdx.x")
    item = kernel.fused(items)
    schedule.bind(item, "threadIdx.x")
    kernel.parallel = True
    return item


TEMPLATES = (
    Template("gpu convolution", is_convolution, _convolution),
    Template("gpu depthwise convolution", is_depthwise, _depthwise),
    Template("gpu product", is_product, _product),
    Template("gpu general", _has_loops, partial(schedule_blocks, reduction=_reduction, elementwise=_elementwise)),
)
