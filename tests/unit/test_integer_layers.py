"""Layers of integers by the inner steps of each CPU: exact, with the instruction that their names say."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from arm_loops import look_at_tiles
from assembly import innermost_loops
from layers import Layer, quantised
from support.cpus import need_cpu
from support.layer_runs import Case, random_case, results, window
from support.predictions import needs_mca
from unit.test_integer_steps import BOARDS

from edgedeploy.compile.backends import host_of
from edgedeploy.compile.backends.cpu.configuration import Columns, Depthwise, Steps
from edgedeploy.compile.backends.cpu.integers import pixels
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.ir.types import LayerTypes
from edgedeploy.compile.layers import AnyAnchorOp, Convolution, Dense, DepthwiseConvolution, FirstConvolution
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.board import Board, load_board

pytestmark = pytest.mark.compiles


def layers(board: Board, weights: str = "int8") -> Mapping[str, AnyAnchorOp]:
    dtype = host_of(board).activation_type
    zero = int(np.iinfo(dtype).min) + 131
    common: dict[str, Any] = {"types": LayerTypes(dtype, weights, "int32", "int32"), "constant": True}

    def conv(data: tuple, kernel: tuple, kind: Any = Convolution, zero_point: int = zero, **others: int) -> AnyAnchorOp:
        return kind(data=data, weights=kernel, window=window(kernel[0], zero_point, **others), **common)

    def depthwise(data: tuple, kernel: int, **others: int) -> AnyAnchorOp:
        return conv(data, (kernel, kernel, 1, data[3]), DepthwiseConvolution, **others)

    long = Window((3, 5), (1, 2), (1, 1), (1, 0, 1, 3), zero)
    return {
        "pointwise": conv((1, 7, 10, 32), (1, 1, 32, 48)),
        "padded": conv((1, 9, 11, 16), (3, 3, 16, 32)),
        "strided": conv((2, 9, 12, 8), (3, 3, 8, 16), stride=2),
        "dilated": conv((1, 11, 9, 16), (3, 3, 16, 16), dilation=2),
        "odd channels": conv((1, 5, 6, 19), (3, 3, 19, 21)),
        "groups": conv((1, 6, 7, 24), (3, 3, 8, 48)),
        "odd groups": conv((1, 5, 5, 15), (1, 1, 5, 21)),
        "first": conv((1, 3, 13, 18), (3, 3, 3, 16), FirstConvolution, stride=2),
        "first, wide": conv((2, 5, 6, 33), (5, 5, 5, 16), FirstConvolution, 0),
        "product": Dense(data=(5, 40), weights=(40, 24), **common),
        "product of one row": Dense(data=(1, 64), weights=(64, 33), **common),
        "product of stacked rows": Dense(data=(2, 3, 20), weights=(20, 16), **common),
        "depthwise": depthwise((1, 7, 9, 32), 3),
        "depthwise, strided": depthwise((1, 9, 11, 24), 5, stride=2),
        "depthwise, long": DepthwiseConvolution(data=(2, 6, 13, 16), weights=(3, 5, 1, 16), window=long, **common),
        "depthwise, dilated": depthwise((1, 9, 9, 8), 3, dilation=2),
        "depthwise, odd channels": depthwise((1, 5, 6, 12), 3),
        "depthwise, few channels": depthwise((1, 9, 11, 8), 3),
        "depthwise, no padding": depthwise((2, 12, 13, 16), 7, padding=0),
    }


def check(case: Case, board: Board, chosen: Configuration, folder: Path) -> str:
    found, code = results(case, board, chosen, folder)
    assert (found.dtype, found.shape) == (case.expected.dtype, case.expected.shape)
    assert np.array_equal(found, case.expected)
    return code


CPUS = [name for name in BOARDS if name != "visionfive2"]


# The instructions of depthwise layers of bytes, their multiples of eight channels.
DEPTHWISE = {
    "cascadelake": ["vpdpbusd"],
    "alderlake": ["vpdpbusd"],
    "rpi5": ["sdot", "zip1", "zip2", "sqxtn"],
    "rpi4": ["smull", "smlal", "saddw", "saddw2", "sqxtn"],
    "rpi3": ["smull", "smlal", "saddw", "saddw2", "sqxtn"],
    "rpi-armhf": ["vmull.s8", "vmlal.s8", "vaddw.s16"],
}
WIDE_DEPTHWISE = {"rpi5": ["sdot", "zip1", "zip2"], "rpi4": ["smull2", "smlal2"], "rpi3": ["smull2", "smlal2"]}


def depthwise_instructions(name: str, kind: str, weights: str, chosen: Configuration) -> list[str]:
    """Those that take several channels at a time; with bytes and at least eight channels, such a form is chosen."""
    if weights == "int16":
        return WIDE_DEPTHWISE.get(name, []) if kind == "depthwise, long" else []
    assert isinstance(chosen, Columns | Depthwise)
    several = isinstance(chosen, Columns) or chosen.vector > 1
    assert several or name not in DEPTHWISE or kind not in ("depthwise", "depthwise, long")
    return DEPTHWISE[name] if several else []


# A layer takes a second or two on each CPU.
@pytest.mark.quick(
    "int8-padded-*", "int8-odd channels-*", "int8-product-*", "int8-depthwise, long-*", "int16-*long-rpi[345]"
)
@pytest.mark.parametrize("name", CPUS)
@pytest.mark.parametrize("kind", layers(BOARDS["rpi4"]))
@pytest.mark.parametrize("weights", ["int8", "int16"])
def test_a_layer_and_its_requantisation_are_exact(tmp_path: Path, name: str, kind: str, weights: str) -> None:
    board = BOARDS[name]
    need_cpu(board)
    layer = layers(board, weights)[kind]
    case, strategy = random_case(layer, layer.types.data), host_of(board).strategy(layer)
    chosen = strategy.default()
    code = check(case, board, chosen, tmp_path)
    if isinstance(chosen, Steps):
        *_, instruction, _ = strategy.described(chosen).split(", ")
        assert instruction in code
    elif isinstance(layer, DepthwiseConvolution):
        expected = depthwise_instructions(name, kind, weights, chosen)
        assert [each for each in expected if not re.search(rf"\b{re.escape(each)}\s", code)] == []


@pytest.mark.parametrize("name", CPUS)
@pytest.mark.parametrize(
    ("growth", "zero_point"),
    [pytest.param(1, 128, marks=pytest.mark.slow), (1000, 117), pytest.param(1000, 128, marks=pytest.mark.slow)],
)
def test_results_are_exact_within_16_bits_and_beyond(tmp_path: Path, name: str, growth: float, zero_point: int) -> None:
    board = BOARDS[name]
    need_cpu(board)
    layer = layers(board)["pointwise"]
    case = random_case(layer, layer.types.data, growth=growth, zero_point=zero_point)
    assert (case.tail.largest > 2**16) is (growth > 1)
    assert {case.tail.low, case.tail.high} <= {*map(int, case.expected.flat)}
    check(case, board, host_of(board).strategy(layer).default(), tmp_path)


def test_input_channels_are_repeated_before_the_loop_over_output_channels(tmp_path: Path) -> None:
    board = BOARDS["rpi4"]
    layer = layers(board)["pointwise"].model_copy(update={"data": (1, 14, 14, 64), "weights": (1, 1, 64, 96)})
    code = check(random_case(layer, layer.types.data), board, host_of(board).strategy(layer).default(), tmp_path)
    of_tiles = [loop.instructions for loop in innermost_loops(code) if loop.multiply_adds]
    assert of_tiles
    assert re.search(r"\btbl\s", code)
    assert not any(re.search(r"\btbl\s", line) for lines in of_tiles for line in lines)


@pytest.mark.parametrize("kind", ["pointwise", "odd channels", "product of one row"])
def test_sums_in_parts_are_exact_where_instructions_are_executed_in_order(tmp_path: Path, kind: str) -> None:
    board = BOARDS["rpi3"]
    layer = layers(board)[kind]
    strategy = host_of(board).strategy(layer)
    chosen = next(each for each in strategy.candidates() if isinstance(each, Steps) and each.depth == 16)
    code = check(random_case(layer, layer.types.data), board, chosen, tmp_path)
    assert re.search(r"\baddp\s+v\d+\.4s", code)
    assert not re.search(r"\b(tbl|zip1)\s", code)  # nothing is repeated


@pytest.mark.parametrize("name", ["rpi3", "rpi5"])
def test_pixels_of_a_small_feature_map_lie_in_one_row_of_tiles(tmp_path: Path, name: str) -> None:
    board = BOARDS[name]
    layer = layers(board)["pointwise"].model_copy(update={"data": (1, 7, 7, 32)})
    assert pixels(layer, board) == (1, 49)
    assert pixels(layer.model_copy(update={"data": (2, 7, 7, 32)}), board) == (7, 7)
    assert pixels(layer, BOARDS["rpi-armhf"]) == (7, 7)
    strategy = host_of(board).strategy(layer)
    tiles = [each.tile for each in strategy.candidates() if isinstance(each, Steps) and each.tile.columns > 1]
    assert {tile.rows for tile in tiles} == {1}
    chosen = next(each for each in strategy.candidates() if isinstance(each, Steps) and each.tile.columns == 4)
    check(random_case(layer, layer.types.data), board, chosen, tmp_path)


@pytest.mark.parametrize("kind", ["depthwise", "padded", "first", "product"])
def test_weights_that_no_two_bytes_are_have_no_step_but_are_exact(tmp_path: Path, kind: str) -> None:
    board = BOARDS["rpi5"]
    layer = layers(board, "int32")[kind]
    case = random_case(layer, layer.types.data)
    case.weights[..., :2] = 255
    check(case, board, host_of(board).strategy(layer).default(), tmp_path)


# Layers of bytes that scripts predict: as networks have them, and what is said of their tiles.

POINTWISE = Layer(inputs=32, outputs=64, feature_map=(16, 16))


@pytest.mark.parametrize(
    "layer", [POINTWISE, Layer(inputs=3, outputs=16, feature_map=(12, 12), kernel=3), Layer(inputs=40, outputs=12)]
)
def test_a_layer_of_bytes_reads_and_gives_bytes(layer: Layer, tmp_path: Path) -> None:
    model = quantised(layer.model())
    onnx.checker.check_model(model, full_check=True)
    cpu_session(model.SerializeToString())
    onnx.save(model, tmp_path / "layer.onnx")
    compiled = compile_network(read_onnx(tmp_path / "layer.onnx"), load_board("rpi4"))
    [function] = (each for each in compiled.functions.values() if isinstance(each.configuration, Steps))
    data, *_, result = (str(each.ty.dtype) for each in function.function.params)
    assert (data, result) == ("int8", "int8")


@needs_mca
@pytest.mark.parametrize(("board", "rate"), [("rpi4", 7.0), ("rpi3", 3.0)])
def test_short_sums_take_little_more_than_their_products(board: str, rate: float, tmp_path: Path) -> None:
    onnx.save(quantised(POINTWISE.model()), tmp_path / "layer.onnx")
    [tile] = look_at_tiles(board, [tmp_path / "layer.onnx"])
    assert tile.products_per_cycle > rate
    assert tile.stack_accesses < 0.02 * tile.cycles
