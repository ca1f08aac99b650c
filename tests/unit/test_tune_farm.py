"""Measuring when the tracker goes away: it is started again, and no board is to blame."""

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import pytest
from support.listeners import listening, owner, sockets
from support.notebook import Notebook
from support.patience import becomes, beside
from support.rpc_clients import device

from edgedeploy.errors import NoTrackerError
from edgedeploy.rpc.server import BoardServer
from edgedeploy.rpc.tracker import Endpoint, require_device, tracker
from edgedeploy.tuning import measuring
from edgedeploy.tuning.building import Batch, Entry
from edgedeploy.tuning.measuring import Farm, Measurer
from edgedeploy.tuning.remote import Begun, Done

pytest.importorskip("tornado", reason="TVM's tracker needs tornado: pip install 'edgedeploy[tune]'")

BATCH = Batch([Entry("sum", (), library=Path(__file__)), Entry("product", (), library=Path(__file__))])


def session(device: Endpoint, secret: str, jobs: Sequence[Entry], *rest: object) -> Iterator[Begun | Done]:
    """A session on a device where nothing takes any time; runs in the measurer's worker."""
    for index in range(len(jobs)):
        yield Begun(index)
        yield Done(index, (0.001,))


class Board:
    name, port = "board", 7001

    def __init__(self) -> None:
        self.revived = 0

    def revive(self, deadline_s: float) -> None:
        self.revived += 1

    def run(self, script: str) -> str:
        return ""


@pytest.fixture
def measuring_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "session", session)
    monkeypatch.setattr(measuring, "_prepare", os.getpid)


@contextmanager
def begun_late(endpoint: Endpoint, wait_s: float) -> Iterator[None]:
    """A tracker with a device for two sessions, which is not there before `wait_s` seconds are over."""

    def serve(done: threading.Event) -> None:
        time.sleep(wait_s)
        with ExitStack() as stack:
            stack.enter_context(tracker(endpoint.port))
            for number in range(2):
                stack.enter_context(device(endpoint, "k", Board.port, f"secret-{number}"))
            done.wait(60)

    with beside(serve):
        yield


def free_endpoint() -> Endpoint:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return Endpoint(*listener.getsockname())


@pytest.mark.slow
@pytest.mark.usefixtures("measuring_at_once")
def test_a_tracker_that_is_away_is_waited_for_and_no_board_is_given_up() -> None:
    board, endpoint = Board(), free_endpoint()
    with Measurer(endpoint, "k") as measurer:
        measurer.start()
        farm = Farm([cast(BoardServer, board)], measurer, endpoint, "k", told := Notebook())
        with begun_late(endpoint, 1):
            outcomes = farm.measure(BATCH)
            turns = farm.measure(BATCH, rounds=3)
    assert list(told.counts.values()) == [(2, 2), (6, 6)]
    assert [len(outcome.seconds) for outcome in turns] == [3, 3]
    assert [outcome.seconds for outcome in outcomes] == [[0.001]] * 2
    assert [outcome.device for outcome in outcomes] == [board.name] * 2
    assert board.revived == 0


@pytest.mark.usefixtures("measuring_at_once")
def test_a_tracker_that_stays_away_is_named_and_not_the_board() -> None:
    board = Board()
    with Measurer(Endpoint("127.0.0.1", 9), "k", tracker_s=1) as measurer:
        farm = Farm([cast(BoardServer, board)], measurer, Endpoint("127.0.0.1", 9), "k", Notebook())
        with pytest.raises(NoTrackerError, match="no tracker answers") as lost:
            farm.measure(BATCH)
    assert board.revived == 0
    assert not any("power" in hint for hint in lost.value.hints)


def test_a_run_that_begins_waits_for_its_tracker_too() -> None:
    endpoint = free_endpoint()
    with begun_late(endpoint, 1):
        assert require_device(endpoint, "k", 30, patient=True).total
    with pytest.raises(NoTrackerError):
        require_device(endpoint, "k", 30)


@pytest.mark.slow
def test_a_tracker_is_started_again_however_often_it_ends() -> None:
    notebook = Notebook()
    with tracker(progress=notebook) as endpoint:
        for _ in range(7):
            assert becomes(lambda: listening(endpoint.port), 30)
            os.kill(owner(sockets()[endpoint.host, endpoint.port]), 9)
            assert becomes(lambda: not listening(endpoint.port))
        assert becomes(lambda: listening(endpoint.port), 30)
    assert sum("started again" in line for line in notebook.lines) == 7
