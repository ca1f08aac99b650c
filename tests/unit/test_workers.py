"""Worker processes: calls, what becomes of those that fail, and that no process stays."""

import functools
import gc
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.commands import becomes, generous

from edgedeploy.base.workers import Worker, WorkerCrashError, WorkerError, WorkerTimeoutError, send
from edgedeploy.errors import EdgedeployError, InputError


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with Worker(os.getpid, tmp_path / "log.txt") as worker:
        yield worker


def test_one_process_answers_many_calls_and_is_gone_when_it_is_closed(worker: Worker) -> None:
    [pid] = {worker.call(os.getpid, timeout_s=generous(10)) for _ in range(3)}
    assert pid != os.getpid()
    worker.close()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(WorkerError, match="closed"):
        worker.call(os.getpid, timeout_s=generous(10))


def test_an_error_is_told_and_the_process_goes_on(worker: Worker) -> None:
    pid = worker.call(os.getpid, timeout_s=generous(10))
    with pytest.raises(WorkerError, match="ValueError: math domain error"):
        worker.call(math.sqrt, -1.0, timeout_s=generous(10))
    with pytest.raises(WorkerError, match="InputError: no such image: it is gone") as caught:
        worker.call(refusing, timeout_s=generous(10))
    assert isinstance(caught.value.__cause__, InputError)
    assert caught.value.__cause__.hints == ("name another",)
    assert worker.call(os.getpid, timeout_s=generous(10)) == pid


def test_every_error_of_edgedeploys_own_can_be_sent() -> None:
    kinds = [EdgedeployError]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each.__module__.startswith("edgedeploy.")]
        error = kind("it happened", why="so")
        assert vars(pickle.loads(pickle.dumps(error))) == vars(error)
    assert len(kinds) > 20


def test_what_a_call_started_ends_with_it(worker: Worker) -> None:
    pid = worker.call(starting, timeout_s=generous(10))
    worker.close()
    assert becomes(lambda: not Path(f"/proc/{pid}/exe").exists())


def test_a_call_that_takes_too_long_is_ended_and_the_next_one_is_answered(worker: Worker) -> None:
    pid = worker.call(os.getpid, timeout_s=generous(10))
    began = time.monotonic()
    with pytest.raises(WorkerTimeoutError, match=r"longer than 0\.5 s"):
        worker.call(time.sleep, 60, timeout_s=0.5)
    assert time.monotonic() - began < generous(5)
    assert not Path(f"/proc/{pid}").exists()
    assert worker.call(math.sqrt, 4.0, timeout_s=generous(10)) == 2


def test_a_crash_is_told_with_the_last_words(worker: Worker) -> None:
    worker.call(os.write, 2, b"before\nthe reason\n", timeout_s=generous(10))
    with pytest.raises(WorkerCrashError, match=r"it crashed \(SIGABRT\): the reason"):
        worker.call(os.abort, timeout_s=generous(10))
    assert worker.call(math.sqrt, 4.0, timeout_s=generous(10)) == 2


def test_a_failed_write_leaves_nothing_that_the_collector_complains_about(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    with pytest.raises(BrokenPipeError) as caught:
        send(ours, bytes(1000))
    cycle: list[object] = [caught.value]
    cycle.append(cycle)
    del caught, cycle
    gc.collect()
    assert not complaints


def test_items_come_one_by_one(worker: Worker) -> None:
    assert list(worker.stream(counting, 3, timeout_s=generous(10))) == [0, 1, 2]
    items = worker.stream(counting, 1000, timeout_s=generous(10))
    assert next(items) == 0
    items.close()
    assert worker.call(math.sqrt, 4.0, timeout_s=generous(10)) == 2


def test_a_worker_that_cannot_prepare_itself_says_why(tmp_path: Path) -> None:
    with Worker(failing, tmp_path / "log.txt") as worker:
        for _ in range(2):  # it is not taken for prepared afterwards
            with pytest.raises(WorkerError, match="ImportError: no such module"):
                worker.start()


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.3])
def test_closing_from_another_thread_breaks_the_call(worker: Worker, delay_s: float) -> None:
    worker.call(os.getpid, timeout_s=generous(10))
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(worker.call, time.sleep, 60, timeout_s=100)
        time.sleep(delay_s)
        worker.close()
        with pytest.raises(WorkerError):
            call.result(timeout=generous(10))


class ClosingOnTheWay:
    worker: Worker
    closing: threading.Thread

    def __call__(self) -> None:
        raise AssertionError("this one stays here")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        self.closing = threading.Thread(target=self.worker.close)
        self.closing.start()
        self.closing.join(0.5)
        return functools.partial, (os.getpid,)


def test_closing_from_another_thread_breaks_the_start(tmp_path: Path) -> None:
    before = set(multiprocessing.active_children())
    prepare = ClosingOnTheWay()
    prepare.worker = Worker(prepare, tmp_path / "log.txt")
    with pytest.raises(WorkerError):
        prepare.worker.start()
    prepare.closing.join(generous(10))
    assert set(multiprocessing.active_children()) == before


CALLING = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # which background jobs are started without
from pathlib import Path
from edgedeploy.base.workers import Worker

if __name__ == "__main__":
    worker = Worker(os.getpid, Path(sys.argv[1]))
    print(worker.call(os.getpid, timeout_s=60), flush=True)
    worker.call(time.sleep, float(sys.argv[2]), timeout_s=600)
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("call_s", [600, 0], ids=["in the middle of a call", "idle"])
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_a_worker_ends_with_its_parent(tmp_path: Path, ending: signal.Signals, call_s: int) -> None:
    (tmp_path / "parent.py").write_text(CALLING)
    (tmp_path / "files").mkdir()
    for number in range(2000):  # so that removing them takes a moment
        (tmp_path / "files" / f"{number}.o").touch()
    command = [sys.executable, str(tmp_path / "parent.py"), str(tmp_path / "files" / "log.txt"), str(call_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        pid = int(parent.stdout.readline())
        time.sleep(0.3)
        parent.send_signal(ending)
        parent.wait(generous(10))
    assert becomes(lambda: not Path(f"/proc/{pid}").exists())
    assert ending == signal.SIGINT or not (tmp_path / "files").exists()


def counting(count: int) -> Iterator[int]:
    yield from range(count)


def refusing() -> None:
    raise InputError("no such image", why="it is gone", hints=["name another"])


def starting() -> int:
    return subprocess.Popen(["sleep", "1000"]).pid


def failing() -> None:
    raise ImportError("no such module")
