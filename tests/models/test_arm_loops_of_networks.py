"""The sums of real networks' layers on a Cortex-A72: no value leaves the registers, and no cycle is lost."""

from __future__ import annotations

import re
from pathlib import Path

import arm_loops
import pytest
from assembly import Loop
from mca import Analyser, Prediction
from support.predictions import needs_mca
from support.shared_networks import FILES, SHAPES, is_quantised

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.target.board import load_board

pytestmark = needs_mca

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
