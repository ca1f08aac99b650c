"""What a core waits for memory, by the `core_model` of its board's profile; all costs are in cycles."""

from __future__ import annotations

from edgedeploy.target.board import Board, Costs

LINE = 64  # bytes of a cache line, on all processors that edgedeploy has profiles of
MEMORY_BYTES = 4  # bytes that arrive per cycle from beyond the L2 cache at most
_PAGE = 4096  # bytes of the pages that prefetchers do not look beyond
_UNFORESEEN = 2  # lines that are missed before a prefetcher foresees those after them at the same distance

# For cores without a model: the costs of Cortex-A72, whose board has the most similar caches.
_NEAR = Costs(foreseen=4, random=12, store=2)
_FAR = Costs(foreseen=14, random=120, store=30)


_CACHED = 0.75  # the part of the first cache that data to be read again may fill: other lines pass through it


def first_cache(board: Board) -> float:
    """The bytes that stay in the first cache until they are read again."""
    return _CACHED * board.cache.l1_kib * 1024


def near(board: Board) -> Costs:
    """The cost of lines from the L2 cache."""
    return board.core_model.l2 if board.core_model else _NEAR


def beyond(size: int, board: Board) -> Costs:
    """The cost of lines after `size` bytes were read or written: they are in the first cache that holds as many."""
    model = board.core_model
    if size <= board.cache.l2_kib * 1024:
        return near(board)
    if model and model.l3 and size <= model.l3.kib * 1024:
        return model.l3
    return model.memory if model else _FAR


def is_cached(size: int, board: Board) -> bool:
    """Whether a cache holds so many bytes."""
    model = board.core_model
    return size <= 1024 * max(board.cache.l2_kib, model.l3.kib if model and model.l3 else 0)


def reread(size: int, board: Board) -> float:
    """The cost of a line that is read again after so many bytes; from memory at least the cost of a store."""
    far = beyond(size, board)
    return far.foreseen if size <= board.cache.l2_kib * 1024 else max(far.foreseen, far.store)


def waiting(lines: float, distinct: float, beginnings: float, far: Costs, board: Board) -> float:
    """Cycles for lines that are loaded: `distinct` ones at the cost of `far`, and others from the L2 cache.

    No prefetcher foresees the `beginnings` among them.
    """
    close, new = near(board), distinct / lines
    random, foreseen = (new * far.random + (1 - new) * close.random), (new * far.foreseen + (1 - new) * close.foreseen)
    return lines * foreseen + beginnings * (random - foreseen)


def beginnings(run: int, distance: int) -> int:
    """Lines that no prefetcher foresees of a run of places so many bytes apart."""
    return run if distance >= _PAGE else min(run, _UNFORESEEN)


def with_reading(arithmetic: float, weights: float, board: Board) -> float:
    """Cycles of arithmetic whose weights, of so many bytes, come from memory once meanwhile.

    A core that reads ahead waits for less, as its `core_model` states, but at least as long as the memory takes.
    """
    foreseen = board.core_model.memory.foreseen if board.core_model else LINE / MEMORY_BYTES
    return max(arithmetic + weights / LINE * foreseen, weights / MEMORY_BYTES)
