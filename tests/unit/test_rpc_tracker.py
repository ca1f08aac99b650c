"""Trackers: started, asked, ended; what does not answer as one is said to, in time."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from conftest import Command
from support.commands import Notebook, becomes, beside, generous, output_of, refused, started
from support.listeners import TRACKER_MAGIC, beyond_loopback, device, listening, owner, sockets

from edgedeploy.errors import InputError, NoTrackerError, RpcError
from edgedeploy.rpc.tracker import Endpoint, request, require_device, summary, tracker
from edgedeploy.tuning import measuring
from edgedeploy.tuning.building import Batch, Entry
from edgedeploy.tuning.measuring import Farm, Measurer
from edgedeploy.tuning.remote import Begun, Done

pytest.importorskip("tornado", reason="TVM's tracker needs tornado: pip install 'edgedeploy[tune]'")


@pytest.fixture(scope="module")
def running() -> Iterator[Endpoint]:
    with tracker() as endpoint:
        yield endpoint


def test_a_tracker_listens_on_loopback_alone_and_ends_with_its_block() -> None:
    with beyond_loopback() as beyond:
        with tracker() as endpoint:
            assert listening(endpoint.port)
            assert summary(endpoint) == {}
        assert not listening(endpoint.port)
    assert beyond == set()
    # One beyond it would be seen.
    with beyond_loopback() as beyond, tracker(host="0.0.0.0") as endpoint:
        assert becomes(lambda: ("0.0.0.0", endpoint.port) in beyond)


def test_devices_are_counted_by_key(running: Endpoint) -> None:
    with device(running, "a", 7001, "1"), device(running, "a", 7002, "2"), device(running, "b", 7003, "3"):
        known = summary(running)
        assert (known["a"].total, known["a"].free, known["a"].pending) == (2, 2, 0)
        assert known["a"].addresses == ("127.0.0.1:7001", "127.0.0.1:7002")
        assert known["b"].total == 1
    assert becomes(lambda: not any(devices.total for devices in summary(running).values()))


def test_a_request_takes_a_device_and_its_secret(running: Endpoint) -> None:
    with device(running, "taken", 7004, "s"):
        assert request(running, "taken", 5) == (Endpoint("127.0.0.1", 7004), "taken:s")
        assert summary(running)["taken"].free == 0
        with pytest.raises(RpcError, match="no device of key 'taken' was free"):
            request(running, "taken", 1)


def test_answers_come_in_one_go(running: Endpoint) -> None:
    def taken() -> float:
        began = time.monotonic()
        summary(running)
        return time.monotonic() - began

    # An answer that waits for an acknowledgement always takes 40 ms; others sometimes do, on a busy machine.
    assert any(taken() < 0.03 for _ in range(200))


def test_a_key_without_devices_is_said_with_those_that_have_some(running: Endpoint) -> None:
    began = time.monotonic()
    with device(running, "rpi4", 7005, "1"), pytest.raises(RpcError, match="no device for key 'rpi5'") as refused:
        require_device(running, "rpi5", 2)
    assert "'rpi4'" in str(refused.value)
    assert time.monotonic() - began < generous(5)


def test_a_device_that_registers_late_is_waited_for(running: Endpoint) -> None:
    def register(done: threading.Event) -> None:
        time.sleep(1)
        with device(running, "late", 7006, "1"):
            done.wait(generous(20))

    with beside(register):
        assert require_device(running, "late", 15).total == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        struct.pack("<i", 0xFF271 + 2),
        struct.pack("<ii", TRACKER_MAGIC, -1),
        struct.pack("<ii", TRACKER_MAGIC, 2**31 - 1),
        struct.pack("<ii", TRACKER_MAGIC, 3) + b"[0]",
        struct.pack("<ii", TRACKER_MAGIC, 4) + b"[1,2",
        struct.pack("<ii", TRACKER_MAGIC, 6) + b"[0,[]]",
        struct.pack("<ii", TRACKER_MAGIC, 200) + b"[" * 200,
        struct.pack("<ii", TRACKER_MAGIC, 40) + b'[0,{"queue_info":{"a":7},"server_info":5}',
    ],
)
@pytest.mark.parametrize("stays", [True, False], ids=["silent after", "closes after"])
def test_what_is_no_tracker_is_said_to_be_none(answer: bytes, stays: bool) -> None:
    def serve(done: threading.Event) -> None:
        stream, _ = listener.accept()
        with stream, suppress(OSError):  # who asked may have turned away already
            stream.sendall(answer)
            stream.shutdown(socket.SHUT_WR) if not stays else None
            done.wait(generous(20))

    with socket.create_server(("127.0.0.1", 0)) as listener, beside(serve):
        began = time.monotonic()
        with pytest.raises(RpcError, match="no tracker answers"):
            summary(Endpoint(*listener.getsockname()), 1)
    assert time.monotonic() - began < generous(5)


def test_nobody_at_the_address_is_said() -> None:
    with pytest.raises(RpcError, match="no tracker answers") as refused:
        summary(free_endpoint())
    assert "Connection refused" in str(refused.value)


def test_a_port_that_is_taken_and_an_address_of_another_machine_are_said(running: Endpoint) -> None:
    with pytest.raises(RpcError, match="the tracker does not start") as refused, tracker(running.port):
        pass
    assert "in use" in str(refused.value)
    assert any("another port" in hint for hint in refused.value.hints)
    with pytest.raises(RpcError, match="the tracker does not start") as refused, tracker(0, host="203.0.113.9"):
        pass
    assert list(refused.value.hints) == ["listen on this machine alone: leave out --host"]


@pytest.mark.parametrize("times", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_a_tracker_that_is_killed_is_started_again_at_its_port(times: int) -> None:
    notebook = Notebook()
    with tracker(progress=notebook) as endpoint:
        for _ in range(times):
            os.kill(owner(sockets()[endpoint.host, endpoint.port]), signal.SIGKILL)
            assert becomes(lambda: not listening(endpoint.port))
            assert becomes(lambda: listening(endpoint.port), 30)
        assert summary(endpoint) == {}
    assert sum("started again" in line for line in notebook.lines) == times


HOLD = """
import time
from edgedeploy.rpc.tracker import tracker

with tracker() as endpoint:
    print(endpoint.port, flush=True)
    time.sleep(600)
"""


def test_a_tracker_does_not_outlive_who_started_it() -> None:
    with started(sys.executable, "-c", HOLD, stdout=subprocess.PIPE, text=True) as holder:
        port = int(holder.stdout.readline())
        assert listening(port)
    assert becomes(lambda: not listening(port))


@pytest.mark.parametrize(("text", "host", "port"), [("farm:9190", "farm", 9190), ("[::1]:80", "::1", 80)])
def test_an_address_is_read_and_written(text: str, host: str, port: int) -> None:
    assert Endpoint.parse(text) == Endpoint(host, port)
    assert str(Endpoint.parse(text)) == text


@pytest.mark.parametrize("text", ["", "farm", "farm:", ":9190", "farm:0", "farm:65536", "-o:1", "a b:1", "farm:9190x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not an address"):
        Endpoint.parse(text)


# Measuring when the tracker goes away: it is started again, and no board is to blame.


BATCH = Batch([Entry("sum", (), library=Path(__file__)), Entry("product", (), library=Path(__file__))])


def session(device: Endpoint, secret: str, jobs: Batch, *rest: object) -> Iterator[Begun | Done]:
    """A session on a device where nothing takes any time; runs in the measurer's worker."""
    for index in range(len(jobs.entries)):
        yield Begun(index)
        yield Done(index, (0.001,))


PORT = 7001


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """A board of which nothing is known, and whose sessions take no time."""
    monkeypatch.setattr(measuring, "session", session)
    monkeypatch.setattr(measuring, "_prepare", os.getpid)
    made = Mock(spec=["name", "port", "revive", "run"], port=PORT, **{"run.return_value": ""})
    made.name = "board"
    return made


@contextmanager
def begun_late(endpoint: Endpoint, wait_s: float) -> Iterator[None]:
    """A tracker with a device for two sessions, which is not there before `wait_s` seconds are over."""

    def serve(done: threading.Event) -> None:
        time.sleep(wait_s)
        with ExitStack() as stack:
            stack.enter_context(tracker(endpoint.port))
            for number in range(2):
                stack.enter_context(device(endpoint, "k", PORT, f"secret-{number}"))
            done.wait(60)

    with beside(serve):
        yield


def free_endpoint() -> Endpoint:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return Endpoint(*listener.getsockname())


@pytest.mark.slow
def test_a_tracker_that_is_away_is_waited_for_and_no_board_is_given_up(board: Mock) -> None:
    endpoint = free_endpoint()
    with Measurer(endpoint, "k") as measurer:
        measurer.start()
        farm = Farm([board], measurer, told := Notebook())
        with begun_late(endpoint, 1):
            outcomes = farm.measure(BATCH)
            turns = farm.measure(BATCH, rounds=3)
    assert list(told.counts.values()) == [(2, 2), (6, 6)]
    assert [len(outcome.seconds) for outcome in turns] == [3, 3]
    assert [outcome.seconds for outcome in outcomes] == [[0.001]] * 2
    assert [outcome.device for outcome in outcomes] == ["board"] * 2
    assert not board.revive.called


def test_a_tracker_that_stays_away_is_named_and_not_the_board(board: Mock) -> None:
    with Measurer(Endpoint("127.0.0.1", 9), "k", tracker_s=1) as measurer:
        farm = Farm([board], measurer, Notebook())
        with pytest.raises(NoTrackerError, match="no tracker answers") as lost:
            farm.measure(BATCH)
    assert not board.revive.called
    assert not any("power" in hint for hint in lost.value.hints)


def test_a_run_that_begins_waits_for_its_tracker_too() -> None:
    endpoint = free_endpoint()
    with begun_late(endpoint, 1):
        assert require_device(endpoint, "k", 30, patient=True).total
    with pytest.raises(NoTrackerError):
        require_device(endpoint, "k", 30)


def status(command: Command) -> dict[str, object]:
    return dict(json.loads(output_of(command, "rpc", "status", "--json")))


def port_of(command: Command) -> int:
    [part] = status(command)["running"]
    return int(part["addresses"][0].rpartition(":")[2])


def tracker_of(command: Command) -> int:
    """The port of a tracker that was started in the background."""
    output_of(command, "rpc", "tracker", "--port", 0, "--detach")
    return port_of(command)


@pytest.mark.slow  # the quick tests have `edgedeploy tune` as a whole, in test_tuning.py
class TestCommand:
    """`edgedeploy rpc`: parts in the background, what is shown of them, and that an end is an end."""

    @pytest.fixture(autouse=True)
    def _nothing_stays(self, command: Command) -> Iterator[None]:
        yield
        command("rpc", "stop", "--all")

    def test_where_nothing_runs_that_is_said(self, command: Command) -> None:
        assert "no tracker" in command("rpc", "status")[1]
        assert status(command) == {"running": [], "trackers": {}}
        assert command("rpc", "stop", "--all")[:2] == (0, "")
        assert command("rpc", "stop", "nothing")[0] == 4
        assert command("rpc", "stop")[0] == 7

    def test_a_tracker_in_the_background_is_listed_and_stopped(self, command: Command) -> None:
        out = output_of(command, "rpc", "tracker", "--port", 0, "--detach")
        port = port_of(command)
        assert f"127.0.0.1:{port}" in out
        assert listening(port)
        assert status(command)["trackers"] == {f"127.0.0.1:{port}": {}}
        assert f"tracker-{port}" in command("rpc", "status")[1]
        assert command("rpc", "status", "--tracker", f"127.0.0.1:{port}")[0] == 0
        assert command("rpc", "stop", f"tracker-{port}")[0] == 0
        assert becomes(lambda: not listening(port))
        assert status(command)["running"] == []

    def test_devices_names_do_not_reach_the_terminal_as_they_are(self, command: Command) -> None:
        with tracker() as endpoint, device(endpoint, "[red]k\x1b[2J", 7007, "1"):
            assert r"[red]k\x1b[2J" in output_of(command, "rpc", "status", "--tracker", endpoint)

    def test_a_tracker_whose_process_was_killed_leaves_nothing(self, command: Command) -> None:
        port = tracker_of(command)
        [part] = status(command)["running"]
        os.kill(part["pid"], signal.SIGKILL)
        assert becomes(lambda: not listening(port))
        assert status(command)["running"] == []
        assert not list((Path(os.environ["XDG_STATE_HOME"]) / "edgedeploy" / "rpc").iterdir())

    def test_ctrl_c_ends_a_tracker_in_the_foreground(self, command: Command) -> None:
        arguments = [sys.executable, "-m", "edgedeploy", "rpc", "tracker", "--port", "0"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert becomes(lambda: status(command)["running"], 60)
            port = port_of(command)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=generous(30))
        assert (process.returncode, err) == (0, "")
        assert f"tracker at 127.0.0.1:{port}" in out
        assert not listening(port)
        assert status(command)["running"] == []

    def test_a_process_that_is_not_ours_is_not_ended(self, command: Command) -> None:
        command("rpc", "tracker", "--port", 0, "--detach")
        [record] = (Path(os.environ["XDG_STATE_HOME"]) / "edgedeploy" / "rpc").glob("*.json")
        content = json.loads(record.read_text())
        with started("sleep", "600") as other:
            content["process"]["pid"] = other.pid
            content["name"] = "impostor"
            record.with_name(f"{other.pid}.json").write_text(json.dumps(content))
            assert "no tracker or server 'impostor'" in refused(command, 4, "rpc", "stop", "impostor")
            assert other.poll() is None

    def test_a_server_registers_with_the_tracker_that_runs_here(self, command: Command) -> None:
        port = tracker_of(command)
        assert "mine runs at" in output_of(command, "rpc", "server", "--detach", "--key", "mine")
        assert becomes(lambda: "mine" in status(command)["trackers"][f"127.0.0.1:{port}"])
        assert "mine-2 runs at" in output_of(command, "rpc", "server", "--detach", "--key", "mine")
        assert "mine-2" in command("rpc", "status")[1]
        assert command("rpc", "stop", "mine", "mine-2")[0] == 0
        known = status(command)["trackers"][f"127.0.0.1:{port}"]
        assert known.get("mine", {"total": 0})["total"] == 0

    def test_what_keeps_a_background_part_from_starting_is_said(self, command: Command) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            assert "in use" in refused(command, 19, "rpc", "tracker", "--port", listener.getsockname()[1], "--detach")
        assert status(command)["running"] == []

    def test_listening_beyond_loopback_is_warned_of(self, command: Command) -> None:
        code, _, err = command("rpc", "tracker", "--port", 0, "--host", "0.0.0.0", "--detach")
        assert (code, "warning: anyone who reaches 0.0.0.0" in err) == (0, True), err

    def test_a_tracker_that_does_not_answer_is_an_error(self, command: Command) -> None:
        assert "no tracker answers" in refused(command, 19, "rpc", "status", "--tracker", free_endpoint())
        assert command("rpc", "status", "--tracker", "nonsense")[0] == 7
