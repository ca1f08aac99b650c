"""Convolutions on CPUs: copies stay in the first cache, tasks read whole lines, tiles leave out their padding."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.agreement import agreeing, assert_agrees
from support.layer_networks import convolution, is_of_layer
from support.networks import Graph

from edgedeploy.compile.backends import backend_of
from edgedeploy.compile.backends.cpu.configuration import Depthwise
from edgedeploy.compile.backends.cpu.depthwise import Block
from edgedeploy.compile.backends.cpu.schedules.dense import skipped
from edgedeploy.compile.backends.cpu.traffic import LINE
from edgedeploy.compile.ir.types import FLOAT32
from edgedeploy.compile.layers import Convolution, DepthwiseConvolution
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.pipeline import compile_network, optimise
from edgedeploy.compile.tiles import Tile
from edgedeploy.target.board import Board, load_board

LOCAL = load_board("local")

# MobileNet's layers, as size, channels and stride.
MOBILENET = [(112, 32, 1), (112, 64, 2), (56, 128, 1), (56, 128, 2), (28, 256, 1), (14, 512, 1), (7, 1024, 1)]


def layer_of(size: int, channels: int, stride: int = 1, kernel: int = 3) -> DepthwiseConvolution:
    window = Window((kernel, kernel), (stride, stride), (1, 1), (kernel // 2,) * 4)
    shapes = {"data": (1, size, size, channels), "weights": (kernel, kernel, 1, channels)}
    return DepthwiseConvolution(**shapes, types=FLOAT32, constant=True, window=window)


def block_of(layer: DepthwiseConvolution, board: Board) -> Block:
    chosen = backend_of(board).strategy(layer).default()
    assert isinstance(chosen, Depthwise)
    return Block(layer, chosen)


@pytest.mark.parametrize("board", ["rpi3", "rpi4", "rpi5", "rpi-armhf", "visionfive2"])
@pytest.mark.parametrize(("size", "channels", "stride"), [*MOBILENET, (237, 8, 1), (160, 24, 1), (119, 16, 2)])
@pytest.mark.parametrize("kernel", [3, 5])
def test_copies_stay_in_the_first_cache(board: str, size: int, channels: int, stride: int, kernel: int) -> None:
    profile = load_board(board)
    block = block_of(layer_of(size, channels, stride, kernel), profile)
    assert 0 < block.copied_bytes <= 0.75 * 1024 * profile.cache.l1_kib


@pytest.mark.parametrize("board", ["rpi4", "rpi5"])
@pytest.mark.parametrize(("size", "channels", "stride"), MOBILENET)
def test_a_task_reads_whole_lines(board: str, size: int, channels: int, stride: int) -> None:
    block = block_of(layer_of(size, channels, stride), load_board(board))
    assert block.channels * 4 % LINE == 0
    assert block.tasks >= load_board(board).cores


def test_planes_are_read_row_by_row_where_prefetchers_would_lose_narrower_blocks() -> None:
    assert block_of(layer_of(56, 128), load_board("rpi4")).form.tasks_across == 1


def test_a_plane_whose_rows_exceed_the_first_cache_is_cut_into_columns() -> None:
    assert block_of(layer_of(1024, 16), load_board("rpi4")).form.tasks_across > 1


@pytest.mark.compiles
@pytest.mark.parametrize(("stride", "rows", "deep"), [(1, 4, 2), (1, 12, 1), (2, 3, 4)])
def test_blocks_of_columns_give_the_reference_s_outputs(tmp_path: Path, stride: int, rows: int, deep: int) -> None:
    """With a stride of 1 there are 11 columns, and the last tile of a row is cropped."""
    size = 12 if stride == 1 else 11
    network = convolution(
        tmp_path, size, 32, 32, 3, group=32, pads=[1, 1, 1, 0 if stride == 1 else 1], strides=[stride] * 2
    )
    layer = list(optimise(network, LOCAL).groups.values())[-1].layer
    chosen = Depthwise(tile=Tile(1, 3, 8), rows_per_task=rows, tasks_deep=deep, tasks_across=2, copied=True)
    assert backend_of(LOCAL).strategy(layer).fits(chosen)
    compiled = compile_network(network, LOCAL, tuned=lambda workload: chosen if is_of_layer(workload, layer) else None)
    assert chosen in [entry.configuration for entry in compiled.functions.values() if entry.tuned]
    assert_agrees(compiled, network, 1e-4)


# Atrous convolutions leave out what reads nothing but padding, tile by tile.

CHANNELS = 32


def layer(size: int, padding: int) -> Convolution:
    window = Window((3, 3), (1, 1), (padding, padding), (padding,) * 4)
    return Convolution(data=(1, size, size, 8), weights=(3, 3, 8, 16), types=FLOAT32, constant=True, window=window)


@pytest.mark.parametrize(
    ("size", "padding", "tile", "wanted"),
    [
        (20, 12, Tile(1, 1, 16), 1 - 0.6**2),  # 20 - 12 of 20 places meet a pixel before, and behind
        (20, 12, Tile(1, 5, 16), 1 - 0.6 * 8 / 12),
        (20, 12, Tile(1, 20, 16), 0.4),
        (56, 1, Tile(1, 14, 16), 2 / (3 * 56)),
    ],
)
def test_what_is_left_out_is_counted(size: int, padding: int, tile: Tile, wanted: float) -> None:
    assert skipped(layer(size, padding), tile) == pytest.approx(wanted)


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("size", "dilations", "pads", "strides", "outputs"),
    [
        ((20, 20), [12, 12], [12, 12, 12, 12], [1, 1], 32),
        ((19, 14), [9, 5], [9, 5, 7, 6], [1, 1], 64),
        ((23, 21), [8, 10], [10, 9, 6, 11], [2, 3], 48),
        ((20, 20), [6, 6], [6, 6, 6, 6], [1, 1], 1024),  # weights come slice by slice
    ],
    ids=str,
)
def test_atrous_convolutions(
    size: tuple[int, int], dilations: list[int], pads: list[int], strides: list[int], outputs: int
) -> None:
    graph = Graph()
    first = graph.node("Conv", graph.input("data", [1, 3, *size]), graph.normal(CHANNELS, 3, 1, 1))
    weights = graph.normal(outputs, CHANNELS, 3, 3)
    atrous = graph.node("Conv", first, weights, dilations=dilations, pads=pads, strides=strides)
    compiled = agreeing(graph, graph.node("ReduceMax", graph.node("Relu", atrous), axes=[2, 3]))
    [function] = [
        entry.function for name, entry in compiled.functions.items() if "conv2d" in name and "nchw" not in name
    ]
    assert " if " in function.script().replace("if_then_else", "")


@pytest.mark.compiles
def test_layers_with_little_padding_ask_nothing() -> None:
    graph = Graph()
    first = graph.node("Conv", graph.input("data", [1, 3, 40, 40]), graph.normal(CHANNELS, 3, 1, 1))
    plain = graph.node("Conv", first, graph.normal(CHANNELS, CHANNELS, 3, 3), pads=[1] * 4, strides=[2, 2])
    compiled = agreeing(graph, plain)
    assert not any(" if " in entry.function.script() for entry in compiled.functions.values())
