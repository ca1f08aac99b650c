"""One fused function as the templates see it: its blocks, which of them does the work, and common steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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
from edgedeploy.compile.tiles import is_worth_threads, ravelled, vector_length
from edgedeploy.target.board import Board

Form = TypeVar("Form", bound=Configuration)


@dataclass(frozen=True)
class Packing:
    """How a constant must be packed before it is passed to a scheduled function.

    Attributes:
        parameter: the function's parameter, by index.
        form: `pack`, to the last bit, as code that may run when a network is loaded; None without such code.
    """

    parameter: int
    pack: Callable[[np.ndarray], np.ndarray]
    form: Callable[[te.Tensor], te.Tensor] | None = None


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
    """A function being scheduled.

    Attributes:
        function: before it is scheduled.
        packable: parameters, by index, whose values are constants that may be packed.
        configuration: of the layer in it; a template that chooses tiles without a layer sets it.
        names: the names of its blocks, in the order in which they run.
        operations: arithmetic operations of one call, as far as templates count them.
        parallel: whether any part of it runs on all threads.
    """

    function: tvm.tirx.PrimFunc
    packable: set[int]
    configuration: Configuration | None = None
    layer: AnyAnchorOp | None = None
    operations: int = 0
    parallel: bool = False
    schedule: Schedule = field(init=False)
    names: list[str] = field(init=False)
    _accumulating: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.schedule = Schedule(self.function)
        self._list_blocks()
        if self._inline_late_operands():
            self._list_blocks()

    def _list_blocks(self) -> None:
        root = self.schedule.get_sblock("root")
        blocks = [self.schedule.get(block) for block in self.schedule.get_child_blocks(root)]
        self.names = [block.name_hint for block in blocks]
        self._accumulating = {block.name_hint for block in blocks if block.init is not None}

    def _inline_late_operands(self) -> bool:
        """Inline blocks before the anchor that only its epilogue reads.

        A residual times constants may be written before the product that it is added to. Templates take the blocks
        before an anchor for its operands.
        """
        anchor = self.anchor()
        if anchor is None:
            return False
        epilogue = set(self.after(anchor))
        late: list[str] = []
        for name in reversed(self.before(anchor)):
            readers = {str(self.schedule.get(each).name_hint) for each in self.schedule.get_consumers(self.block(name))}
            if readers and readers <= epilogue | set(late):
                late.append(name)
        self.inline(late)
        return bool(late)

    def chosen(self, form: type[Form]) -> Form:
        """The configuration, which must be of the template's form."""
        assert isinstance(self.configuration, form)
        return self.configuration

    def block(self, name: str) -> Any:
        """The random variable of a block."""
        return self.schedule.get_sblock(name)

    def extents(self, block: Any) -> list[int]:
        """The lengths of the loops around a block, outermost first."""
        return [int(self.schedule.get(loop).extent) for loop in self.schedule.get_loops(block)]

    def spatial_and_reduced(self, block: Any, loops: list[Any]) -> tuple[list[Any], list[Any]]:
        """The loops around a block over its results, and those over the terms of a result.

        Both are empty if the loops are not the dimensions of the block, one by one.
        """
        kinds = [int(variable.iter_type) for variable in self.schedule.get(block).iter_vars]
        if len(kinds) != len(loops):
            return [], []
        spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == IterVar.DataPar]
        return spatial, [loop for loop, kind in zip(loops, kinds, strict=True) if kind != IterVar.DataPar]

    def is_reduction(self, name: str) -> bool:
        """Whether a block accumulates."""
        return name in self._accumulating

    def anchor(self) -> str | None:
        """The block that accumulates; None unless exactly one does."""
        reductions = [name for name in self.names if self.is_reduction(name)]
        return reductions[0] if len(reductions) == 1 else None

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

        def flat(*indices: tvm.tirx.Var) -> list[tvm.tirx.PrimExpr]:
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

    def pad_inside(self, padding: list[str], loop: Any, board: Board, *, together: int = 1, flat: bool = False) -> None:
        """Run the blocks that pad inside a loop, by full vectors.

        Up to `together` vectors of a pixel share one check whether it is padding; `flat` if nothing is padded, so that
        vectors continue in the next pixel.
        """
        for name in padding:
            block = self.block(name)
            self.schedule.compute_at(block, loop, preserve_unit_loops=flat)
            values = self._row(block) if flat else self.schedule.get_loops(block)[-1]
            self.vectorize(values, together * self.lanes(block, board), unroll=not flat)

    def pad_first(self, padding: list[str], board: Board, *, flat: bool = False) -> None:
        """Run the blocks that pad before anything else, on all threads; `flat` as in `pad_inside`."""
        for name in padding:
            block = self.block(name)
            if flat:
                self._row(block)
            self.schedule.parallel(self.schedule.fuse(*self.schedule.get_loops(block)[:-1]))
            self.vectorize(self.schedule.get_loops(block)[-1], self.lanes(block, board))

    def _row(self, block: Any) -> Any:
        """One loop over the pixels of a row, their groups and channels."""
        return self.schedule.fuse(*self.schedule.get_loops(block)[-3:])

    def vectorize(self, loop: Any, lanes: int, *, unroll: bool = False) -> Any:
        """Split a loop by the vector length that divides it, and vectorise the inner part.

        Loops that read accumulators are unrolled: only constant indices leave them in registers.

        Returns:
            The loop over vectors; the loop itself if a vector would have one value.
        """
        length = vector_length(int(self.schedule.get(loop).extent), lanes)
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
        while tiles and math.prod(int(self.schedule.get(loop).extent) for loop in tasks) < cores:
            tasks.append(tiles.pop(0))

    def parallelize(self, loops: list[Any], operations: int, rate: float = 1) -> Any:
        """Fuse loops and run them on all threads, if the work is worth it; returns the fused loop.

        A core does `rate` of the arithmetic `operations` in a cycle.
        """
        fused = self.schedule.fuse(*loops) if len(loops) > 1 else loops[0]
        self.operations += operations
        if is_worth_threads(operations, rate) and int(self.schedule.get(fused).extent) > 1:
            self.schedule.parallel(fused)
            self.parallel = True
        return fused

    def partition(self, loop: Any) -> None:
        """Split a loop so that conditions that only some of its iterations need are in loops of their own.

        So whole vectors stay vectors if they do not divide a length, and parts of a concat stay copies.
        """
        self.schedule.annotate(loop, "pragma_loop_partition_hint", 1)

    def accumulate_inside(
        self, block: Any, loop: Any, reductions: int, lanes: int, *, pixels: int = 0, steps: int = 1
    ) -> list[Any]:
        """Compute a reduction inside the loop over its tiles, with the accumulators in registers.

        The block's last spatial loop is vectorised and, like those before it that run over a tile's pixels,
        unrolled; the reduction's loops go around them.

        Args:
            block: the block that accumulates.
            loop: the innermost loop over tiles of the block that reads its results.
            reductions, pixels: how many of the block's last loops are reductions, and run over pixels before them.
            lanes: values in a vector register.
            steps: how many steps of the innermost reduction's loop are written out.

        Returns:
            The reduction's loops, outermost first.
        """
        schedule = self.schedule
        schedule.compute_at(block, loop, preserve_unit_loops=True)
        loops = schedule.get_loops(block)
        reduced, spatial = list(loops[-reductions:]), loops[:-reductions]
        if steps > 1:
            reduced[-1:] = schedule.split(reduced[-1], [None, steps])
            schedule.unroll(reduced[-1])
        vector, inner = schedule.split(spatial[-1], [None, vector_length(int(schedule.get(spatial[-1]).extent), lanes)])
        around = spatial[-1 - pixels : -1]
        schedule.reorder(*reduced, *around, vector, inner)
        if int(schedule.get(inner).extent) > 1:
            schedule.vectorize(inner)
        self.unroll([*around, vector])
        schedule.decompose_reduction(block, reduced[0])
        schedule.set_scope(block, 0, "local")
        return reduced


# Schedules one block, by name.
BlockSchedule = Callable[[Kernel, str, Board], None]


def pack(kernel: Kernel, convolution: Any, tile: int) -> Packing | None:
    """Pack constant weights in tiles of output channels: from [..., outputs] to [outputs / tile, ..., tile]."""
    source = kernel.schedule.get(convolution).reads[1].source
    parameter = next((index for index, each in enumerate(kernel.function.params) if each.same_as(source)), None)
    if parameter not in kernel.packable or tile == 1:
        return None

    def index(*indices: tvm.tirx.Var) -> list[tvm.tirx.PrimExpr]:
        *others, channel = indices
        return [tvm.tirx.floordiv(channel, tile), *others, tvm.tirx.floormod(channel, tile)]

    dimensions = len(kernel.read_shape(convolution, 1))
    kernel.schedule.transform_layout(convolution, ("read", 1), tvm.tirx.IndexMap.from_func(index, ndim=dimensions))

    def pack(weights: np.ndarray) -> np.ndarray:
        tiles = weights.reshape(*weights.shape[:-1], -1, tile)
        return np.ascontiguousarray(np.moveaxis(tiles, -2, 0))

    def form(weights: te.Tensor) -> te.Tensor:
        *others, channels = (int(extent) for extent in weights.shape)
        return te.compute(
            (channels // tile, *others, tile), lambda first, *rest: weights(*rest[:-1], first * tile + rest[-1])
        )

    return Packing(parameter, pack, form)


def schedule_blocks(kernel: Kernel, board: Board, reduction: BlockSchedule, elementwise: BlockSchedule) -> None:
    """Inline blocks that one other block reads, and schedule each remaining block by itself.

    `reduction` schedules a block that accumulates, and `elementwise` any other.
    """
    _inline_single_uses(kernel)
    left = kernel.schedule.get_child_blocks(kernel.schedule.get_sblock("root"))
    for name in [str(kernel.schedule.get(block).name_hint) for block in left]:
        (reduction if kernel.is_reduction(name) else elementwise)(kernel, name, board)


def _inline_single_uses(kernel: Kernel) -> None:
    """Inline blocks that one other block reads: nothing is computed twice by that, except inside a window."""
    schedule = kernel.schedule
    for name in kernel.names:
        block = kernel.block(name)
        if kernel.is_reduction(name) or len(schedule.get_consumers(block)) != 1:
            continue
        try:
            schedule.compute_inline(block)
        except ScheduleError:
            continue
