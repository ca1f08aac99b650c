"""A layer computes the same in each of its configurations, and builds take the one that was measured."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from support.agreement import agreeing
from support.layer_runs import NETWORKS, assert_takes, convolution, last_layer, window
from support.networks import begun
from support.opencl_devices import ALL_THREADS
from support.tuning_records import trial_of

from edgedeploy.compile.backends import backend_of, known_configuration
from edgedeploy.compile.backends.cpu.configuration import Depthwise, Direct, Product, Winograd
from edgedeploy.compile.backends.cpu.depthwise import Block
from edgedeploy.compile.backends.cpu.schedules.dense import skipped
from edgedeploy.compile.backends.cpu.traffic import LINE
from edgedeploy.compile.backends.opencl.strategy import WorkGroup, WorkItem
from edgedeploy.compile.configuration import Configuration, workload_hash, workload_of
from edgedeploy.compile.ir.types import FLOAT32
from edgedeploy.compile.layers import LAYER, Convolution, DepthwiseConvolution
from edgedeploy.compile.pipeline import lower_network, optimise
from edgedeploy.compile.tiles import Tile, WeightOrder
from edgedeploy.model.network import Network
from edgedeploy.records.best import tuned_by
from edgedeploy.records.database import Records
from edgedeploy.records.schema import Header
from edgedeploy.runtime.opencl import device_named
from edgedeploy.target.board import Board, load_board
from edgedeploy.target.opencl.profile import OpenCL, opencl_of
from edgedeploy.tuning.building import Builder
from edgedeploy.tuning.search import CostModel, search_for
from edgedeploy.tuning.task import tasks_of

LOCAL = load_board("local")

# Profiles of a graphics processor, and of a CPU with vectors of 512 bits; the CPU beside them does nothing.
DEVICE = load_board("local-opencl")
GPU = DEVICE.model_copy(update={"devices": [OpenCL(name=ALL_THREADS, little_work=0)]})
POCL = DEVICE.model_copy(
    update={"devices": [OpenCL(name=ALL_THREADS, vector=16, sums=28, tile_group=1, units=2, items=4, little_work=0)]}
)

QUICK = ("3x3", "1x1", "depthwise", "dense")


@pytest.fixture(params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Network:
    return NETWORKS[request.param](tmp_path)


@pytest.mark.parametrize(
    "board",
    [LOCAL, load_board("rpi4"), load_board("rpi-armhf"), GPU, POCL, load_board("nuc-opencl")],
    ids=["local", "rpi4", "rpi-armhf", "gpu", "pocl", "nuc"],
)
def test_the_default_is_one_of_the_configurations_and_all_of_them_fit(network: Network, board: Board) -> None:
    device = opencl_of(board)
    for group in optimise(network, board).groups.values():
        assert LAYER.validate_json(group.layer.model_dump_json()) == group.layer
        strategy = backend_of(board).strategy(group.layer)
        candidates = list(strategy.candidates())
        assert strategy.default() in candidates
        assert len(set(candidates)) == len(candidates) > (0 if device else 1)
        if device:
            assert candidates[0] == strategy.default()
            assert len(candidates) <= 600
        for each in candidates:
            assert strategy.fits(each)
            assert strategy.estimate(each) > 0
            assert known_configuration(each.model_dump(mode="json")) == each
            assert not device or each.group.items <= device.work_group


def spread(candidates: list[Configuration], count: int) -> list[Configuration]:
    """Some of each form."""
    chosen, some = random.Random(3), []
    for form in dict.fromkeys(map(type, candidates)):
        fitting = [each for each in candidates if isinstance(each, form)]
        some += chosen.sample(fitting, min(count, len(fitting)))
    return some


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("board", "count", "tolerance"),
    [(LOCAL, 3, 1e-4), (GPU, 2, 1e-3), pytest.param(POCL, 2, 1e-3, marks=pytest.mark.slow)],
    ids=["local", "gpu", "pocl"],
)
def test_every_configuration_gives_the_reference_s_outputs(
    request: pytest.FixtureRequest, network: Network, board: Board, count: int, tolerance: float
) -> None:
    if board.device:
        request.getfixturevalue("opencl")
    device = device_named(ALL_THREADS) if board.device else None
    for chosen in spread([*backend_of(board).strategy(last_layer(network, board)).candidates()], count):
        assert_takes(network, board, chosen, tolerance, device)


@pytest.mark.compiles
@pytest.mark.parametrize(("shared", "band"), [(False, 2), (True, 4)])
def test_winograd_tiles_may_be_multiplied_one_value_after_another(tmp_path: Path, shared: bool, band: int) -> None:
    chosen = Winograd(size=4, band=band, product=Tile(1, 4, 16), shared=shared, by_element=True)
    assert_takes(NETWORKS["3x3"](tmp_path), LOCAL, chosen)


def item(tile: Tile, vector: int = 4, group: tuple[int, int, int] = (1, 1, 1)) -> WorkItem:
    return WorkItem(tile=tile, vector=vector, group=WorkGroup(*group))


@pytest.mark.parametrize(
    ("board", "impossible"),
    [
        (LOCAL, Direct(tile=Tile(1, 1, 5), rows_per_task=1)),  # 5 does not divide the channels
        (LOCAL, Direct(tile=Tile(4, 28, 32), rows_per_task=1)),  # more sums than there are registers
        (LOCAL, Direct(tile=Tile(1, 4, 16), rows_per_task=5)),  # 5 does not divide 14 rows
        # 2 slices of 3 rows of the kernel
        (LOCAL, Direct(tile=Tile(1, 4, 16), order=WeightOrder(True, 2, 0), rows_per_task=1)),
        (LOCAL, Direct(tile=Tile(1, 4, 16), order=WeightOrder(False, 1, 4), rows_per_task=1)),
        # more bands than the image has; shared weights have one band
        (LOCAL, Winograd(size=4, band=40, product=Tile(1, 4, 16), shared=False)),
        (LOCAL, Winograd(size=4, band=1, product=Tile(1, 4, 16), shared=True)),
        (LOCAL, Product(whole=32, rows=1, columns=32)),  # another kind of layer
        (LOCAL, item(Tile(1, 4, 4))),
        (GPU, item(Tile(1, 1, 12))),  # 12 does not divide 32 channels
        (GPU, item(Tile(1, 15, 4))),  # 14 columns
        (GPU, item(Tile(1, 4, 4), vector=3)),  # no width of vectors
        (GPU, item(Tile(1, 4, 4), vector=8)),  # half a vector
        (GPU, item(Tile(1, 1, 32), vector=1)),  # 32 sums, for 8 vectors
        (GPU, item(Tile(1, 4, 4), group=(1, 3, 1))),  # 4 tiles in a row
        (GPU, item(Tile(1, 1, 4), group=(14, 7, 1))),  # 98 work-items, of 64
        (GPU, Direct(tile=Tile(1, 4, 16), rows_per_task=1)),
        (GPU, Winograd(size=4, band=1, product=Tile(1, 4, 16), shared=False)),
        (GPU, Depthwise(tile=Tile(1, 4, 16), rows_per_task=1, tasks_deep=1, copied=False)),
        (GPU, Product(whole=32, rows=1, columns=32)),
    ],
)
def test_a_configuration_that_does_not_fit_is_ignored(tmp_path: Path, board: Board, impossible: Configuration) -> None:
    """Records may be of another profile, of another version, of what a device or a CPU was measured with."""
    network = NETWORKS["3x3"](tmp_path)
    assert not backend_of(board).strategy(last_layer(network, board)).fits(impossible)
    lowered = lower_network(network, board, tuned=lambda workload: impossible)
    assert not any(entry.tuned for entry in lowered.functions.values())


def test_a_function_is_one_workload_whatever_board_its_form_is_chosen_for(tmp_path: Path) -> None:
    network = NETWORKS["3x3"](tmp_path)
    hashes = []
    for board in ("local", "rpi4"):
        narrow = load_board(board).model_copy(update={"vector": load_board("rpi4").vector})
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


@pytest.mark.compiles
def test_each_candidate_is_a_library_of_its_own_that_runs_on_the_device(opencl: Any, tmp_path: Path) -> None:
    [task] = tasks_of(NETWORKS["one row"](tmp_path), GPU)
    with Builder(GPU, workers=1) as builder:
        batch = builder.build(task.scheduled(each) for each in task.candidates[:2])
        assert [entry.error for entry in batch.entries] == [None] * 2
        assert len(batch.libraries) == 2
        device, chance = device_named(ALL_THREADS), np.random.default_rng(2)
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
    trials = [trial_of(theirs, number, 1.0) for number in (0, 1)] + [trial_of(ours, 5, 1.0)]
    known = [(candidate, each.median_s) for candidate, each in ours.measured(trials)]
    proposed = search_for("xgb", ours, CostModel(), known).propose(4)
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
            records.add(trial_of(task, number, 1 / (1 + number)))
    with Records.open(folder) as records:
        lowered = lower_network(network, GPU, tuned=tuned_by(records))
    [taken] = [entry.configuration for entry in lowered.functions.values() if entry.tuned]
    assert taken == task.candidates[3]


# Convolutions on CPUs: copies stay in the first cache, tasks read whole lines, tiles leave out their padding.

# MobileNet's layers, as size, channels and stride.
MOBILENET = [(112, 32, 1), (112, 64, 2), (56, 128, 1), (56, 128, 2), (28, 256, 1), (14, 512, 1), (7, 1024, 1)]


def layer_of(size: int, channels: int, stride: int = 1, kernel: int = 3) -> DepthwiseConvolution:
    shapes = {"data": (1, size, size, channels), "weights": (kernel, kernel, 1, channels)}
    return DepthwiseConvolution(**shapes, types=FLOAT32, constant=True, window=window(kernel, stride=stride))


def block_of(layer: DepthwiseConvolution, board: Board) -> Block:
    return Block(layer, backend_of(board).strategy(layer).default())


@pytest.mark.parametrize("board", ["rpi3", "rpi4", "rpi5", "rpi-armhf", "visionfive2"])
@pytest.mark.parametrize(("size", "channels", "stride"), [*MOBILENET, (237, 8, 1), (160, 24, 1), (119, 16, 2)])
@pytest.mark.parametrize("kernel", [3, 5])
def test_copies_stay_in_the_first_cache(board: str, size: int, channels: int, stride: int, kernel: int) -> None:
    profile = load_board(board)
    block = block_of(layer_of(size, channels, stride, kernel), profile)
    assert 0 < block.copied_bytes <= 0.75 * 1024 * profile.cache.l1_kib


@pytest.mark.parametrize("board", ["rpi4", "rpi5"])
@pytest.mark.parametrize(("size", "channels", "stride"), MOBILENET)
def test_a_task_reads_whole_lines(board: str, size: int, channels: int, stride: int) -> None:
    block = block_of(layer_of(size, channels, stride), load_board(board))
    assert block.channels * 4 % LINE == 0
    assert block.tasks >= load_board(board).cores


def test_only_a_plane_whose_rows_exceed_the_first_cache_is_cut_into_columns() -> None:
    """Prefetchers would lose narrower blocks."""
    assert block_of(layer_of(56, 128), load_board("rpi4")).form.tasks_across == 1
    assert block_of(layer_of(1024, 16), load_board("rpi4")).form.tasks_across > 1


@pytest.mark.compiles
@pytest.mark.parametrize(("stride", "rows", "deep"), [(1, 4, 2), (1, 12, 1), (2, 3, 4)])
def test_blocks_of_columns_give_the_reference_s_outputs(tmp_path: Path, stride: int, rows: int, deep: int) -> None:
    """With a stride of 1 there are 11 columns, and the last tile of a row is cropped."""
    size, right = (12, 0) if stride == 1 else (11, 1)
    network = convolution(tmp_path, size, 32, 32, 3, group=32, pads=[1, 1, 1, right], strides=[stride] * 2)
    chosen = Depthwise(tile=Tile(1, 3, 8), rows_per_task=rows, tasks_deep=deep, tasks_across=2, copied=True)
    assert backend_of(LOCAL).strategy(last_layer(network, LOCAL)).fits(chosen)
    assert_takes(network, LOCAL, chosen)


# Atrous convolutions leave out what reads nothing but padding, tile by tile.

CHANNELS = 32


def layer(size: int, padding: int) -> Convolution:
    shapes = {"data": (1, size, size, 8), "weights": (3, 3, 8, 16)}
    return Convolution(**shapes, types=FLOAT32, constant=True, window=window(3, dilation=padding))


@pytest.mark.parametrize(
    ("size", "padding", "tile", "wanted"),
    [
        (20, 12, Tile(1, 1, 16), 1 - 0.6**2),  # 20 - 12 of 20 places meet a pixel before, and behind
        (20, 12, Tile(1, 5, 16), 1 - 0.6 * 8 / 12),
        (20, 12, Tile(1, 20, 16), 0.4),
        (56, 1, Tile(1, 14, 16), 2 / (3 * 56)),
    ],
)
def test_what_is_left_out_is_counted(size: int, padding: int, tile: Tile, wanted: float) -> None:
    assert skipped(layer(size, padding), tile) == pytest.approx(wanted)


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("size", "dilations", "pads", "strides", "outputs"),
    [
        ((20, 20), [12, 12], [12, 12, 12, 12], [1, 1], 32),
        ((19, 14), [9, 5], [9, 5, 7, 6], [1, 1], 64),
        ((23, 21), [8, 10], [10, 9, 6, 11], [2, 3], 48),
        ((20, 20), [6, 6], [6, 6, 6, 6], [1, 1], 1024),  # weights come slice by slice
    ],
    ids=str,
)
def test_atrous_convolutions(
    size: tuple[int, int], dilations: list[int], pads: list[int], strides: list[int], outputs: int
) -> None:
    graph, data = begun(1, 3, *size)
    first = graph.node("Conv", data, graph.normal(CHANNELS, 3, 1, 1))
    weights = graph.normal(outputs, CHANNELS, 3, 3)
    atrous = graph.node("Conv", first, weights, dilations=dilations, pads=pads, strides=strides)
    compiled = agreeing(graph, graph.node("ReduceMax", graph.node("Relu", atrous), axes=[2, 3]))
    [name] = [name for name in compiled.functions if "conv2d" in name and "nchw" not in name]
    assert " if " in compiled.functions[name].function.script().replace("if_then_else", "")


@pytest.mark.compiles
def test_layers_with_little_padding_ask_nothing() -> None:
    graph, data = begun(1, 3, 40, 40)
    first = graph.node("Conv", data, graph.normal(CHANNELS, 3, 1, 1))
    plain = graph.node("Conv", first, graph.normal(CHANNELS, CHANNELS, 3, 3), pads=[1] * 4, strides=[2, 2])
    compiled = agreeing(graph, plain)
    assert not any(" if " in entry.function.script() for entry in compiled.functions.values())
