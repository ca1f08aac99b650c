"""The agent as a server of TVM's RPC: what docs/agent.md promises of it."""

from __future__ import annotations

import gc
import json
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tvm
from agents import answer, unpack
from networks import tiny
from rpc_clients import TRACKER_MAGIC

from edgedeploy.agent.build import agent_for
from edgedeploy.board import load_board
from edgedeploy.build import build
from edgedeploy.source import find_source

WITHOUT_TORNADO = "TVM's tracker needs tornado: pip install 'edgedeploy[tune]'"

# A server whose tests are killed should not stay.
ENDING_WITH_US = ("setpriv", "--pdeathsig", "TERM")


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    port: int
    work: Path

    def beat(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture(scope="module")
def agent() -> Path:
    return agent_for(load_board("local")).path


@contextmanager
def serving(agent: Path, work: Path, *options: str) -> Iterator[Server]:
    command = [*ENDING_WITH_US, str(agent), "rpc", "--port", "0", "--key", "k", "--work-dir", str(work), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(process, json.loads(process.stdout.readline())["port"], work)
        finally:
            process.terminate()


@pytest.fixture
def server(agent: Path, tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "work").mkdir()
    with serving(agent, tmp_path / "work") as server:
        yield server


def over_rpc(server: Server, library: bytes, data: np.ndarray) -> np.ndarray:
    """The output of a network that is uploaded under a name that leads out of the work folder."""
    session = tvm.rpc.connect("127.0.0.1", server.port, key="k", session_timeout=60)
    session.upload(bytearray(library), target="../../escaped.so")
    assert list(server.work.glob("*/escaped.so"))
    machine = tvm.relax.VirtualMachine(session.load_module("escaped.so"), session.cpu())
    found = machine["main"](tvm.runtime.tensor(data, session.cpu())).numpy().reshape(-1)
    del machine, session
    gc.collect()  # the connection closes with the last object that came over it
    return found


def test_an_uploaded_network_runs_and_nothing_of_it_stays(server: Server, tmp_path: Path) -> None:
    archive = build(find_source(str(tiny(tmp_path / "net.onnx"))), "local", tmp_path / "net.tar.gz").path
    package = unpack(archive, tmp_path / "package")
    data = np.fromfile(package / "selftest" / "input-0.bin", np.float32).reshape(1, 3, 8, 8)
    wanted = np.fromfile(package / "selftest" / "output-0.bin", np.float32)
    for _ in range(2):  # one session after the other
        found = over_rpc(server, (package / "model.so").read_bytes(), data)
        np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max(), rtol=0)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    assert not list(server.work.iterdir())


def test_a_session_that_takes_too_long_is_ended(server: Server) -> None:
    session = tvm.rpc.connect("127.0.0.1", server.port, key="k", session_timeout=1)
    time.sleep(2.5)
    with pytest.raises(Exception, match="RPCSessionTimeoutError"):
        session.get_function("runtime.config_threadpool")(1, 1)


def test_clients_of_a_tracker_are_served(agent: Path, tmp_path: Path) -> None:
    pytest.importorskip("tornado", reason=WITHOUT_TORNADO)
    from tvm.rpc import connect_tracker
    from tvm.rpc.tracker import Tracker

    tracker = Tracker("127.0.0.1", port=9390, port_end=9490)
    try:
        with serving(agent, tmp_path, "--tracker", f"127.0.0.1:{tracker.port}") as server:
            for _ in range(2):
                session = connect_tracker("127.0.0.1", tracker.port).request("k", session_timeout=30)
                assert session.get_function("runtime.SaveParams") is not None
                del session
                gc.collect()
            server.process.terminate()
            assert server.process.wait(20) == 0
    finally:
        tracker.terminate()


def test_messages_to_a_tracker_come_in_one_go(agent: Path, tmp_path: Path) -> None:
    magic = struct.pack("<i", TRACKER_MAGIC)
    waited = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with serving(agent, tmp_path, "--tracker", address), listener.accept()[0] as connection:
            assert connection.recv(4, socket.MSG_WAITALL) == magic
            connection.sendall(magic)
            for _ in range(2):  # what the server is, and that it waits for clients
                # What comes is acknowledged late, as where nobody speaks first.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
                (size,) = struct.unpack("<i", connection.recv(4, socket.MSG_WAITALL))
                began = time.monotonic()
                connection.recv(size, socket.MSG_WAITALL)
                waited.append(time.monotonic() - began)
                connection.sendall(struct.pack("<i", 1) + b"0")
    assert min(waited) < 0.035  # an acknowledgement takes 40 ms


def test_it_ends_with_its_sessions_when_its_heartbeat_stops(agent: Path, tmp_path: Path) -> None:
    with serving(agent, tmp_path, "--heartbeat", "2") as server:
        session = tvm.rpc.connect("127.0.0.1", server.port, key="k")
        for _ in range(8):
            server.beat()
            time.sleep(0.5)
        assert server.process.poll() is None
        assert session.get_function("edgedeploy.facts") is not None
        assert server.process.wait(10) == 0
        with pytest.raises(Exception, match="code=1"):  # kShutdown
            session.get_function("edgedeploy.facts")
        del session
        gc.collect()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("with_session", [False, True])
def test_it_ends_when_its_input_does(agent: Path, tmp_path: Path, with_session: bool) -> None:
    with serving(agent, tmp_path, "--heartbeat", "60") as server:
        session = tvm.rpc.connect("127.0.0.1", server.port, key="k") if with_session else None
        assert server.process.stdin is not None
        server.process.stdin.close()
        assert server.process.wait(10) == 0
        del session
        gc.collect()
    assert not list(tmp_path.iterdir())


def test_a_session_says_what_the_machine_is(server: Server, agent: Path) -> None:
    session = tvm.rpc.connect("127.0.0.1", server.port, key="k", session_timeout=60)
    facts = json.loads(session.get_function("edgedeploy.facts")())
    del session
    gc.collect()
    told = answer(agent, "facts")
    assert {name: facts[name] for name in ("machine", "elf", "cores", "agent")} == {
        name: told[name] for name in ("machine", "elf", "cores", "agent")
    }


def test_the_port_of_a_tunnel_is_announced(agent: Path, tmp_path: Path) -> None:
    pytest.importorskip("tornado", reason=WITHOUT_TORNADO)
    from edgedeploy.rpc.tracker import require_device, tracker

    with (
        tracker() as endpoint,
        serving(agent, tmp_path, "--tracker", str(endpoint), "--announce-port", "4321", "--custom-address", "::1"),
    ):
        assert require_device(endpoint, "k").addresses == ("::1:4321",)
