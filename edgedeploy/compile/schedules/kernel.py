"""One fused function as the templates see it: its blocks, which of them does the work, and common steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import tvm
from tvm import te
from tvm.s_tir import Schedule, ScheduleError
from tvm.tirx import IterVar

from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.ir.types import LayerTypes, bits_of, lanes_for
from edgedeploy.compile.layers import AnyAnchorOp
from edgedeploy.compile.strategy import SHORT_SUM
from edgedeploy.compile.tiles import divisors, is_worth_threads, ravelled, vector_length
from edgedeploy.target.board import Board

Form = TypeVar("Form", bound=Configuration)


@dataclass(frozen=True)
class Packing:
    """How the constant for a scheduled function's parameter, by index, must be packed."""

    parameter: int
    pack: Callable[[np.ndarray], np.ndarray]
    form: Callable[[te.Tensor], te.Tensor] | None = None  # `pack`, to the last bit, when a network is loaded


def after(first: Packing | None, then: Packing | None) -> Packing | None:
    """Two packings of the same parameter, one after the other."""
    if first is None or then is None:
        return first or then
    assert first.parameter == then.parameter
    one, other = first.form, then.form
    form = (lambda constant: other(one(constant))) if one and other else None
    return Packing(first.parameter, lambda constant: then.pack(first.pack(constant)), form)


@dataclass
class Kernel:
    """A function being scheduled."""

    function: tvm.tirx.PrimFunc  # before it is scheduled
    packable: set[int]  # parameters, by index, whose values are constants that may be packed
    configuration: Configuration | None = None  # a template that chooses tiles without a layer sets it
    layer: AnyAnchorOp | None = None
    operations: int = 0  # of one call, as far as templates count them
    parallel: bool = False  # whether any part of it runs on all threads
    packing: Packing | None = None  # of the constant behind one of its parameters
    schedule: Schedule = field(init=False)
    names: list[str] = field(init=False)  # of its blocks, in the order in which they run
    accumulating: list[str] = field(init=False)  # the names of blocks that accumulate, in the same order

    def __post_init__(self) -> None:
        self.schedule = Schedule(self.function)
        self._list_blocks()
        self._inline_late_operands()

    def _list_blocks(self) -> None:
        blocks = [self.schedule.get(block) for block in self.schedule.get_child_blocks(self.block("root"))]
        self.names = [block.name_hint for block in blocks]
        self.accumulating = [block.name_hint for block in blocks if block.init is not None]

    def _inline_late_operands(self) -> None:
        """Inline blocks before the anchor that only its epilogue reads: templates take them for the anchor's operands.

        A residual times constants may be written before the product that it is added to.
        """
        anchor = self.anchor()
        if anchor is None:
            return
        epilogue = set(self.after(anchor))
        late: list[str] = []
        for name in reversed(self.before(anchor)):
            readers = {str(self.schedule.get(each).name_hint) for each in self.schedule.get_consumers(self.block(name))}
            if readers and readers <= epilogue | set(late):
                late.append(name)
        self.inline(late)
        self._list_blocks()

    def chosen(self, form: type[Form]) -> Form:
        """The configuration, which must be of the template's form."""
        assert isinstance(self.configuration, form)
        return self.configuration

    def block(self, name: str) -> Any:
        """The random variable of a block."""
        return self.schedule.get_sblock(name)

    def extent(self, loop: Any) -> int:
        """The length of a loop."""
        return int(self.schedule.get(loop).extent)

    def extents(self, block: Any) -> list[int]:
        """The lengths of the loops around a block, outermost first."""
        return [self.extent(loop) for loop in self.schedule.get_loops(block)]

    def spatial_and_reduced(self, block: Any, loops: list[Any]) -> tuple[list[Any], list[Any]]:
        """The loops over a block's results, and over the terms of one; none if loops are not its dimensions."""
        variables = self.schedule.get(block).iter_vars
        if len(variables) != len(loops):
            return [], []
        found: tuple[list[Any], list[Any]] = [], []
        for loop, variable in zip(loops, variables, strict=True):
            found[int(variable.iter_type) != IterVar.DataPar].append(loop)
        return found

    def anchor(self) -> str | None:
        """The block that accumulates; None unless exactly one does."""
        return self.accumulating[0] if len(self.accumulating) == 1 else None

    def before(self, name: str) -> list[str]:
        """The blocks that run before a block."""
        return self.names[: self.names.index(name)]

    def after(self, name: str) -> list[str]:
        """The blocks that run after a block."""
        return self.names[self.names.index(name) + 1 :]

    def read_shape(self, block: Any, read: int) -> list[int]:
        """The shape of a block's `read`-th input."""
        return [int(size) for size in self.schedule.get(block).reads[read].source.ty.shape]

    def dtypes(self, block: Any) -> list[str]:
        """The types of the buffers that a block reads and writes, in their order."""
        statement = self.schedule.get(block)
        return [str(region.source.ty.dtype) for region in (*statement.reads, *statement.writes)]

    def lanes(self, block: Any, board: Board) -> int:
        """How many values of a block's widest type a vector register holds."""
        return lanes_for(board, self.widest(block))

    def rate(self, block: Any, board: Board) -> float:
        """Arithmetic operations per cycle of a core in a block that multiplies and adds: half of its best."""
        return board.fma.per_cycle * self.lanes(block, board)

    def widest(self, block: Any) -> str:
        """The widest type that a block reads and writes; float32 for code without declared buffers."""
        return max(self.dtypes(block), key=bits_of, default="float32")

    def types(self, block: Any) -> LayerTypes:
        """The types of a block that accumulates products, and of the function's result."""
        data, *_, accumulator = dtypes = self.dtypes(block)
        return LayerTypes(data, dtypes[-2], accumulator, str(self.function.params[-1].ty.dtype))

    def inline(self, names: Iterable[str]) -> None:
        """Inline blocks."""
        for name in names:
            self.schedule.compute_inline(self.block(name))

    def output_of(self, anchor: str) -> Any:
        """The block that stores the anchor's results: its epilogue, inlined into one block, or a copy."""
        epilogue = self.after(anchor)
        if not epilogue:
            return self.schedule.cache_write(self.block(anchor), 0, "local")
        self.inline(epilogue[:-1])
        return self.block(epilogue[-1])

    def result_loops(self, anchor: str, output: Any) -> list[Any]:
        """The loops over the results of the anchor; rows of several dimensions are one loop if the anchor has one."""
        sums = self.block(anchor)
        first = len(self.spatial_and_reduced(sums, self.schedule.get_loops(sums))[0]) - 2
        self.ravel_rows(sums, output, first)
        return list(self.schedule.get_loops(output))

    def ravel_rows(self, sums: Any, output: Any, first: int = 0) -> None:
        """Write an output's loops from the `first` to the last but one, rows of several dimensions, as one loop."""
        extents = self.extents(output)
        rows = extents[first:-1]
        if len(rows) < 2:
            return

        def flat(*indices: tvm.tirx.Var) -> list[tvm.ir.Expr]:
            return [*indices[:first], ravelled(indices[first:-1], rows), indices[-1]]

        by_rows = tvm.tirx.IndexMap.from_func(flat, ndim=len(extents), index_dtype="int32")
        self.schedule.transform_block_layout(output, by_rows)
        # If a layout changes, TVM simplifies the indices that are read; without that, the row stays in parts.
        self.schedule.transform_layout(sums, ("write", 0), lambda *place: [*place])

    def needed_padding(self, anchor: str) -> list[str]:
        """The blocks that pad the anchor's input, unless all of them only copy: then they are inlined."""
        padding = self.before(anchor)
        if all(self.read_shape(block, 0) == self.extents(block) for block in map(self.block, padding)):
            self.inline(padding)
            return []
        return padding

    def pad(self, padding: list[str], task: Any | None, board: Board, *, together: int = 1, flat: bool = False) -> None:
        """Run the blocks that pad inside a task; or, if it is None, before anything else on all threads.

        Up to `together` vectors share one check whether a pixel is padding. They are `flat` if nothing is padded, so
        that vectors continue in the next pixel.
        """
        for name in padding:
            block = self.block(name)
            if task is not None:
                self.schedule.compute_at(block, task, preserve_unit_loops=flat)
            if flat:  # the loops over a row's pixels, their groups and channels
                self.schedule.fuse(*self.schedule.get_loops(block)[-3:])
            *around, values = self.schedule.get_loops(block)
            if task is None:
                self.schedule.parallel(self.schedule.fuse(*around))
            self.vectorize(values, together * self.lanes(block, board), unroll=task is not None and not flat)

    def vectorize(self, loop: Any, lanes: int, *, unroll: bool = False) -> Any:
        """Split a loop by the vector length that divides it, and vectorise the inner part; returns the outer one.

        Loops that read accumulators are unrolled: only constant indices leave them in registers.
        """
        length = vector_length(self.extent(loop), lanes)
        if length == 1:
            return loop
        outer, inner = self.schedule.split(loop, [None, length])
        self.schedule.vectorize(inner)
        if unroll:
            self.schedule.unroll(outer)
        return outer

    def unroll(self, loops: Iterable[Any]) -> None:
        """Unroll loops."""
        for loop in loops:
            self.schedule.unroll(loop)

    def unroll_tile(self, loops: list[Any], lanes: int) -> None:
        """Unroll the loops over a tile whose sums are in registers, the last one by vectors."""
        self.vectorize(loops[-1], lanes, unroll=True)
        self.unroll(loops[:-1])

    def spread(self, tasks: list[Any], tiles: list[Any], cores: int) -> None:
        """Turn the outermost loops over tiles into tasks too, until there is one for each core."""
        while tiles and math.prod(map(self.extent, tasks)) < cores:
            tasks.append(tiles.pop(0))

    def parallelize(self, loops: list[Any], operations: int, rate: float = 1) -> Any:
        """Fuse loops, and run them on all threads if a core, which does `rate` operations in a cycle, takes long."""
        fused = self.fused(loops)
        self.operations += operations
        if is_worth_threads(operations, rate) and self.extent(fused) > 1:
            self.schedule.parallel(fused)
            self.parallel = True
        return fused

    def fused(self, loops: list[Any]) -> Any:
        """One loop in the place of one or several."""
        return self.schedule.fuse(*loops) if len(loops) > 1 else loops[0]

    def partition(self, loop: Any) -> None:
        """Split a loop where conditions change: whole vectors stay vectors, and parts of a concat stay copies."""
        self.schedule.annotate(loop, "pragma_loop_partition_hint", 1)

    def accumulate(self, sums: Any, loop: Any, lanes: int, *, pixels: int, steps: int = 1) -> tuple[Any, list[Any]]:
        """As `accumulate_inside`, in half precision in short sums; returns the block that adds products, too."""
        schedule = self.schedule
        _, reduced = self.spatial_and_reduced(sums, schedule.get_loops(sums))
        part = self._part(reduced) if self.dtypes(sums)[-1] == "float16" else None
        if part is None:
            return sums, self.accumulate_inside(sums, loop, len(reduced), lanes, pixels=pixels, steps=steps)
        parts = schedule.rfactor(part, 0)
        schedule.compute_at(sums, loop, preserve_unit_loops=True)
        dimensions = len(schedule.get(sums).iter_vars)
        part, *of_tile = list(schedule.get_loops(sums)[-dimensions:])
        self.unroll_tile(of_tile[-1 - pixels :], lanes)
        count = len(schedule.get(parts).iter_vars) - dimensions
        loops = self.accumulate_inside(parts, part, count, lanes, pixels=pixels, steps=steps)
        schedule.decompose_reduction(sums, part)
        schedule.set_scope(sums, 0, "local")
        return parts, loops

    def _part(self, loops: list[Any]) -> Any:
        """The loop over the short sums of a long one; None for a short one, and for a prime number of terms."""
        outer, terms = list(loops), 1
        while outer and terms * self.extent(outer[-1]) <= SHORT_SUM:
            terms *= self.extent(outer.pop())
        if not outer:
            return None
        together = max(each for each in divisors(self.extent(outer[-1])) if each * terms <= SHORT_SUM)
        if together > 1:
            outer[-1], _ = self.schedule.split(outer[-1], [None, together])
        elif terms == 1:
            return None
        return self.fused(outer)

    def accumulate_inside(
        self, block: Any, loop: Any, reductions: int, lanes: int, *, pixels: int = 0, steps: int = 1
    ) -> list[Any]:
        """Compute a reduction inside the loop over its reader's tiles, with the accumulators in registers.

        The block's last spatial loop is vectorised and, like those before it that run over a tile's pixels, unrolled.
        Around them go the reduction's loops, which are returned, outermost first. The block's last `reductions` loops
        are these, and the `pixels` loops before the last spatial one run over pixels. `lanes` values fill a vector
        register; `steps` steps of the innermost reduction are written out.
        """
        schedule = self.schedule
        schedule.compute_at(block, loop, preserve_unit_loops=True)
        loops = schedule.get_loops(block)
        reduced, spatial = list(loops[-reductions:]), loops[:-reductions]
        if steps > 1:
            reduced[-1:] = schedule.split(reduced[-1], [None, steps])
            schedule.unroll(reduced[-1])
        vector, inner = schedule.split(spatial[-1], [None, vector_length(self.extent(spatial[-1]), lanes)])
        around = spatial[-1 - pixels : -1]
        schedule.reorder(*reduced, *around, vector, inner)
        if self.extent(inner) > 1:
            schedule.vectorize(inner)
        self.unroll([*around, vector])
        schedule.decompose_reduction(block, reduced[0])
        schedule.set_scope(block, 0, "local")
        return reduced


BlockSchedule = Callable[[Kernel, str, Board], None]  # schedules one block, by name


def pack(kernel: Kernel, convolution: Any, tile: int) -> None:
    """Pack constant weights in tiles of output channels: from [..., outputs] to [outputs / tile, ..., tile]."""
    source = kernel.schedule.get(convolution).reads[1].source
    parameter = next((index for index, each in enumerate(kernel.function.params) if each.same_as(source)), None)
    if parameter not in kernel.packable or tile == 1:
        return

    def index(*indices: tvm.tirx.Var) -> list[tvm.ir.Expr]:
        return [tvm.tirx.floordiv(indices[-1], tile), *indices[:-1], tvm.tirx.floormod(indices[-1], tile)]

    dimensions = len(kernel.read_shape(convolution, 1))
    kernel.schedule.transform_layout(convolution, ("read", 1), tvm.tirx.IndexMap.from_func(index, ndim=dimensions))

    def pack(weights: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(weights.reshape(*weights.shape[:-1], -1, tile), -2, 0))

    def form(weights: te.Tensor) -> te.Tensor:
        *others, channels = (int(extent) for extent in weights.shape)
        packed = channels // tile, *others, tile
        return te.compute(packed, lambda first, *rest: weights(*rest[:-1], first * tile + rest[-1]))

    kernel.packing = Packing(parameter, pack, form)


def schedule_blocks(kernel: Kernel, board: Board, reduction: BlockSchedule, elementwise: BlockSchedule) -> None:
    """Inline blocks that one other reads; schedule those left by `reduction` if they accumulate, or `elementwise`."""
    # Nothing is computed twice when one other block reads a block, except inside a window.
    for block in (kernel.block(name) for name in kernel.names if name not in kernel.accumulating):
        if len(kernel.schedule.get_consumers(block)) == 1:
            with suppress(ScheduleError):
                kernel.schedule.compute_inline(block)
    left = kernel.schedule.get_child_blocks(kernel.block("root"))
    for name in [str(kernel.schedule.get(block).name_hint) for block in left]:
        (reduction if name in kernel.accumulating else elementwise)(kernel, name, board)
