"""Atrous convolutions leave out what reads nothing but padding, tile by tile."""

from __future__ import annotations

import pytest
from support.agreement import agreeing
from support.networks import Graph

from edgedeploy.compile.backends.cpu.schedules.dense import skipped
from edgedeploy.compile.ir.types import FLOAT32
from edgedeploy.compile.layers import Convolution
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.tiles import Tile

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
