"""Networks take no more cycles on a Raspberry Pi, by prediction, than benchmarks/cycles.json and each loop allow."""

import re
from dataclasses import replace
from pathlib import Path

import arm_loops
import pytest
from assembly import Loop
from cycles import BOARDS, HALF, NETWORKS, Taken, read, risen, taken
from mca import Analyser, Prediction
from support.agreement import FILES, SHAPES, is_quantised
from support.cpus import needs_mca

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.errors import UnsupportedError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.predicting.tools import Means
from edgedeploy.target.board import load_board

BEFORE = Taken("core of LLVM 19", 1_000_000, 900_000, {"conv": 800_000, "pool": 150_000, "runtime": 50_000})


@pytest.mark.parametrize("board", BOARDS)
def test_every_network_has_its_cycles_in_the_file(board: str) -> None:
    assert read()[board].keys() == NETWORKS.keys()


@pytest.mark.slow
@pytest.mark.usefixtures("shared_zoo")
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("network", NETWORKS)
def test_no_network_becomes_slower(network: str, board: str) -> None:
    before = read()[board][network]
    try:
        name = board.removesuffix(HALF)
        means = Means.of(name, load_board(name))
    except UnsupportedError as error:
        pytest.skip(str(error))
    if means.name != before.model:
        pytest.skip(f"the file has figures of {before.model}, and here is {means.name}")
    slower = risen(before, taken(network, board))
    assert slower is None, f"{slower}; if that is meant: python benchmarks/cycles.py {network} --boards {board}"


def test_one_per_cent_more_is_told_with_its_function() -> None:
    assert risen(BEFORE, replace(BEFORE, cycles=1_009_000)) is None
    now = replace(BEFORE, cycles=1_020_000, functions={"conv": 790_000, "pool": 180_000, "runtime": 50_000})
    assert risen(BEFORE, now) == "1.00 to 1.02 million cycles, +2.0%: pool +0.030 M"


def test_a_function_that_is_new_is_told() -> None:
    now = replace(BEFORE, cycles=1_100_000, functions={"conv_and_pool": 1_050_000, "runtime": 50_000})
    assert "conv_and_pool +1.050 M" in str(risen(BEFORE, now))


# Loops of fewer multiply-adds belong to dense layers of a few outputs.
SMALLEST_TILE = 8

# Loops of single pixels wait for their weights: one load for each multiply-add.
BOUND_BY_LOADS = 1.15

# Where a tile's pixels are so near to each other that LLVM (its loop strength reduction) addresses them from the
# middle one (a load of one value, at a negative offset), that one takes an instruction of its own.
FROM_THE_MIDDLE = re.compile(r"ldur\s+s\d+, \[x\d+, #-")
BOUND_FROM_THE_MIDDLE = 1.16


def bound(loop: Loop, prediction: Prediction) -> float:
    """The most cycles that an iteration may take."""
    from_the_middle = any(map(FROM_THE_MIDDLE.match, loop.loads))
    by_arithmetic = BOUND_FROM_THE_MIDDLE if from_the_middle else 1.10
    return max(by_arithmetic * prediction.arithmetic, BOUND_BY_LOADS * prediction.loads)


# Layers of every kind; the other networks take a minute or more together.
@needs_mca
@pytest.mark.quick("mobilenet_v1_0.25_224_float")
@pytest.mark.parametrize("path", [path for path in FILES if not is_quantised(path)], ids=lambda path: path.stem)
def test_sums_stay_in_registers_and_take_no_longer_than_their_multiply_adds(path: Path) -> None:
    board = load_board("rpi4")
    analyser = Analyser(board)
    network = read_onnx(path, SHAPES.get(path.name))
    sums = [loop for loop in arm_loops.hot_loops(compile_network(network, board)) if loop.accumulates]
    assert sums
    spilling = [loop for loop in sums if loop.stack_accesses]
    assert spilling == []

    def is_slow(loop: Loop) -> bool:
        prediction = analyser.predict(loop)
        return prediction.cycles > bound(loop, prediction)

    assert [loop for loop in sums if len(loop.multiply_adds) >= SMALLEST_TILE and is_slow(loop)] == []
