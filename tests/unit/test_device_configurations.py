"""A layer on an OpenCL device computes the same in each of its configurations; builds take what was measured."""

from __future__ import annotations

import random
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from support.agreement import assert_agrees
from support.layer_networks import NETWORKS, is_of_layer

from edgedeploy.board import Board, load_board
from edgedeploy.compile.backends import backend_of, known_configuration
from edgedeploy.compile.backends.cpu.configuration import Depthwise, Direct, Product, Winograd
from edgedeploy.compile.backends.opencl.configuration import WorkGroup, WorkItem
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.fusion import FusedFunction
from edgedeploy.compile.pipeline import compile_network, lower_network, optimise
from edgedeploy.compile.tiles import Tile
from edgedeploy.network import Network
from edgedeploy.opencl.profile import OpenCL, opencl_of
from edgedeploy.records.best import tuned_by
from edgedeploy.records.database import Records
from edgedeploy.records.header import Header
from edgedeploy.records.trial import Trial
from edgedeploy.runtime.opencl import device_named
from edgedeploy.tune.building import Builder
from edgedeploy.tune.search import CostModel
from edgedeploy.tune.space import Space
from edgedeploy.tune.task import Task, tasks_of

pytestmark = pytest.mark.compiles

# Profiles of a graphics processor, and of a CPU with vectors of 512 bits; the CPU beside them does nothing.
LOCAL = load_board("local-opencl")
GPU = LOCAL.model_copy(update={"devices": [OpenCL(name="pthread", little_work=0)]})
POCL = LOCAL.model_copy(
    update={"devices": [OpenCL(name="pthread", vector=16, sums=28, tile_group=1, units=2, items=4, little_work=0)]}
)

# What cannot be told from "some hundreds".
MOST_CANDIDATES = 600

QUICK = ("3x3", "depthwise", "dense")


@pytest.fixture(params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Network:
    return NETWORKS[request.param](tmp_path)


def last_group(network: Network, board: Board) -> FusedFunction:
    return list(optimise(network, board).groups.values())[-1]


@pytest.mark.parametrize("board", [GPU, POCL, load_board("nuc-opencl")], ids=["gpu", "pocl", "nuc"])
def test_candidates_are_few_begin_with_the_default_fit_and_stay_within_the_device(
    network: Network, board: Board
) -> None:
    device = opencl_of(board)
    assert device is not None
    for task in tasks_of(network, board):
        found = task.candidates
        assert found[0] == task.strategy.default()
        assert len(set(found)) == len(found) <= MOST_CANDIDATES
        for each in found:
            assert isinstance(each, WorkItem)
            assert task.strategy.fits(each)
            assert task.strategy.estimate(each) > 0
            assert each.group.items <= device.work_group
            assert known_configuration(each.model_dump(mode="json")) == each


@pytest.mark.parametrize("board", [GPU, pytest.param(POCL, marks=pytest.mark.slow)], ids=["gpu", "pocl"])
def test_every_configuration_gives_the_reference_s_outputs(opencl: Any, network: Network, board: Board) -> None:
    group, device = last_group(network, board), device_named("pthread")
    candidates = list(backend_of(board).strategy(group.layer).candidates())
    for chosen in random.Random(5).sample(candidates, min(2, len(candidates))):
        compiled = compile_network(
            network, board, tuned=lambda workload, chosen=chosen: chosen if is_of_layer(workload, group.layer) else None
        )
        assert chosen in [entry.configuration for entry in compiled.functions.values() if entry.tuned]
        assert_agrees(compiled, network, 1e-3, device)


def item(tile: Tile, vector: int = 4, group: tuple[int, int, int] = (1, 1, 1)) -> WorkItem:
    return WorkItem(tile=tile, vector=vector, group=WorkGroup(*group))


@pytest.mark.parametrize(
    "impossible",
    [
        item(Tile(1, 1, 12)),  # 12 does not divide 32 channels
        item(Tile(1, 15, 4)),  # 14 columns
        item(Tile(1, 4, 4), vector=3),  # no width of vectors
        item(Tile(1, 4, 4), vector=8),  # half a vector
        item(Tile(1, 1, 32), vector=1),  # 32 sums, for 8 vectors
        item(Tile(1, 4, 4), group=(1, 3, 1)),  # 4 tiles in a row
        item(Tile(1, 1, 4), group=(14, 7, 1)),  # 98 work-items, of 64
        Direct(tile=Tile(1, 4, 16), rows_per_task=1),
        Winograd(size=4, band=1, product=Tile(1, 4, 16), shared=False),
        Depthwise(tile=Tile(1, 4, 16), rows_per_task=1, tasks_deep=1, copied=False),
        Product(whole=32, rows=1, columns=32),
    ],
)
def test_what_does_not_fit_the_device_is_not_taken(tmp_path: Path, impossible: Configuration) -> None:
    """Records may be of another profile, of another version, or of a CPU."""
    network = NETWORKS["3x3"](tmp_path)
    assert not backend_of(GPU).strategy(last_group(network, GPU).layer).fits(impossible)
    lowered = lower_network(network, GPU, tuned=lambda workload: impossible)
    assert not any(entry.tuned for entry in lowered.functions.values())


def test_a_cpu_takes_nothing_that_a_device_was_measured_with(tmp_path: Path) -> None:
    network = NETWORKS["3x3"](tmp_path)
    lowered = lower_network(network, load_board("local"), tuned=lambda workload: item(Tile(1, 4, 4)))
    assert not any(entry.tuned for entry in lowered.functions.values())


def test_each_candidate_is_a_library_of_its_own_that_runs_on_the_device(opencl: Any, tmp_path: Path) -> None:
    [task] = tasks_of(NETWORKS["one row"](tmp_path), GPU)
    with Builder(GPU, workers=1) as builder:
        batch = builder.build(task.scheduled(each) for each in task.candidates[:2])
        assert [entry.error for entry in batch.entries] == [None] * 2
        assert len(batch.libraries) == 2
        device, chance = device_named("pthread"), np.random.default_rng(2)
        results = []
        arrays = [chance.standard_normal(argument.shape).astype("float32") for argument in batch.entries[0].arguments]
        for entry in batch.entries:
            tensors = [tvm.runtime.tensor(array, device=device) for array in arrays]
            tvm.runtime.load_module(str(entry.library))[entry.name](*tensors)
            results.append(tensors[-1].numpy())
        wanted = arrays[0] @ arrays[1] + arrays[2]
        for found in results:
            np.testing.assert_allclose(found.reshape(wanted.shape), wanted, atol=1e-3 * np.abs(wanted).max(), rtol=0)


def test_what_a_cpu_measured_is_no_start_for_its_device(tmp_path: Path) -> None:
    network = NETWORKS["1x1"](tmp_path)
    [ours, theirs] = [tasks_of(network, each)[-1] for each in (GPU, load_board("local"))]
    assert ours.key == theirs.key
    known = [trial(theirs, number, 1.0) for number in (0, 1)] + [trial(ours, 5, 1.0)]
    proposed = Space(ours, "xgb", CostModel(), known).propose(4)
    assert proposed[:2] == [ours.candidates[0], ours.candidates[5]]
    assert all(isinstance(each, WorkItem) for each in proposed)


def test_what_is_soon_done_on_the_cpu_is_no_task(tmp_path: Path) -> None:
    network = NETWORKS["one row"](tmp_path)
    assert len(tasks_of(network, GPU)) == 1
    assert tasks_of(network, GPU.model_copy(update={"devices": [OpenCL(name="", little_work=1_000_000)]})) == []


def test_a_record_is_what_the_next_build_takes(tmp_path: Path) -> None:
    network = NETWORKS["1x1"](tmp_path)
    task = tasks_of(network, GPU)[-1]
    folder = tmp_path / "records"
    with Records.open(folder, Header.of("local-opencl", GPU.target())) as records:
        for number in (0, 3):
            records.add(trial(task, number, 1 / (1 + number)))
    with Records.open(folder) as records:
        lowered = lower_network(network, GPU, tuned=tuned_by(records))
    [taken] = [entry.configuration for entry in lowered.functions.values() if entry.tuned]
    assert taken == task.candidates[3]


def trial(task: Task, number: int, seconds: float) -> Trial:
    return Trial(
        time=datetime.now(timezone.utc),
        run="run",
        task=task.name,
        workload=task.key,
        number=number,
        configuration=task.candidates[number].model_dump(mode="json"),
        seconds=[seconds],
    )
