"""Candidates measured on real servers under a real tracker: times, and what becomes of bad kernels and lost devices."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from support import kernels
from support.commands import generous
from support.networks import Graph
from support.virtual_boards import Start

from edgedeploy.compile.pipeline import lower_network
from edgedeploy.errors import DeviceLostError, RpcError
from edgedeploy.remote.address import address_of
from edgedeploy.remote.place import Place
from edgedeploy.rpc.server import BoardServer
from edgedeploy.rpc.tracker import Endpoint, tracker
from edgedeploy.target.board import load_board
from edgedeploy.tuning.building import Builder
from edgedeploy.tuning.conditions import Throttling
from edgedeploy.tuning.measuring import Measurer, Outcome
from edgedeploy.tuning.remote import Evaluation
from edgedeploy.zoo.source import find_source

# The quick tests have `edgedeploy tune` as a whole, in test_tuning.py.
pytestmark = pytest.mark.slow

QUICK = Evaluation(timeout_s=3)


@pytest.fixture(scope="module")
def farm() -> Iterator[Endpoint]:
    with tracker() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def server(farm: Endpoint) -> Iterator[BoardServer]:
    with BoardServer(None, load_board("local"), farm, "local") as server:
        yield server


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    with Builder(load_board("local")) as builder:
        yield builder


@pytest.fixture
def measurer(farm: Endpoint, server: BoardServer) -> Iterator[Measurer]:
    with Measurer(farm, "local", QUICK, threads=2) as measurer:
        yield measurer


def failures(outcomes: list[Outcome]) -> list[str | None]:
    for outcome in outcomes:
        assert (outcome.failure is None) == (outcome.error is None) == bool(outcome.seconds)
    return [outcome.failure for outcome in outcomes]


def functions(path: Path, board: str) -> list[Any]:
    graph = Graph()
    relu = graph.node("Relu", graph.conv(graph.input("data", [1, 32, 28, 28]), 32, 64, 3, pads=[1, 1, 1, 1]))
    network = find_source(str(graph.save(path, graph.node("GlobalAveragePool", relu)))).read()
    lowered = lower_network(network, load_board(board))
    return [function for each, function in lowered.module.functions.items() if each.name_hint in lowered.functions]


def test_each_function_is_timed(builder: Builder, measurer: Measurer, server: BoardServer, tmp_path: Path) -> None:
    batch = builder.build(functions(tmp_path / "net.onnx", "local"))
    outcomes = measurer.measure(batch)
    assert failures(outcomes) == [None] * len(batch.entries)
    for outcome in outcomes:
        assert len(outcome.seconds) == QUICK.repeat
        assert min(outcome.seconds) > 0
        assert outcome.device == f"127.0.0.1:{server.port}"
    # 28 x 28 x 64 x 32 x 3 x 3 multiplications and additions: no core does 500 of them in a nanosecond.
    assert max(min(outcome.seconds) for outcome in outcomes) > 2 * 28 * 28 * 64 * 32 * 9 / 1e12


def test_the_same_function_takes_the_same_time(builder: Builder, measurer: Measurer) -> None:
    batch = builder.build([kernels.parallel_sum] * 3)
    first, second = measurer.measure(batch), measurer.measure(batch)
    times = [min(outcome.seconds) for outcome in first + second]
    assert max(times) < 10 * min(times)  # others use the processors, too


def test_sixteen_times_the_work_takes_longer(builder: Builder, measurer: Measurer) -> None:
    small, large = measurer.measure(builder.build([kernels.serial_sum, kernels.serial_sum_16]))
    assert 4 < min(large.seconds) / min(small.seconds) < 64


def test_two_threads_are_two_threads(builder: Builder, farm: Endpoint, server: BoardServer) -> None:
    batch = builder.build([kernels.waiting_in_parallel])
    with Measurer(farm, "local", QUICK, threads=1) as alone, Measurer(farm, "local", QUICK, threads=2) as both:
        one = min(alone.measure(batch)[0].seconds)
        two = (min(both.measure(batch)[0].seconds) for _ in range(20))
        # Eight shares that each wait for 5 ms: it needs no processor, but one has to be there after each.
        assert one > 0.039
        assert any(0.019 < seconds < 0.035 for seconds in two)


def test_cold_weights_take_longer_to_read_than_warm_ones(builder: Builder, farm: Endpoint, server: BoardServer) -> None:
    batch = builder.build([kernels.reading_weights])
    beyond_all_caches, nothing = (Evaluation(displaced_bytes=count) for count in (64 << 20, 0))
    with Measurer(farm, "local", beyond_all_caches) as cold, Measurer(farm, "local", nothing) as warm:
        # Other programs displace weights too, so one quiet moment of several is enough.
        pairs = ((*cold.measure(batch), *warm.measure(batch)) for _ in range(10))
        assert any(min(memory.seconds) > 1.2 * min(cache.seconds) for memory, cache in pairs)


def test_whole_numbers_are_zero_for_they_may_be_indices(builder: Builder, measurer: Measurer) -> None:
    assert failures(measurer.measure(builder.build([kernels.gathering]))) == [None]


def test_exactly_the_guilty_are_blamed(builder: Builder, measurer: Measurer) -> None:
    sound = kernels.doubling
    mixed = [sound, kernels.crashing, sound, kernels.endless, kernels.raising, sound, kernels.of_any_size]
    batch = builder.build(mixed)
    began = time.monotonic()
    outcomes = measurer.measure(batch)
    assert time.monotonic() - began < generous(25)
    assert failures(outcomes) == [None, "crash", None, "timeout", "error", None, "build"]
    assert "longer than 3 s" in str(outcomes[3].error)
    assert "no.such.function" in str(outcomes[4].error)


def test_a_batch_of_one_that_crashes_is_a_crash(builder: Builder, measurer: Measurer) -> None:
    assert failures(measurer.measure(builder.build([kernels.crashing]))) == ["crash"]
    assert failures(measurer.measure(builder.build([kernels.unlinkable, kernels.doubling]))) == ["crash", None]


def test_a_batch_of_which_nothing_was_built_needs_no_device(builder: Builder) -> None:
    with Measurer(Endpoint("127.0.0.1", 9), "local") as measurer:
        assert failures(measurer.measure(builder.build([kernels.of_any_size]))) == ["build"]


def test_turns_measure_each_candidate_in_each_round(builder: Builder, measurer: Measurer) -> None:
    batch = builder.build([kernels.doubling, kernels.parallel_sum, kernels.raising, kernels.crashing])
    outcomes = measurer.measure(batch, rounds=3)
    assert failures(outcomes) == [None, None, "error", "crash"]
    assert [len(outcome.seconds) for outcome in outcomes] == [3 * QUICK.repeat] * 2 + [0, 0]


def test_two_devices_share_a_batch(builder: Builder, farm: Endpoint) -> None:
    board = load_board("local")
    batch = builder.build([kernels.doubling] * 4 + [kernels.crashing])
    with BoardServer(None, board, farm, "pair") as one, BoardServer(None, board, farm, "pair") as two:
        with Measurer(farm, "pair", QUICK, devices=2) as measurer:
            outcomes = measurer.measure(batch)
        assert failures(outcomes) == [None] * 4 + ["crash"]
        assert {outcome.device for outcome in outcomes} == {f"127.0.0.1:{one.port}", f"127.0.0.1:{two.port}"}


def test_a_device_that_ends_is_lost_and_measures_again_once_it_is_back(builder: Builder, farm: Endpoint) -> None:
    slow = builder.build([kernels.endless])
    batch = builder.build([kernels.doubling])
    patient = Evaluation(timeout_s=60)
    with (
        BoardServer(None, load_board("local"), farm, "mortal") as server,
        Measurer(farm, "mortal", patient, patience_s=5) as measurer,
    ):
        assert failures(measurer.measure(batch)) == [None]
        threading.Timer(1, server.close).start()
        began = time.monotonic()
        with pytest.raises(DeviceLostError) as lost:
            measurer.measure(slow)
        assert time.monotonic() - began < generous(25)
        assert lost.value.suspect == 0  # it ran when the device went away
        with pytest.raises(DeviceLostError):
            measurer.measure(batch)
        server.revive(30)
        assert failures(measurer.measure(batch)) == [None]


def test_a_device_that_others_use_is_waited_for_as_long_as_patience_lasts(builder: Builder, farm: Endpoint) -> None:
    batch = builder.build([kernels.doubling])
    with (
        BoardServer(None, load_board("local"), farm, "popular"),
        Measurer(farm, "popular", QUICK, patience_s=2) as measurer,
        Measurer(farm, "popular", Evaluation(timeout_s=5)) as other,
    ):
        measurer.start()
        other.start()
        busy = threading.Thread(target=other.measure, args=(builder.build([kernels.endless]),))
        busy.start()
        time.sleep(1)
        with pytest.raises(DeviceLostError, match="no device of key 'popular' was free"):
            measurer.measure(batch)
        busy.join()
        assert failures(measurer.measure(batch)) == [None]


def test_a_library_for_another_machine_is_refused_in_one_session(farm: Endpoint, server: BoardServer) -> None:
    with Builder(load_board("rpi4")) as builder, Measurer(farm, "local", QUICK) as measurer:
        batch = builder.build([kernels.doubling])
        measurer.start()
        began = time.monotonic()
        with pytest.raises(RpcError, match="does not take the libraries") as refused:
            measurer.measure(batch)
        assert not isinstance(refused.value, DeviceLostError)
        assert time.monotonic() - began < generous(10)


def test_ending_a_measurement_ends_its_session(builder: Builder, measurer: Measurer, server: BoardServer) -> None:
    batch = builder.build([kernels.endless])
    running = threading.Thread(target=pytest.raises, args=(DeviceLostError, measurer.measure, batch))
    running.start()
    time.sleep(2)
    measurer.close()
    running.join(10)
    assert not running.is_alive()


@pytest.mark.parametrize("board", ["rpi4", "rpi-armhf"])
def test_a_board_measures_over_ssh(board: str, start: Start, farm: Endpoint, tmp_path: Path) -> None:
    virtual = start(board)
    with (
        BoardServer(address_of(virtual), load_board(board), farm, board) as server,
        Builder(load_board(board)) as builder,
        Measurer(farm, board, Evaluation(timeout_s=20), threads=2) as measurer,
    ):
        outcomes = measurer.measure(builder.build([*functions(tmp_path / "net.onnx", board), kernels.crashing]))
        assert failures(outcomes) == [None] * (len(outcomes) - 1) + ["crash"]
        assert all(median(outcome.seconds) > 0 for outcome in outcomes[:-1])
        assert server.alive
        # Emulation passes on what the kernel says of this machine.
        here = Throttling(lambda script: Place().run(script).text).conditions()
        assert Throttling(server.run).conditions().governor == here.governor
