"""Orders of direct convolutions: what the first cache holds is used before it leaves."""

from pathlib import Path

import pytest
from support.agreement import assert_agrees
from support.layer_networks import convolution, is_of_layer

from edgedeploy.compile.backends import backend_of
from edgedeploy.compile.backends.cpu.configuration import Direct
from edgedeploy.compile.backends.cpu.orders import Way, choose_tile_and_order
from edgedeploy.compile.backends.cpu.tiles import ConvolutionShape, choose_order, choose_tile, written_out
from edgedeploy.compile.ir.types import FLOAT32
from edgedeploy.compile.pipeline import compile_network, optimise
from edgedeploy.compile.tiles import Tile, WeightOrder
from edgedeploy.target.board import load_board

LOCAL, RPI4, RPI5 = (load_board(name) for name in ("local", "rpi4", "rpi5"))
# This machine, asked for what a board whose caches are known is asked for.
MODELLED = LOCAL.model_copy(update={"core_model": RPI4.core_model})

# MobileNet's 1x1 layers, as size, inputs and outputs.
MOBILENET = [
    (112, 32, 64),
    (56, 64, 128),
    (56, 128, 128),
    (28, 128, 256),
    (28, 256, 256),
    (14, 256, 512),
    (14, 512, 512),
    (7, 512, 1024),
    (7, 1024, 1024),
]


def shape_of(size: int, inputs: int, outputs: int, kernel: int = 1) -> ConvolutionShape:
    return ConvolutionShape(size, size, outputs, (kernel, kernel), inputs, FLOAT32)


@pytest.mark.parametrize("board", [RPI4, RPI5], ids=["rpi4", "rpi5"])
@pytest.mark.parametrize("layer", MOBILENET)
def test_waiting_for_caches_is_a_small_part_of_a_layer(board, layer: tuple[int, int, int]) -> None:
    shape = shape_of(*layer)
    way = Way(shape, *choose_tile_and_order(shape, board), board)
    before = choose_tile(shape, board)
    assert way.cycles <= Way(shape, before, choose_order(shape, before, board), board).cycles
    assert way.waiting <= 0.11 * way.cycles


def test_weights_that_would_fill_the_first_cache_are_used_slice_by_slice() -> None:
    tile, order = choose_tile_and_order(shape_of(14, 512, 512), RPI4)
    assert order.by_channels
    assert 4 * 512 * tile.channels // order.slices <= 1024 * RPI4.cache.l1_kib // 2


def test_a_panel_of_pixels_uses_a_tile_s_weights_before_the_next_tile_s() -> None:
    tile, order = choose_tile_and_order(shape_of(56, 64, 128), RPI4)
    assert not order.by_channels
    assert order.panel * tile.columns == 56


def test_cores_without_a_model_have_tiles_by_arithmetic() -> None:
    shape = shape_of(14, 512, 512)
    tile = choose_tile(shape, LOCAL)
    assert choose_tile_and_order(shape, LOCAL.model_copy(update={"core_model": None})) == (
        tile,
        choose_order(shape, tile, LOCAL),
    )


SMALL, LARGE = Tile(1, 4, 8), Tile(1, 8, 12)


@pytest.mark.parametrize(
    ("steps", "tile", "written"), [(512, SMALL, 8), (512, LARGE, 4), (36, SMALL, 4), (34, SMALL, 2), (33, SMALL, 1)]
)
def test_steps_of_long_sums_are_written_out_as_far_as_registers_allow(steps: int, tile: Tile, written: int) -> None:
    assert written_out(steps, tile, FLOAT32, RPI4) == written
    assert written_out(steps, tile, FLOAT32, LOCAL.model_copy(update={"core_model": None})) == 1


def test_steps_of_short_sums_are_not() -> None:
    assert written_out(16, SMALL, FLOAT32, RPI4) == 1


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("kernel", "order", "rows"),
    [
        (1, WeightOrder(by_channels=True, slices=4), 5),
        (1, WeightOrder(panel=3), 1),
        (3, WeightOrder(panel=3), 5),
        (3, WeightOrder(by_channels=True, slices=3), 5),
    ],
)
def test_orders_give_the_reference_s_outputs(tmp_path: Path, kernel: int, order: WeightOrder, rows: int) -> None:
    """With tiles of two rows and three columns, of which the last are cropped."""
    network = convolution(tmp_path, 9, 64, 32, kernel, pads=[kernel // 2] * 4)
    layer = list(optimise(network, MODELLED).groups.values())[-1].layer
    chosen = Direct(tile=Tile(2, 3, 16), order=order, rows_per_task=rows)
    assert backend_of(MODELLED).strategy(layer).fits(chosen)
    compiled = compile_network(
        network, MODELLED, tuned=lambda workload: chosen if is_of_layer(workload, layer) else None
    )
    assert chosen in [entry.configuration for entry in compiled.functions.values() if entry.tuned]
    assert_agrees(compiled, network, 1e-4)


@pytest.mark.parametrize(
    "order", [WeightOrder(panel=2), WeightOrder(True, 1, 0, 3), WeightOrder(True, 5), WeightOrder(False, 2)]
)
def test_an_order_that_does_not_divide_a_layer_does_not_fit(tmp_path: Path, order: WeightOrder) -> None:
    """It has 3 tiles in a row, and 64 input channels."""
    layer = list(optimise(convolution(tmp_path, 9, 64, 32, 1), MODELLED).groups.values())[-1].layer
    chosen = Direct(tile=Tile(1, 3, 16), order=order, rows_per_task=9)
    assert not backend_of(MODELLED).strategy(layer).fits(chosen)
