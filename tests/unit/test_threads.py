"""Networks run on as many threads as they are told, which are their own and end with them."""

import gc
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from support.networks import begun

from edgedeploy.building import Prepared, prepare
from edgedeploy.runtime.session import Session
from edgedeploy.target.resolved import resolve

pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one processor"),
]

IMAGE = {"data": np.random.default_rng(0).standard_normal((1, 16, 96, 96)).astype(np.float32)}


def shared_work(path: Path) -> Path:
    graph, data = begun(1, 16, 96, 96)
    wide = graph.node("Relu", graph.conv(data, 16, 48, 3, pads=[1] * 4, strides=[2, 2]))
    small = graph.node("Relu", graph.conv(wide, 48, 160, 5, strides=[5, 5]))
    return graph.save(path, small)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(str(shared_work(tmp_path_factory.mktemp("threads") / "net.onnx")), resolve("local"))


def native_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def added_threads(action: Callable[[], object]) -> int:
    before = native_threads()
    _kept = action()
    return native_threads() - before


def of_each_thread(name: str) -> list[str]:
    """What the kernel says of each thread of this process, in its file of that name."""
    return [(each / name).read_text(encoding="ascii") for each in Path("/proc/self/task").iterdir()]


def times_asleep() -> int:
    """How often threads of this process have given their processor away of their own accord."""
    lines = [line for text in of_each_thread("status") for line in text.splitlines()]
    return sum(int(line.split()[-1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def nanoseconds_queued() -> int:
    """How long threads of this process were ready to run while other processes had the processors."""
    return sum(int(text.split()[1]) for text in of_each_thread("schedstat"))


def outputs(session: Session) -> np.ndarray:
    [array] = session.run(IMAGE).values()
    return array


def test_the_calling_thread_is_one_of_them(package: Prepared) -> None:
    opened = [package.open(threads=1)]  # what TVM itself starts is there now
    assert added_threads(lambda: opened.append(package.open(threads=1))) == 0
    assert added_threads(lambda: opened.append(package.open(threads=2))) == 1


def test_they_end_with_the_session(package: Prepared) -> None:
    session = package.open(threads=2)
    outputs(session)
    gc.collect()  # sessions of other tests end here, not below
    before = native_threads()
    del session
    gc.collect()
    assert native_threads() == before - 1


def test_any_number_gives_the_same_bits(each_cpu: str, tmp_path: Path) -> None:
    prepared = prepare(str(shared_work(tmp_path / "net.onnx")), resolve("local"))
    alone, together = prepared.open(threads=1), prepared.open(threads=2)
    for _ in range(200):
        assert np.array_equal(outputs(alone), outputs(together))


def test_they_stay_awake_from_one_function_to_the_next(package: Prepared) -> None:
    session = package.open(threads=2)
    call = session.bind(IMAGE)
    call()
    runs, batches, asleep, deadline = 5, 40, [], time.monotonic() + 120
    while len(asleep) < batches and time.monotonic() < deadline:
        before, queued = times_asleep(), nanoseconds_queued()
        for _ in range(runs):
            call()
        if nanoseconds_queued() - queued < 200_000:  # else other processes had sent one thread to sleep, which the
            asleep.append(times_asleep() - before)  # other one waits for; to wake up takes some microseconds
    assert len(asleep) == batches, "other processes had the processors all the time"
    assert sum(asleep) < batches * runs / 2


def test_they_wake_after_a_rest(package: Prepared) -> None:
    session = package.open(threads=2)
    expected = outputs(session)
    for pause in (0.0, 0.001, 0.05):
        time.sleep(pause)
        assert np.array_equal(outputs(session), expected)


def test_two_sessions_run_at_the_same_time(package: Prepared) -> None:
    expected, wrong = outputs(package.open(threads=1)), []

    def call() -> None:
        session = package.open(threads=2)
        wrong.extend(number for number in range(50) if not np.array_equal(outputs(session), expected))

    with ThreadPoolExecutor(2) as pool:
        for caller in [pool.submit(call) for _ in range(2)]:
            caller.result()
    assert not wrong


def test_each_stores_its_own_values_alone(tmp_path: Path) -> None:
    """Channels of two feature maps as heads of rows: where one map follows the other depends on the head."""
    graph, data = begun(1, 8, 14, 14)
    joined = graph.node("Concat", graph.conv(data, 8, 192, 1), graph.conv(data, 8, 192, 1), axis=1)
    heads = graph.reshape(joined, 1, 8, 48, 196)
    path = graph.save(tmp_path / "net.onnx", graph.node("Transpose", heads, perm=[0, 1, 3, 2]))
    prepared = prepare(str(path), resolve("local"))
    image = {"data": np.random.default_rng(0).standard_normal((1, 8, 14, 14)).astype(np.float32)}
    [expected] = prepared.open(threads=1).run(image).values()
    for _ in range(30):
        session = prepared.open(threads=2)
        for _ in range(10):
            [found] = session.run(image).values()
            np.testing.assert_array_equal(found, expected)
