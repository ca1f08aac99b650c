"""`edgedeploy rpc`: parts in the background, what is shown of them, and that an end is an end."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Command
from support.commands import becomes, generous, output_of, refused, started
from support.listeners import device, listening

from edgedeploy.rpc.tracker import tracker

# The quick tests have `edgedeploy tune` as a whole, in test_tuning.py.
pytestmark = pytest.mark.slow

pytest.importorskip("tornado", reason="TVM's tracker needs tornado: pip install 'edgedeploy[tune]'")


@pytest.fixture(autouse=True)
def _nothing_stays(command: Command) -> Iterator[None]:
    yield
    command("rpc", "stop", "--all")


def status(command: Command) -> dict[str, object]:
    return dict(json.loads(output_of(command, "rpc", "status", "--json")))


def port_of(command: Command) -> int:
    [part] = status(command)["running"]
    return int(part["addresses"][0].rpartition(":")[2])


def tracker_of(command: Command) -> int:
    """The port of a tracker that was started in the background."""
    output_of(command, "rpc", "tracker", "--port", 0, "--detach")
    return port_of(command)


def test_where_nothing_runs_that_is_said(command: Command) -> None:
    assert "no tracker" in command("rpc", "status")[1]
    assert status(command) == {"running": [], "trackers": {}}
    assert command("rpc", "stop", "--all")[:2] == (0, "")
    assert command("rpc", "stop", "nothing")[0] == 4
    assert command("rpc", "stop")[0] == 7


def test_a_tracker_in_the_background_is_listed_and_stopped(command: Command) -> None:
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


def test_devices_names_do_not_reach_the_terminal_as_they_are(command: Command) -> None:
    with tracker() as endpoint, device(endpoint, "[red]k\x1b[2J", 7007, "1"):
        assert r"[red]k\x1b[2J" in output_of(command, "rpc", "status", "--tracker", endpoint)


def test_a_tracker_whose_process_was_killed_leaves_nothing(command: Command) -> None:
    port = tracker_of(command)
    [part] = status(command)["running"]
    os.kill(part["pid"], signal.SIGKILL)
    assert becomes(lambda: not listening(port))
    assert status(command)["running"] == []
    assert not list((Path(os.environ["XDG_STATE_HOME"]) / "edgedeploy" / "rpc").iterdir())


def test_ctrl_c_ends_a_tracker_in_the_foreground(command: Command) -> None:
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


def test_a_process_that_is_not_ours_is_not_ended(command: Command) -> None:
    command("rpc", "tracker", "--port", 0, "--detach")
    [record] = (Path(os.environ["XDG_STATE_HOME"]) / "edgedeploy" / "rpc").glob("*.json")
    content = json.loads(record.read_text())
    with started("sleep", "600") as other:
        content["process"]["pid"] = other.pid
        content["name"] = "impostor"
        record.with_name(f"{other.pid}.json").write_text(json.dumps(content))
        assert "no tracker or server 'impostor'" in refused(command, 4, "rpc", "stop", "impostor")
        assert other.poll() is None


def test_a_server_registers_with_the_tracker_that_runs_here(command: Command) -> None:
    port = tracker_of(command)
    assert "mine runs at" in output_of(command, "rpc", "server", "--detach", "--key", "mine")
    assert becomes(lambda: "mine" in status(command)["trackers"][f"127.0.0.1:{port}"])
    assert "mine-2 runs at" in output_of(command, "rpc", "server", "--detach", "--key", "mine")
    assert "mine-2" in command("rpc", "status")[1]
    assert command("rpc", "stop", "mine", "mine-2")[0] == 0
    known = status(command)["trackers"][f"127.0.0.1:{port}"]
    assert known.get("mine", {"total": 0})["total"] == 0


def test_what_keeps_a_background_part_from_starting_is_said(command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert "in use" in refused(command, 19, "rpc", "tracker", "--port", listener.getsockname()[1], "--detach")
    assert status(command)["running"] == []


def test_listening_beyond_loopback_is_warned_of(command: Command) -> None:
    code, _, err = command("rpc", "tracker", "--port", 0, "--host", "0.0.0.0", "--detach")
    assert (code, "warning: anyone who reaches 0.0.0.0" in err) == (0, True), err


def test_a_tracker_that_does_not_answer_is_an_error(command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "no tracker answers" in refused(command, 19, "rpc", "status", "--tracker", f"127.0.0.1:{port}")
    assert command("rpc", "status", "--tracker", "nonsense")[0] == 7
