"""No network takes more cycles on a Raspberry Pi 4 or 5, by prediction, than benchmarks/cycles.json says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cycles import NETWORKS, Taken, read, risen, taken

from edgedeploy.errors import UnsupportedError
from edgedeploy.predicting.tools import Means, predictable
from edgedeploy.target.board import load_board

BEFORE = Taken("core of LLVM 19", 1_000_000, 900_000, {"conv": 800_000, "pool": 150_000, "runtime": 50_000})


@pytest.mark.parametrize("board", predictable())
def test_every_network_has_its_cycles_in_the_file(board: str) -> None:
    assert read()[board].keys() == NETWORKS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("board", predictable())
@pytest.mark.parametrize("network", NETWORKS)
def test_no_network_becomes_slower(network: str, board: str, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEDEPLOY_MODELS", f"{shared / 'models'}:{shared / 'images'}")
    before = read()[board][network]
    try:
        means = Means.of(board, load_board(board))
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
