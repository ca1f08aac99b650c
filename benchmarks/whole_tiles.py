"""Whole tiles of layers: the loop that sums up products, as often as it runs, and the code around it.

What the code around a sum does for each tile: zeros or biases to begin with, then activations or requantisation, and
stores. Copies that a task makes before its tiles are not part of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assembly import Loop, Nest
from mca import Analyser

from edgedeploy.compile.backends.cpu.configuration import Steps
from edgedeploy.compile.backends.cpu.integers import pixels as pixels_of
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.layers import AnyAnchorOp
from edgedeploy.compile.strategy import Strategy
from edgedeploy.compile.tiles import round_up


@dataclass(frozen=True)
class Work:
    """What one tile computes.

    Attributes:
        products: that its code multiplies.
        useful: those of them that the layer has: no padding of channels, no pixel that is cropped.
        loops: the lengths of the loops over the terms of its sums, the outermost first, where they are longer than 1.
    """

    products: int
    useful: float
    loops: tuple[int, ...]


@dataclass(frozen=True)
class WholeTile:
    """What a model predicts for a tile.

    Attributes:
        cycles: of the core.
        sums: those of them that the innermost loops take.
        stack_accesses: instructions that read or write it, as often as they run.
        useful: products of the layer.
    """

    cycles: float
    sums: float
    stack_accesses: float
    useful: float

    @property
    def products_per_cycle(self) -> float:
        """Of the layer."""
        return self.useful / self.cycles


def work_of(strategy: Strategy[AnyAnchorOp], configuration: Configuration) -> Work:
    """What a tile of a layer computes; weights are packed as they are multiplied."""
    layer, tile = strategy.layer, configuration.register_tile
    assert tile is not None
    pixels, deep = tile.rows * tile.columns, round_up(layer.channels, tile.channels)
    packed = strategy.form(configuration).shape
    terms = math.prod(packed) // deep
    size = pixels_of(layer, strategy.board) if isinstance(configuration, Steps) else layer.size
    tiles = layer.batch * math.prod(tile.whole(*size)) // pixels * (deep // tile.channels)
    kernel = layer.weights[:2] if len(layer.weights) == 4 else ()
    loops = *kernel, terms // math.prod(kernel)
    return Work(pixels * tile.channels * terms, layer.operations / 2 / tiles, tuple(each for each in loops if each > 1))


def tile_loops(nest: Nest) -> Iterator[Nest]:
    """The innermost loops that multiply and also store: each iteration computes a tile, or some that are alike."""
    found = [each for loop in nest.inner for each in tile_loops(loop)]
    yield from found
    if not found and nest.products and set(nest.own.stores) - set(nest.own.stack_accesses):
        yield nest


def predict_tile(tile: Nest, work: Work, analyser: Analyser) -> WholeTile:
    """What a model predicts for an iteration of a tile's loop, each part of it as if it ran steadily."""
    passes = [(loop, times) for loop, times in _passes(tile, work.products, work.loops) if loop.instructions]
    tiles = max(1.0, tile.products / work.products)
    times_taken = [(loop, times * analyser.cycles(loop)) for loop, times in passes]
    return WholeTile(
        cycles=sum(cycles for _, cycles in times_taken),
        sums=sum(cycles for loop, cycles in times_taken if loop.accumulates),
        stack_accesses=sum(times * len(loop.stack_accesses) for loop, times in passes),
        useful=work.useful * tiles,
    )


def _passes(nest: Nest, products: float, loops: Sequence[int], times: float = 1.0) -> Iterator[tuple[Loop, float]]:
    """The straight parts of a nest, and how often each runs.

    Args:
        nest: a tile's loop, or a loop in it.
        products: that one iteration multiplies.
        loops: over terms of the sums, of which those in it are.
        times: how often it runs.
    """
    yield nest.own, times
    left = products - nest.own.products
    # Of a loop that LLVM unrolled, what is left over follows it.
    for each in sorted(nest.inner, key=lambda inner: -inner.products):
        if not each.products:
            yield from _passes(each, 0, (), times)
            continue
        iterations = max(left, 0) // each.products if not each.inner else loops[0]
        done = iterations * each.products if not each.inner else left
        if iterations:
            yield from _passes(each, done / iterations, loops[1:], times * iterations)
        left -= done
