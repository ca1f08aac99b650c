"""Layers of any types, through the templates: what is computed, tiles, padding and rounding follow from their types."""

from __future__ import annotations

import itertools
import math
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.layer_runs import computed_and_exact, relative_error

from edgedeploy.compile.backends import backend_of
from edgedeploy.compile.backends.cpu import winograd
from edgedeploy.compile.backends.cpu.tiles import (
    ConvolutionShape,
    choose_order,
    choose_tile,
    direct_cycles,
    tile_registers,
    vector_to_prefetch,
)
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.ir.types import FLOAT32, LayerTypes, bits_of, is_floating, unit_roundoff
from edgedeploy.compile.layers import (
    AnyAnchorOp,
    BatchMatmul,
    Convolution,
    Dense,
    DepthwiseConvolution,
    FirstConvolution,
)
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.rounding import ROUNDING
from edgedeploy.compile.tiles import Tile
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles

LOCAL = load_board("local")

HALF = LayerTypes("float16", "float16", "float32", "float32")
HALF_STORED = LayerTypes("float16", "float16", "float32", "float16")
DOUBLE = LayerTypes.uniform("float64")
INTEGER = LayerTypes("uint8", "int8", "int32", "int32")

ZERO_POINT = 131


def window(kernel: int, types: LayerTypes, stride: int = 1) -> Window:
    value = 0.0 if is_floating(types.data) else float(ZERO_POINT)
    return Window((kernel, kernel), (stride, stride), (1, 1), (kernel // 2,) * 4, value)


def layers(types: LayerTypes) -> dict[str, AnyAnchorOp]:
    common: dict[str, Any] = {"types": types, "constant": True}
    computed: dict[str, Any] = {"types": types, "constant": False}
    return {
        "convolution": Convolution(data=(1, 11, 13, 24), weights=(3, 3, 24, 48), window=window(3, types), **common),
        "by channels": Convolution(data=(1, 7, 7, 64), weights=(3, 3, 64, 256), window=window(3, types), **common),
        "first": FirstConvolution(data=(1, 3, 20, 27), weights=(3, 3, 3, 32), window=window(3, types, 2), **common),
        "depthwise": DepthwiseConvolution(
            data=(1, 9, 14, 48), weights=(5, 5, 1, 48), window=window(5, types), **common
        ),
        "dense": Dense(data=(6, 80), weights=(80, 40), **common),
        "a prime number of rows": Dense(data=(197, 64), weights=(64, 50), **common),
        "rows of three dimensions": Dense(data=(2, 7, 9, 33), weights=(33, 21), **common),
        "batch": BatchMatmul(data=(2, 3, 37, 20), weights=(2, 3, 20, 64), transposed=False, **computed),
        "batch with a tail": BatchMatmul(data=(3, 37, 20), weights=(3, 20, 41), transposed=False, **computed),
        "transposed batch": BatchMatmul(data=(2, 37, 20), weights=(2, 41, 20), transposed=True, **computed),
        "broadcast batch": BatchMatmul(data=(4, 1, 5, 6), weights=(3, 6, 7), transposed=False, **computed),
        "one matrix": BatchMatmul(data=(3, 17, 6), weights=(6, 48), transposed=False, **computed),
    }


def check(layer: AnyAnchorOp, chosen: Configuration, folder: Path) -> None:
    """The layer is exact in integers unless floats sum them up, elsewhere as far from it as estimated errors say."""
    types, rounding = layer.types, backend_of(LOCAL).strategy(layer).rounding(chosen)
    found, wanted = computed_and_exact(layer, chosen, folder)
    assert (str(found.dtype), found.shape) == (types.result, wanted.shape)
    if is_floating(types.accumulator):
        assert relative_error(found, wanted) <= 1.3 * math.sqrt(rounding)
    else:
        assert np.abs(found - wanted).max() <= (1 if rounding else 0)


@pytest.mark.quick(*(f"*-{'-'.join(astuple(types))}" for types in (HALF_STORED, INTEGER)))
@pytest.mark.parametrize("types", [FLOAT32, HALF, DOUBLE, HALF_STORED, INTEGER], ids=lambda it: "-".join(astuple(it)))
@pytest.mark.parametrize("name", layers(FLOAT32))
def test_a_layer_computes_what_its_types_say(tmp_path: Path, name: str, types: LayerTypes) -> None:
    layer = layers(types)[name]
    check(layer, backend_of(LOCAL).strategy(layer).default(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("types", [HALF_STORED, INTEGER], ids=["half", "integer"])
@pytest.mark.parametrize("name", layers(FLOAT32))
def test_it_does_in_all_its_configurations(tmp_path: Path, name: str, types: LayerTypes) -> None:
    layer = layers(types)[name]
    for index, chosen in enumerate([*backend_of(LOCAL).strategy(layer).candidates()][::37]):
        (folder := tmp_path / str(index)).mkdir()
        check(layer, chosen, folder)


@pytest.mark.parametrize("size", [2, 4])
def test_winograd_s_transforms_are_in_the_type_of_the_sums(tmp_path: Path, size: int) -> None:
    types = LayerTypes("float16", "float32", "float32", "float32")
    layer = layers(types)["convolution"]
    assert isinstance(layer, Convolution)
    check(layer, winograd.best_plan([size], ConvolutionShape(11, 13, 48, (3, 3), 24, types), LOCAL), tmp_path)


def test_only_what_winograd_was_measured_for_is_computed_so() -> None:
    forms = {
        types.data: {each.form for each in backend_of(LOCAL).strategy(layers(types)["convolution"]).candidates()}
        for types in (FLOAT32, HALF, DOUBLE, INTEGER)
    }
    assert forms == {
        "float32": {"direct", "winograd"},
        "float16": {"direct"},
        "float64": {"direct"},
        "uint8": {"steps", "winograd"},
    }


@pytest.mark.parametrize(
    ("types", "lanes"),
    [(FLOAT32, 4), (LayerTypes.uniform("float16"), 8), (HALF, 4), (INTEGER, 4), (DOUBLE, 2)],
    ids=str,
)
def test_registers_hold_sums(types: LayerTypes, lanes: int) -> None:
    board = load_board("rpi4")
    tile = choose_tile(ConvolutionShape(56, 56, 64, (3, 3), 64, types), board)
    vectors = tile.channels // lanes
    assert tile.channels % lanes == 0
    assert tile.rows * tile.columns * vectors + vectors + 1 <= tile_registers(board)
    assert tile.rows * tile.columns * vectors >= 16  # as many sums as hide the multiply-adds' latency
    assert vector_to_prefetch(types, LOCAL) == LOCAL.vector.bits // bits_of(types.accumulator)


def test_the_bytes_of_weights_say_what_fits_the_caches() -> None:
    board = LOCAL.model_copy(update={"cache": LOCAL.cache.model_copy(update={"l2_kib": 1024})})
    tile = Tile(1, 7, 32)
    slices = {
        types.weights: choose_order(ConvolutionShape(7, 7, 512, (3, 3), 512, types), tile, board).slices
        for types in (FLOAT32, HALF, INTEGER)
    }
    assert slices == {"float32": 3, "float16": 3, "int8": 1}  # 576, 288 and 144 KiB for a tile
    cycles = [
        direct_cycles(ConvolutionShape(1, 1, 4096, (1, 1), 4096, types), LOCAL) for types in (FLOAT32, HALF, INTEGER)
    ]
    assert [first - second for first, second in itertools.pairwise(cycles)] == pytest.approx([2 * 2**24 / 4, 2**24 / 4])


def test_a_narrower_result_is_one_more_rounding() -> None:
    wide, narrow = (backend_of(LOCAL).strategy(layers(types)["convolution"]) for types in (HALF, HALF_STORED))
    last = narrow.rounding(narrow.default()) - wide.rounding(wide.default())
    assert last == pytest.approx(ROUNDING * unit_roundoff("float16") ** 2)
    integers = backend_of(LOCAL).strategy(layers(INTEGER)["convolution"])
    assert integers.rounding(integers.default()) == 0
