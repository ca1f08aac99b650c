"""Everything else, block by block: pools, means, softmax, resize, concat, transposes, elementwise chains."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from tvm import tirx

from edgedeploy.compile.passes.legalisation import register_reducers
from edgedeploy.compile.schedules import SHORTEST_VECTOR, access
from edgedeploy.compile.schedules.kernel import Kernel, schedule_blocks
from edgedeploy.compile.tiles import divisors, vector_length
from edgedeploy.target.board import Board

LONGEST_SUM = 100  # sums over several dimensions of more terms than this are summed up part by part


def apply(kernel: Kernel, board: Board) -> None:
    """Schedule block by block."""
    schedule_blocks(kernel, board, _schedule_reduction, schedule_elementwise)


def schedule_elementwise(kernel: Kernel, name: str, board: Board) -> None:
    """Vectorise the innermost loop, fused with others as long as memory is contiguous."""
    schedule, block = kernel.schedule, kernel.block(name)
    lanes = kernel.lanes(block, board)
    if not schedule.get_loops(block):
        return
    extents = kernel.extents(block)
    elements = math.prod(extents)
    strided, cuts = access.strided_loop(kernel, block), access.boundaries(kernel, block)
    members = access.fuse_contiguous(kernel, block)
    *tasks, inner = schedule.get_loops(block)
    along = members[-1] if members else []
    if tasks and kernel.extent(inner) < SHORTEST_VECTOR:
        # Too short for vectors: one long loop, whose values are partly gathered.
        tasks, inner, strided = [], schedule.fuse(*tasks, inner), None
        along = [each for group in members for each in group]
    extent = kernel.extent(inner)
    partitioned = not access.computes_indices(kernel, block) and access.is_partitioned_alike(kernel, block, along)
    length = best_length(extent, lanes, cuts) if partitioned else vector_length(extent, lanes)
    if access.combines_stored_conditions(kernel, block):
        length = 1
    whole = whole_vectors([extents[each] for each in along], length)
    if whole < extent:
        outer, inner = schedule.split(inner, [None, whole])
        tasks.append(outer)
    chunk, vector = schedule.split(inner, [None, length])
    if kernel.extent(vector) > 1:
        schedule.vectorize(vector)
    if strided is not None and strided not in members[-1]:
        # Neighbours along the other buffer's memory come right after each other: each line of it is read once.
        number = next(index for index, group in enumerate(members) if strided in group)
        together = max(count for count in divisors(kernel.extent(tasks[number])) if count <= lanes)
        tasks[number], along = schedule.split(tasks[number], [None, together])
        schedule.reorder(*tasks, chunk, along, vector)
    if math.prod(map(kernel.extent, tasks)) == 1:
        tasks, chunk = [], kernel.fused([*tasks, chunk])
    if partitioned:
        kernel.partition(chunk)
    kernel.parallelize(tasks or [chunk], elements, lanes / 4)  # loads and stores, besides the arithmetic


def best_length(extent: int, lanes: int, boundaries: Sequence[int] = ()) -> int:
    """The vector length that needs the fewest steps for a loop of length `extent`, with the remainder one by one.

    At `boundaries` along the loop another buffer is read: a vector across one is computed in scalar code.
    """

    def steps(length: int) -> int:
        cut = len({boundary // length for boundary in boundaries if boundary % length})
        return extent // length + extent % length + 2 * cut * length

    lengths = [length for shift in range(lanes.bit_length()) if (length := lanes >> shift) <= extent]
    return min(lengths, key=lambda length: (steps(length), extent % length > 0, -length))


def whole_vectors(extents: Sequence[int], length: int) -> int:
    """Of fused loops, the elements of the fewest inner ones that whole vectors cover; of all, if they cover rows.

    For a vector that continues in the next row, TVM simplifies the indices of dimensions that whole vectors cover, and
    not the others. They do not add up to a place in memory any more: values would be gathered.
    """
    elements = list(accumulate(reversed(extents), operator.mul))
    if not elements or elements[0] % length == 0:
        return math.prod(extents)
    return next((each for each in elements if each % length == 0), elements[-1])


def _schedule_reduction(kernel: Kernel, name: str, board: Board) -> None:
    """Put the reduction inside the spatial loops, with vectors over the last spatial dimension."""
    schedule, block = kernel.schedule, kernel.block(name)
    lanes = kernel.lanes(block, board)
    loops, extents = schedule.get_loops(block), kernel.extents(block)
    spatial, reduced = kernel.spatial_and_reduced(block, loops)
    if not spatial or not reduced:
        return
    one_result = len(schedule.get(block).writes) == 1
    along = access.runs_along_memory(kernel, block, loops.index(reduced[-1]))
    if one_result and along and extents[-1] >= 2 * lanes > 2:
        alike = access.is_partitioned_alike(kernel, block, [loops.index(reduced[-1])])
        _schedule_sum_of_lanes(kernel, block, spatial, reduced[-1], lanes, partitioned=alike)
        return
    alike = access.is_partitioned_alike(kernel, block, [loops.index(spatial[-1])])
    parts = None
    if one_result and len(reduced) > 1 and math.prod(extents[len(spatial) :]) > LONGEST_SUM and _is_sum(kernel, block):
        parts = schedule.rfactor(reduced[0], factor_axis=0)
        reduced = schedule.get_loops(block)[len(spatial) :]
        spatial = schedule.get_loops(block)[: len(spatial)]
    length = best_length(kernel.extent(spatial[-1]), lanes)
    last, vector = schedule.split(spatial[-1], [None, length])
    schedule.reorder(*spatial[:-1], last, *reduced, vector)
    if length > 1:
        schedule.vectorize(vector)
    tasks = [*spatial[:-1], last]
    if extents[len(spatial) - 1] % length:
        if alike:
            kernel.partition(last)
        tasks = [last] if math.prod(extents[: len(spatial) - 1]) == 1 else spatial[:-1]
    kernel.parallelize(tasks, math.prod(extents), lanes / 4)
    if parts is not None:
        _schedule_parts(kernel, parts, reduced[0], length)
    schedule.decompose_reduction(block, reduced[0])


def _is_sum(kernel: Kernel, block: Any) -> bool:
    """Whether a reduction adds up floats, so that it rounds each of its steps."""
    value = getattr(kernel.schedule.get(block).body, "value", None)
    return isinstance(value, tirx.Add) and str(value.ty.dtype).startswith("float")


def _schedule_parts(kernel: Kernel, block: Any, loop: Any, length: int) -> None:
    """Let each step of a sum add up a part of its terms first, in registers.

    One long sum would gather rounding errors in proportion to its length: if all terms are alike, as thousands of
    pixels of an even image, all errors have the same sign.
    """
    schedule = kernel.schedule
    schedule.compute_at(block, loop, preserve_unit_loops=True)
    schedule.set_scope(block, 0, "local")
    loops = schedule.get_loops(block)[-len(schedule.get(block).iter_vars) :]
    spatial, reduced = kernel.spatial_and_reduced(block, loops)
    schedule.reorder(*reduced, spatial[-1])
    if length > 1:
        schedule.vectorize(spatial[-1])
    schedule.decompose_reduction(block, reduced[0])


def _schedule_sum_of_lanes(
    kernel: Kernel, block: Any, spatial: list[Any], reduced: Any, lanes: int, *, partitioned: bool
) -> None:
    """Compute a row's sum or maximum as one vector of partial ones, whose lanes are combined at its end."""
    schedule = kernel.schedule
    elements = math.prod(kernel.extents(block))
    _, lane = schedule.split(reduced, [None, lanes])
    register_reducers()
    partial = schedule.rfactor(lane, factor_axis=len(spatial))
    loops = schedule.get_loops(partial)
    rows, terms, lane = loops[: len(spatial)], loops[len(spatial) : -1], loops[-1]
    schedule.vectorize(lane)
    if partitioned:
        kernel.partition(terms[-1])
    row = kernel.parallelize(rows, elements, lanes / 4)
    schedule.decompose_reduction(partial, terms[0])
    schedule.reverse_compute_at(block, row)
    schedule.decompose_reduction(block, schedule.get_loops(block)[-1])
