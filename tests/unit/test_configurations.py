"""A layer computes the same in each of its configurations, and builds take the one that was measured."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support.agreement import assert_agrees
from support.layer_networks import NETWORKS, is_of_layer

from edgedeploy.board import Board, load_board
from edgedeploy.compile.backends import backend_of, known_configuration
from edgedeploy.compile.backends.cpu.configuration import Direct, Product, Winograd
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.fusion import FusedFunction
from edgedeploy.compile.layers import LAYER
from edgedeploy.compile.pipeline import compile_network, lower_network, optimise
from edgedeploy.compile.strategy import Strategy
from edgedeploy.compile.tiles import Tile, WeightOrder
from edgedeploy.compile.tuned import workload_hash, workload_of
from edgedeploy.network import Network

LOCAL = load_board("local")


QUICK = ("3x3", "1x1", "depthwise", "dense")


@pytest.fixture(params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Network:
    return NETWORKS[request.param](tmp_path)


def groups_of(network: Network) -> dict[str, FusedFunction]:
    return optimise(network, LOCAL).groups


def spread(candidates: list[Configuration], count: int) -> list[Configuration]:
    """Some of each form."""
    chosen, some = random.Random(3), []
    for form in dict.fromkeys(map(type, candidates)):
        fitting = [each for each in candidates if isinstance(each, form)]
        some += chosen.sample(fitting, min(count, len(fitting)))
    return some


@pytest.mark.compiles
def test_every_configuration_gives_the_reference_s_outputs(network: Network) -> None:
    last = list(groups_of(network).values())[-1]
    for chosen in spread(list(strategy_of(last, LOCAL).candidates()), 3):
        compiled = compile_network(
            network, LOCAL, tuned=lambda workload, chosen=chosen: chosen if is_of_layer(workload, last.layer) else None
        )
        assert chosen in [entry.configuration for entry in compiled.functions.values() if entry.tuned]
        assert_agrees(compiled, network)


def strategy_of(group: FusedFunction, board: Board) -> Strategy[Any]:
    return backend_of(board).strategy(group.layer)


@pytest.mark.parametrize("board", ["local", "rpi4", "rpi-armhf"])
def test_the_default_is_one_of_the_configurations_and_all_of_them_fit(network: Network, board: str) -> None:
    profile = load_board(board)
    for group in optimise(network, profile).groups.values():
        strategy = strategy_of(group, profile)
        candidates = list(strategy.candidates())
        assert strategy.default() in candidates
        assert len(set(candidates)) == len(candidates) > 1
        assert all(strategy.fits(each) for each in candidates)
        assert all(strategy.estimate(each) > 0 for each in candidates)


def test_a_configuration_is_the_same_after_it_was_written_and_read(network: Network) -> None:
    for group in groups_of(network).values():
        assert LAYER.validate_json(group.layer.model_dump_json()) == group.layer
        for each in strategy_of(group, LOCAL).candidates():
            assert known_configuration(each.model_dump(mode="json")) == each


@pytest.mark.parametrize(
    "impossible",
    [
        Direct(tile=Tile(1, 1, 5), rows_per_task=1),  # 5 does not divide the channels
        Direct(tile=Tile(4, 28, 32), rows_per_task=1),  # more sums than there are registers
        Direct(tile=Tile(1, 4, 16), rows_per_task=5),  # 5 does not divide 14 rows
        Direct(tile=Tile(1, 4, 16), order=WeightOrder(True, 2, 0), rows_per_task=1),  # 2 slices of 3 rows of the kernel
        Direct(tile=Tile(1, 4, 16), order=WeightOrder(False, 1, 4), rows_per_task=1),
        Winograd(size=4, band=40, product=Tile(1, 4, 16), shared=False),  # more bands than the image has
        Winograd(size=4, band=1, product=Tile(1, 4, 16), shared=True),  # shared weights have one band
        Product(whole=32, rows=1, columns=32),  # another kind of layer
    ],
)
def test_a_configuration_that_does_not_fit_is_not_taken(tmp_path: Path, impossible: Configuration) -> None:
    """Records may be of another version, or of somebody else."""
    network = NETWORKS["3x3"](tmp_path)
    last = list(groups_of(network).values())[-1]
    assert not strategy_of(last, LOCAL).fits(impossible)
    lowered = lower_network(network, LOCAL, tuned=lambda workload: impossible)
    assert not any(entry.tuned for entry in lowered.functions.values())


def test_a_function_is_one_workload_whatever_board_its_form_is_chosen_for(tmp_path: Path) -> None:
    network = NETWORKS["3x3"](tmp_path)
    hashes = []
    for board in ("local", "rpi4"):
        profile = load_board(board)
        narrow = profile.model_copy(update={"vector": load_board("rpi4").vector})
        modules = [workload_of(function) for function in optimise(network, narrow).functions.values()]
        hashes.append(sorted(map(workload_hash, modules)))
    assert hashes[0] == hashes[1]


TILE = {"rows": 1, "columns": 4, "channels": 8}


@pytest.mark.parametrize(
    "recorded",
    [
        {"form": "direct", "tile": {"rows": 1, "columns": 4, "channels": 0}, "rows_per_task": 1},
        {"form": "depthwise", "tile": {"rows": 1, "columns": 0, "channels": 8}, "rows_per_task": 1, "tasks_deep": 1},
        {"form": "work-item", "tile": TILE, "vector": 4, "group": {"rows": 1, "columns": 0, "channels": 1}},
        {"form": "work-item", "tile": TILE, "vector": -4, "group": {"rows": 1, "columns": 1, "channels": 1}},
        {"form": "of a later version"},
    ],
)
def test_a_record_of_what_cannot_be_is_no_configuration(recorded: dict[str, object]) -> None:
    assert known_configuration(recorded) is None
