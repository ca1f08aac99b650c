"""Register tiles: they fit the registers, waste little of odd feature maps, and Winograd is chosen where it wins."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from assembly import nests
from mca import Analyser
from support.cpus import needs_mca
from support.layer_runs import (
    assembly,
    assert_takes,
    convolution,
    last_layer,
    random_case,
    requantised_group,
    scheduled,
    window,
)
from whole_tiles import Work, predict_tile, tile_loops, work_of

from edgedeploy.compile.backends import backend_of, host_of
from edgedeploy.compile.backends.cpu import winograd
from edgedeploy.compile.backends.cpu.codegen import scheduled_as
from edgedeploy.compile.backends.cpu.configuration import Direct
from edgedeploy.compile.backends.cpu.orders import Way, choose_tile_and_order
from edgedeploy.compile.backends.cpu.schedules.general import best_length, whole_vectors
from edgedeploy.compile.backends.cpu.tiles import ConvolutionShape, choose_order, choose_tile, written_out
from edgedeploy.compile.configuration import Tiled
from edgedeploy.compile.ir.types import FLOAT32, LayerTypes, lanes_for
from edgedeploy.compile.layers import AnyAnchorOp, Convolution, DepthwiseConvolution
from edgedeploy.compile.operators.rows import Rows, write
from edgedeploy.compile.passes.fusion import FusedFunction
from edgedeploy.compile.tiles import Tile, WeightOrder, vector_length
from edgedeploy.target.board import load_board

BOARDS = ["rpi3", "rpi4", "rpi5", "rpi-armhf", "nuc-opencl"]
AVX512 = load_board("rpi4").model_copy(
    update={
        "triple": "x86_64-unknown-linux-gnu",
        "vector": load_board("rpi4").vector.model_copy(update={"bits": 512}),
        "fma": load_board("rpi4").fma.model_copy(update={"latency": 4, "per_cycle": 2}),
        "core_model": None,
    }
)


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("width", [1, 3, 7, 14, 56, 79, 119, 237])
@pytest.mark.parametrize("channels", [1, 6, 8, 24, 32, 64, 255])
def test_accumulators_weights_and_an_input_fit_the_registers(board: str, width: int, channels: int) -> None:
    profile = load_board(board)
    tile = choose_tile(ConvolutionShape(width, width, channels, (1, 1), 64, FLOAT32), profile)
    vectors = tile.channels // vector_length(tile.channels, lanes_for(profile, "float32"))
    assert channels % tile.channels == 0
    assert tile.rows * tile.columns * vectors + vectors + 1 <= profile.vector.registers


@pytest.mark.parametrize("width", [13, 79, 113, 119, 157, 237])
def test_odd_images_are_tiled_with_little_waste(width: int) -> None:
    tile = choose_tile(ConvolutionShape(width, width, 64, (1, 1), 512, FLOAT32), AVX512)
    assert tile.useful(width, width) >= 0.92
    assert tile.rows * tile.columns * tile.channels // 16 >= 16


@pytest.mark.parametrize(
    ("size", "inputs", "outputs", "wanted"),
    [
        (56, 64, 64, 4),  # ResNet's first stages
        (28, 128, 128, 4),
        (14, 256, 256, 2),
        (7, 512, 512, None),  # the transformed weights would come from memory
        (224, 3, 32, None),  # transforms for too few sums
        (1, 64, 64, None),
    ],
)
def test_winograd_is_chosen_where_it_wins(size: int, inputs: int, outputs: int, wanted: int | None) -> None:
    plan = winograd.choose_plan(ConvolutionShape(size, size, outputs, (3, 3), inputs, FLOAT32), AVX512)
    assert (plan.size if plan else None) == wanted


@pytest.mark.parametrize(("board", "ahead"), [("rpi4", True), ("rpi5", True), ("rpi5", False)])
def test_larger_weights_cost_less_on_a_core_that_reads_ahead(board: str, ahead: bool) -> None:
    """Of ResNet-18's last layers, F(4x4) has 0.56 of the products of F(2x2), and 2.25 times the weights.

    `edgedeploy predict` says 0.91 of the cycles on Cortex-A72, 0.56 on Cortex-A76 (docs/schedules.md).
    """
    profile = load_board(board)
    if not ahead:
        profile = profile.model_copy(update={"core_model": None})
    plan = winograd.choose_plan(ConvolutionShape(7, 7, 512, (3, 3), 512, FLOAT32), profile)
    assert plan.size == (4 if ahead else 2)


@pytest.mark.parametrize(
    ("board", "size", "channels", "shared", "by_element"),
    [
        ("rpi5", 56, 64, False, True),  # bands lie in the second cache, their weights in the third
        ("rpi5", 14, 256, True, True),  # all values lie in the third
        ("rpi5", 7, 512, True, True),
        ("rpi4", 14, 256, True, False),  # all values exceed the second, which is the last
        ("rpi4", 7, 512, True, True),
    ],
)
def test_cached_values_multiply_in_turn(board: str, size: int, channels: int, shared: bool, by_element: bool) -> None:
    plan = winograd.choose_plan(ConvolutionShape(size, size, channels, (3, 3), channels, FLOAT32), load_board(board))
    assert (plan.size, plan.shared, plan.by_element) == (4, shared, by_element)


@pytest.mark.parametrize("size", [2, 4])
def test_the_transforms_give_the_convolution(size: int) -> None:
    random = np.random.default_rng(size)
    values, elements = random.standard_normal((size + 2, size + 2)), random.standard_normal((3, 3))
    matrices = winograd.TRANSFORMS[size]
    transformed = winograd.transform_weights(elements[:, :, None, None], size)[:, :, 0, 0]
    product = transformed * (matrices.inputs @ values @ matrices.inputs.T)
    direct = [[(values[y : y + 3, x : x + 3] * elements).sum() for x in range(size)] for y in range(size)]
    np.testing.assert_allclose(matrices.outputs @ product @ matrices.outputs.T, direct, atol=1e-12)


@pytest.mark.parametrize(
    ("size", "inputs", "kernel", "wanted"),
    [
        (56, 32, 3, WeightOrder()),  # rows of pixels are the tasks: the weights fit the L2 cache
        (28, 512, 3, WeightOrder(by_channels=True, slices=3, interval=64)),  # and these do not
        (7, 1024, 1, WeightOrder(by_channels=True, slices=1, interval=8)),
        (7, 512, 3, WeightOrder(by_channels=True, slices=3, interval=8)),
        (14, 512, 1, WeightOrder(by_channels=True, slices=1, interval=16)),
    ],
)
def test_weights_come_from_memory_once_and_slice_by_slice(size: int, inputs: int, kernel: int, wanted: object) -> None:
    shape = ConvolutionShape(size, size, 512, (kernel, kernel), inputs, FLOAT32)
    tile = choose_tile(shape, AVX512)
    order = choose_order(shape, tile, AVX512)
    assert order == wanted
    if order.interval:
        second_cache = AVX512.cache.l2_kib * 1024
        assert 2 * 4 * kernel * kernel * inputs * tile.channels // order.slices <= second_cache


@pytest.mark.parametrize("interval", [0, 1, 8, 16, 17, 30, 240, 512])
def test_of_steps_between_two_fetches_a_few_are_written_out_one_by_one(interval: int) -> None:
    count = WeightOrder(True, 1, interval).written_out
    assert count <= 16
    assert max(interval, 1) % count == 0
    assert count == max(each for each in range(1, 17) if max(interval, 1) % each == 0)


@pytest.mark.parametrize("board", BOARDS[:4])
def test_nothing_is_fetched_ahead_where_it_was_not_measured(board: str) -> None:
    profile = load_board(board)
    shape = ConvolutionShape(7, 7, 512, (3, 3), 512, FLOAT32)
    assert choose_order(shape, choose_tile(shape, profile), profile).interval == 0


@pytest.mark.parametrize(
    ("extent", "boundaries", "length"),
    [(1024, [], 16), (1001, [], 16), (24, [], 8), (20, [], 4), (13, [], 4), (3, [], 2), (120, [24], 8), (1, [], 1)],
)
def test_vectors_are_as_long_as_leaves_the_least_work(extent: int, boundaries: list[int], length: int) -> None:
    assert best_length(extent, 16, boundaries) == length


@pytest.mark.parametrize(
    ("extents", "length", "elements"),
    [
        ([3, 316, 474], 8, 316 * 474),  # a vector goes on in the next row, but not in the next channel
        ([3, 316, 474], 16, 3 * 316 * 474),
        ([3, 320, 320], 8, 3 * 320 * 320),
        ([5, 6, 10], 4, 6 * 10),
        ([7], 4, 7),
        ([], 4, 1),
    ],
)
def test_loops_are_fused_where_vectors_cover_all_or_none(extents: list[int], length: int, elements: int) -> None:
    assert whole_vectors(extents, length) == elements


# Whole tiles of layers of bytes on ARM: how many products a cycle has, requantisation included, and what spills.

CODE = """
	.type	fused_conv2d_compute_,@function
fused_conv2d_compute_:
	adrp	x0, .L__tvm_parallel_lambda
	ret
	.type	.L__tvm_parallel_lambda,@function
.L__tvm_parallel_lambda:
.LBB0_1:
	str	q9, [x9], #16
	b.ne	.LBB0_1
.LBB0_2:
	movi	v0.2d, #0
.LBB0_3:
	mov	x8, xzr
.LBB0_4:
	ldr	q1, [x1]
	sdot	v0.4s, v1.16b, v2.16b
	str	q3, [sp, #16]
	b.ne	.LBB0_4
	b.ne	.LBB0_3
	scvtf	v0.4s, v0.4s
	str	q0, [x2]
	b.ne	.LBB0_2
	ret
	.type	fused_dense_compute_,@function
fused_dense_compute_:
	adrp	x0, .L__tvm_parallel_lambda
	ret
	.type	.L__tvm_parallel_lambda,@function
.L__tvm_parallel_lambda:
.LBB1_1:
	sdot	v0.4s, v1.16b, v2.16b
	sdot	v0.4s, v3.16b, v4.16b
	str	q0, [x2]
	b.ne	.LBB1_1
	ret
"""


# A core that takes a cycle for each instruction.
ONE_CYCLE_EACH: Any = SimpleNamespace(cycles=lambda loop: len(loop.instructions))


def tiles_of(function: str) -> list[Any]:
    return [tile for nest in nests(CODE) if nest.own.function == function for tile in tile_loops(nest)]


def test_a_tile_takes_its_loops_as_often_as_the_shape_says_and_the_code_around_them() -> None:
    [tile] = tiles_of("fused_conv2d_compute_")
    # Three rows of a kernel, in each of which four vectors of sixteen products are added to the sums.
    found = predict_tile(tile, Work(products=192, useful=150.0, loops=(3, 4)), ONE_CYCLE_EACH)
    assert found.cycles == 4 + 3 * 2 + 3 * 4 * 4
    assert found.sums == 3 * 4 * 4
    assert found.stack_accesses == 3 * 4
    assert found.products_per_cycle == 150 / found.cycles


def test_tasks_of_the_same_name_belong_to_the_functions_before_them() -> None:
    [tile] = tiles_of("fused_dense_compute_")
    found = predict_tile(tile, Work(products=16, useful=16.0, loops=()), ONE_CYCLE_EACH)
    assert (found.cycles, found.useful) == (4, 32)  # LLVM wrote two tiles into an iteration


def layers() -> dict[str, AnyAnchorOp]:
    common: dict[str, Any] = {"types": LayerTypes("int8", "int8", "int32", "int32"), "constant": True}
    one, three = window(1, 5), window(3, 5)
    return {
        "pointwise": Convolution(data=(1, 14, 14, 512), weights=(1, 1, 512, 512), window=one, **common),
        "small": Convolution(data=(1, 7, 7, 512), weights=(1, 1, 512, 512), window=one, **common),
        "depthwise": DepthwiseConvolution(data=(1, 28, 28, 256), weights=(3, 3, 1, 256), window=three, **common),
    }


# Products in a cycle, at least. Floats have 3.9, 7.5, 3.5 and 3.2 at most of the first two kinds; of the last 2.9, 4.8,
# 2.9 and 3.1: on Cortex-A53 they are the quicker ones.
LEAST = {
    "rpi4": {"pointwise": 7.5, "small": 7.5, "depthwise": 3.8},
    "rpi5": {"pointwise": 29, "small": 29, "depthwise": 5},
    "rpi3": {"pointwise": 3.7, "small": 3.2, "depthwise": 1.9},
    "rpi-armhf": {"pointwise": 6.5, "small": 6.5, "depthwise": 3.4},
}


def with_all_bytes(layer: AnyAnchorOp) -> FusedFunction:
    """A layer whose results may be any bytes."""
    return requantised_group(layer, replace(random_case(layer, "int8").tail, low=-128, high=127))


# Registers that LLVM saves around constants and addresses, for each tile.
MOST_STACK_ACCESSES = 8


@pytest.mark.compiles
@needs_mca
@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, least in LEAST.items() for kind in least])
def test_bytes_take_many_products_in_a_cycle_and_stay_in_registers(tmp_path: Path, name: str, kind: str) -> None:
    board, layer = load_board(name), layers()[kind]
    strategy = host_of(board).strategy(layer)
    chosen = strategy.default()
    assert isinstance(chosen, Tiled)
    code = assembly(scheduled(with_all_bytes(layer), board, chosen).function, board, tmp_path)
    loops = [tile for nest in nests(code) for tile in tile_loops(nest)]
    found = [predict_tile(tile, work_of(strategy, chosen), Analyser(board)) for tile in loops]
    assert found
    assert min(tile.products_per_cycle for tile in found) >= LEAST[name][kind]
    assert max(tile.stack_accesses for tile in found) <= MOST_STACK_ACCESSES


@pytest.mark.compiles
def test_sums_begin_with_their_biases(tmp_path: Path) -> None:
    board = load_board("rpi5")
    for kind in ("pointwise", "depthwise"):
        layer = layers()[kind]
        chosen = host_of(board).strategy(layer).default()
        code = assembly(scheduled(with_all_bytes(layer), board, chosen).function, board, tmp_path)
        assert re.search(r"\bsdot\s+v\d+\.4s", code)
        assert not re.search(r"\badd\s+v\d+\.4s", code)


def test_tensors_of_no_function_may_overlap() -> None:
    """One function without that mark makes TVM drop it from all others of its module: sums read their weights anew."""
    assert write(Rows(kind="softmax", shape=(4, 10), axis=1), lanes=4, parallel=False).attrs["tirx.noalias"]


def test_a_core_takes_only_the_order_of_instructions_from_the_model_of_another() -> None:
    from tvm.target import codegen

    own = tvm.target.Target(load_board("rpi3").cpu_target())
    other = scheduled_as(own)
    assert (own.attrs["mcpu"], other.attrs["mcpu"]) == ("cortex-a53", "cortex-a55")
    has, takes = ({*map(str, codegen.llvm_get_cpu_features(each))} for each in (own, other))
    assert takes - has == {"a55", "fuse-address"}  # how they are paired, no instructions
    assert scheduled_as(tvm.target.Target(load_board("rpi4").cpu_target())).attrs["mcpu"] == "cortex-a72"


# Orders of direct convolutions: what the first cache holds is used before it leaves.


LOCAL, RPI4, RPI5 = (load_board(name) for name in ("local", "rpi4", "rpi5"))
# This machine, asked for what a board whose caches are known is asked for.
MODELLED = LOCAL.model_copy(update={"core_model": RPI4.core_model})

# MobileNet's 1x1 layers, as size, inputs and outputs.
MOBILENET = [
    *((112, 32, 64), (56, 64, 128), (56, 128, 128), (28, 128, 256), (28, 256, 256)),
    *((14, 256, 512), (14, 512, 512), (7, 512, 1024), (7, 1024, 1024)),
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
    chosen = choose_tile_and_order(shape, LOCAL.model_copy(update={"core_model": None}))
    assert chosen == (tile, choose_order(shape, tile, LOCAL))


SMALL, LARGE = Tile(1, 4, 8), Tile(1, 8, 12)


@pytest.mark.parametrize(
    ("steps", "tile", "written"),
    [(512, SMALL, 8), (512, LARGE, 4), (36, SMALL, 4), (34, SMALL, 2), (33, SMALL, 1), (16, SMALL, 1)],
)
def test_steps_of_long_sums_are_written_out_as_far_as_registers_allow(steps: int, tile: Tile, written: int) -> None:
    assert written_out(steps, tile, FLOAT32, RPI4) == written
    assert written_out(steps, tile, FLOAT32, LOCAL.model_copy(update={"core_model": None})) == 1


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
    chosen = Direct(tile=Tile(2, 3, 16), order=order, rows_per_task=rows)
    assert backend_of(MODELLED).strategy(last_layer(network, MODELLED)).fits(chosen)
    assert_takes(network, MODELLED, chosen)


@pytest.mark.parametrize(
    "order", [WeightOrder(panel=2), WeightOrder(True, 1, 0, 3), WeightOrder(True, 5), WeightOrder(False, 2)]
)
def test_an_order_that_does_not_divide_a_layer_does_not_fit(tmp_path: Path, order: WeightOrder) -> None:
    """It has 3 tiles in a row, and 64 input channels."""
    layer = last_layer(convolution(tmp_path, 9, 64, 32, 1), MODELLED)
    chosen = Direct(tile=Tile(1, 3, 16), order=order, rows_per_task=9)
    assert not backend_of(MODELLED).strategy(layer).fits(chosen)
