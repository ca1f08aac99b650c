"""Whole tiles of layers of bytes on ARM: how many products a cycle has, requantisation included, and what spills."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm
from assembly import Loop, nests
from mca import Analyser
from support.integer_runs import assembly, random_case, requantised_group, scheduled
from support.predictions import needs_mca
from whole_tiles import Work, predict_tile, tile_loops, work_of

from edgedeploy.compile.backends import host_of
from edgedeploy.compile.backends.cpu.codegen import scheduled_as
from edgedeploy.compile.configuration import Tiled
from edgedeploy.compile.ir.types import LayerTypes
from edgedeploy.compile.layers import AnyAnchorOp, Convolution, DepthwiseConvolution
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.operators.rows import Rows, write
from edgedeploy.compile.passes.fusion import FusedFunction
from edgedeploy.target.board import load_board

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


class OneCycleEach:
    """A core that takes a cycle for each instruction."""

    def cycles(self, loop: Loop) -> float:
        return len(loop.instructions)


def tiles_of(function: str) -> list[Any]:
    return [tile for nest in nests(CODE) if nest.own.function == function for tile in tile_loops(nest)]


def test_a_tile_takes_its_loops_as_often_as_the_shape_says_and_the_code_around_them() -> None:
    [tile] = tiles_of("fused_conv2d_compute_")
    # Three rows of a kernel, in each of which four vectors of sixteen products are added to the sums.
    found = predict_tile(tile, Work(products=192, useful=150.0, loops=(3, 4)), OneCycleEach())  # type: ignore[arg-type]
    assert found.cycles == 4 + 3 * 2 + 3 * 4 * 4
    assert found.sums == 3 * 4 * 4
    assert found.stack_accesses == 3 * 4
    assert found.products_per_cycle == 150 / found.cycles


def test_tasks_of_the_same_name_belong_to_the_functions_before_them() -> None:
    [tile] = tiles_of("fused_dense_compute_")
    found = predict_tile(tile, Work(products=16, useful=16.0, loops=()), OneCycleEach())  # type: ignore[arg-type]
    assert (found.cycles, found.useful) == (4, 32)  # LLVM wrote two tiles into an iteration


def layers() -> dict[str, AnyAnchorOp]:
    common: dict[str, Any] = {"types": LayerTypes("int8", "int8", "int32", "int32"), "constant": True}
    one, three = (Window((size, size), (1, 1), (1, 1), (size // 2,) * 4, 5.0) for size in (1, 3))
    return {
        "pointwise": Convolution(data=(1, 14, 14, 512), weights=(1, 1, 512, 512), window=one, **common),
        "small": Convolution(data=(1, 7, 7, 512), weights=(1, 1, 512, 512), window=one, **common),
        "depthwise": DepthwiseConvolution(data=(1, 28, 28, 256), weights=(3, 3, 1, 256), window=three, **common),
    }


# Products in a cycle, at least. Floats have 3.9, 7.5, 3.5 and 3.2 at most of the first two kinds; of the last 2.9, 4.8,
# 2.9 and 3.1: on Cortex-A53 they are the quicker ones.
LEAST = {
    ("rpi4", "pointwise"): 7.5,
    ("rpi4", "small"): 7.5,
    ("rpi4", "depthwise"): 3.8,
    ("rpi5", "pointwise"): 29,
    ("rpi5", "small"): 29,
    ("rpi5", "depthwise"): 5,
    ("rpi3", "pointwise"): 3.7,
    ("rpi3", "small"): 3.2,
    ("rpi3", "depthwise"): 1.9,
    ("rpi-armhf", "pointwise"): 6.5,
    ("rpi-armhf", "small"): 6.5,
    ("rpi-armhf", "depthwise"): 3.4,
}


def with_all_bytes(layer: AnyAnchorOp) -> FusedFunction:
    """A layer whose results may be any bytes."""
    return requantised_group(layer, replace(random_case(layer, "int8").tail, low=-128, high=127))


# Registers that LLVM saves around constants and addresses, for each tile.
MOST_STACK_ACCESSES = 8


@pytest.mark.compiles
@needs_mca
@pytest.mark.parametrize(("name", "kind"), LEAST)
def test_bytes_take_many_products_in_a_cycle_and_stay_in_registers(tmp_path: Path, name: str, kind: str) -> None:
    board, layer = load_board(name), layers()[kind]
    strategy = host_of(board).strategy(layer)
    chosen = strategy.default()
    assert isinstance(chosen, Tiled)
    code = assembly(scheduled(with_all_bytes(layer), board, chosen).function, board, tmp_path)
    loops = [tile for nest in nests(code) for tile in tile_loops(nest)]
    found = [predict_tile(tile, work_of(strategy, chosen), Analyser(board)) for tile in loops]
    assert found
    assert min(tile.products_per_cycle for tile in found) >= LEAST[name, kind]
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
    rows = Rows(kind="softmax", shape=(4, 10), axis=1)
    assert write(rows, lanes=4, parallel=False).attrs["tirx.noalias"]


def test_a_core_takes_only_the_order_of_instructions_from_the_model_of_another() -> None:
    from tvm.target import codegen

    own = tvm.target.Target(load_board("rpi3").cpu_target())
    other = scheduled_as(own)
    assert (own.attrs["mcpu"], other.attrs["mcpu"]) == ("cortex-a53", "cortex-a55")
    has, takes = ({*map(str, codegen.llvm_get_cpu_features(each))} for each in (own, other))
    assert takes - has == {"a55", "fuse-address"}  # how they are paired, no instructions
    assert scheduled_as(tvm.target.Target(load_board("rpi4").cpu_target())).attrs["mcpu"] == "cortex-a72"
