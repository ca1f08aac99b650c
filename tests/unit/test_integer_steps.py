"""By which instructions a CPU sums up products of integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.profiles import x86

from edgedeploy.compile.backends import host_of
from edgedeploy.compile.backends.cpu.steps import steps_for
from edgedeploy.compile.ir.types import LayerTypes
from edgedeploy.target.board import load_board

BYTES = LayerTypes("uint8", "int8", "int32", "int32")


BOARDS = {
    "cascadelake": x86("cascadelake", 512),
    "alderlake": x86("alderlake", 256),
    "skylake-avx512": x86("skylake-avx512", 512),
    "haswell": x86("haswell", 256),
    "x86-64": x86("x86-64", 128),
    **{name: load_board(name) for name in ("rpi5", "rpi4", "rpi3", "rpi-armhf", "visionfive2")},
}


def best(name: str, weights: str = "int8") -> tuple[str, int] | None:
    board = BOARDS[name]
    types = replace(BYTES, data=host_of(board).activation_type, weights=weights)
    return next(((step.instruction, step.products) for step in steps_for(types, board)), None)


def test_the_features_of_the_cpu_say_which() -> None:
    assert {name: best(name) for name in BOARDS} == {
        "cascadelake": ("vpdpbusd", 64),
        "alderlake": ("vpdpbusd", 32),
        "skylake-avx512": ("vpmaddwd", 32),
        "haswell": ("vpmaddwd", 16),
        "x86-64": ("pmaddwd", 8),
        "rpi5": ("sdot", 64),
        "rpi4": ("smull", 64),
        "rpi3": ("smull", 64),
        "rpi-armhf": ("vmull.s8", 64),
        "visionfive2": None,
    }


def test_wide_weights_have_steps_of_their_own() -> None:
    found = {name: best(name, "int16") for name in BOARDS}
    assert {name: step[0] if step else None for name, step in found.items()} == {
        "cascadelake": "vpdpwssd",
        "alderlake": "vpdpwssd",
        "skylake-avx512": "vpmaddwd",
        "haswell": "vpmaddwd",
        "x86-64": "pmaddwd",
        "rpi5": "sdot",
        "rpi4": "smlal",
        "rpi3": "smlal",
        "rpi-armhf": "vmlal.s16",
        "visionfive2": None,
    }


@pytest.mark.parametrize(
    ("weights", "wide"),
    [
        ([-127, 127], []),
        ([-128, 3], ["rpi4", "rpi3", "rpi-armhf"]),
        ([-129, 0], [*BOARDS]),
        ([0, 128], [*BOARDS]),
        ([-256, 254], [*BOARDS]),
    ],
)
def test_weights_are_stored_wide_where_a_step_could_overflow(weights: list[int], wide: list[str]) -> None:
    found = {name: host_of(board).weight_type(np.array(weights)) for name, board in BOARDS.items()}
    assert found == {name: "int16" if name in wide else "int8" for name in BOARDS}


@pytest.mark.parametrize("weights", [[0, 255], [-257, 3]])
def test_weights_that_are_no_sum_of_two_bytes_are_wider_still_where_these_are_multiplied(weights: list[int]) -> None:
    found = {name: host_of(board).weight_type(np.array(weights)) for name, board in BOARDS.items()}
    assert found == {name: "int32" if name == "rpi5" else "int16" for name in BOARDS}


def test_x86_multiplies_unsigned_by_signed_bytes_and_others_signed_ones() -> None:
    found = {name: host_of(board).activation_type for name, board in BOARDS.items()}
    assert found == {name: "uint8" if board.is_x86 else "int8" for name, board in BOARDS.items()}
