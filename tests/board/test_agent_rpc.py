"""The agent as a server of TVM's RPC: what docs/agent.md promises of it."""

import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tvm
from support.agents import EMULATED, MAGIC, Server, answer, command_of, greeting, serving, unpacked
from support.commands import becomes, beside, generous, put
from support.listeners import TRACKER_MAGIC
from support.networks import tiny


@pytest.fixture
def server(agent: Path, tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "work").mkdir()
    with serving(agent, tmp_path / "work") as server:
        yield server


@contextmanager
def tracker_port() -> Iterator[tuple[socket.socket, str]]:
    """A port where a server finds what it takes for a tracker, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener, f"127.0.0.1:{listener.getsockname()[1]}"


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
    package = unpacked(tiny(tmp_path / "net.onnx"))
    data = np.fromfile(package / "selftest" / "input-0.bin", np.float32).reshape(1, 3, 8, 8)
    wanted = np.fromfile(package / "selftest" / "output-0.bin", np.float32)
    for _ in range(2):  # one session after the other
        found = over_rpc(server, (package / "model.so").read_bytes(), data)
        np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max(), rtol=0)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(generous(20)) == 0
    assert not list(server.work.iterdir())


def test_a_session_that_takes_too_long_is_ended(server: Server) -> None:
    session = tvm.rpc.connect("127.0.0.1", server.port, key="k", session_timeout=1)
    assert list(server.work.iterdir())
    assert becomes(lambda: not list(server.work.iterdir()))
    with pytest.raises(Exception, match="RPCSessionTimeoutError"):
        session.get_function("runtime.config_threadpool")(1, 1)


def test_messages_to_a_tracker_come_in_one_go(agent: Path, tmp_path: Path) -> None:
    magic = struct.pack("<i", TRACKER_MAGIC)
    with tracker_port() as (listener, address), serving(agent, tmp_path, "--tracker", address):
        connection, _ = listener.accept()
        assert connection.recv(4, socket.MSG_WAITALL) == magic
        connection.sendall(magic)
        for _ in range(2):  # what the server is, and that it waits for clients
            # What comes is acknowledged late, as where nobody speaks first.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            message = connection.recv(1 << 16)  # what is there, which is one segment: others wait for that
            assert struct.unpack_from("<i", message) == (len(message) - 4,)
            connection.sendall(struct.pack("<i", 1) + b"0")
        connection.close()


@pytest.mark.slow
def test_it_ends_with_its_sessions_when_its_heartbeat_stops(agent: Path, tmp_path: Path) -> None:
    with serving(agent, tmp_path, "--heartbeat", "2") as server:
        session = tvm.rpc.connect("127.0.0.1", server.port, key="k")
        for _ in range(8):
            server.process.stdin.write("\n")
            server.process.stdin.flush()
            time.sleep(0.5)
        assert server.process.poll() is None
        assert session.get_function("edgedeploy.target.facts") is not None
        assert server.process.wait(generous(10)) == 0
        with pytest.raises(Exception, match="code=1"):  # kShutdown
            session.get_function("edgedeploy.target.facts")
        del session
        gc.collect()
    assert not list(tmp_path.iterdir())


def test_a_session_says_what_the_machine_is(server: Server, agent: Path) -> None:
    session = tvm.rpc.connect("127.0.0.1", server.port, key="k", session_timeout=60)
    facts = json.loads(session.get_function("edgedeploy.target.facts")())
    del session
    gc.collect()
    told, names = answer(agent, "facts"), ("machine", "elf", "cores", "agent")
    assert [facts[name] for name in names] == [told[name] for name in names]


def test_the_port_of_a_tunnel_is_announced(agent: Path, tmp_path: Path) -> None:
    pytest.importorskip("tornado", reason="TVM's tracker needs tornado: pip install 'edgedeploy[tune]'")
    from edgedeploy.rpc.tracker import require_device, tracker

    options = ("--announce-port", "4321", "--custom-address", "::1")
    with tracker() as endpoint, serving(agent, tmp_path, "--tracker", str(endpoint), *options):
        assert require_device(endpoint, "k").addresses == ("::1:4321",)


GREETING = greeting(b"client:k")


@contextmanager
def dripping(stream: socket.socket, content: bytes, pause_s: float = 0.2) -> Iterator[threading.Event]:
    """The content goes out a byte at a time, over and over; gives what is set when the other side has had enough."""

    def send(over: threading.Event) -> None:
        with suppress(OSError):
            while True:
                for byte in content:
                    stream.sendall(bytes([byte]))
                    if over.wait(pause_s):
                        return
        refused.set()

    refused = threading.Event()
    with beside(send):
        yield refused


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), 20)


def welcomed(server: Server) -> socket.socket:
    """A client that has a session."""
    stream = connected(server)
    stream.sendall(GREETING)
    assert stream.recv(4, socket.MSG_WAITALL) == MAGIC
    return stream


@pytest.mark.slow
@pytest.mark.parametrize("board", ["local", *EMULATED])
def test_slow_greetings_keep_nobody_waiting_and_have_one_deadline(board: str, tmp_path: Path) -> None:
    with serving(command_of(board), tmp_path) as server, ExitStack() as stack:
        streams = [stack.enter_context(connected(server)) for _ in range(12)]
        began = time.monotonic()
        slow = greeting(b"client:k        ")
        drips = [stack.enter_context(dripping(stream, slow, 1)) for stream in streams]
        time.sleep(0.5)
        welcomed(server).close()
        assert time.monotonic() - began < generous(2)
        # A byte a second: none is silent for long, none is done before 24 s.
        assert all(refused.wait(generous(10)) for refused in drips)
        assert 4 < time.monotonic() - began < generous(5)


def test_more_silent_clients_than_are_waited_for_keep_nobody_out(server: Server) -> None:
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connected(server))
        began = time.monotonic()
        welcomed(server).close()
        assert time.monotonic() - began < generous(2)


@pytest.mark.slow
def test_clients_that_greet_at_once_are_served_one_after_the_other(server: Server) -> None:
    with welcomed(server) as first, connected(server) as second, connected(server) as third:
        for stream in (second, third):
            stream.sendall(GREETING)
        second.settimeout(6)  # longer than a greeting may take
        with pytest.raises(TimeoutError):
            second.recv(4)
        first.close()
        second.settimeout(generous(20))
        assert second.recv(4, socket.MSG_WAITALL) == MAGIC
        second.close()
        assert third.recv(4, socket.MSG_WAITALL) == MAGIC


Start = Callable[[Sequence[str], Path, ExitStack], Server]


def idle(agent: Sequence[str], work: Path, stack: ExitStack) -> Server:
    return stack.enter_context(serving(agent, work, "--heartbeat", "60"))


def waiting_for_a_greeting(agent: Sequence[str], work: Path, stack: ExitStack) -> Server:
    server = idle(agent, work, stack)
    stack.enter_context(dripping(stack.enter_context(connected(server)), GREETING))
    return server


def in_a_session(agent: Sequence[str], work: Path, stack: ExitStack) -> Server:
    server = idle(agent, work, stack)
    stream = stack.enter_context(welcomed(server))
    stack.enter_context(dripping(stream, struct.pack("<q", 1 << 20)))  # the length of a message
    return server


def in_an_idle_session(agent: Sequence[str], work: Path, stack: ExitStack) -> Server:
    server = idle(agent, work, stack)
    stack.callback(gc.collect)
    stack.callback(id, tvm.rpc.connect("127.0.0.1", server.port, key="k"))  # which keeps it until then
    return server


def under_a_tracker(says: bytes, agent: Sequence[str], work: Path, stack: ExitStack) -> Server:
    listener, address = stack.enter_context(tracker_port())
    server = stack.enter_context(serving(agent, work, "--heartbeat", "60", "--tracker", address))
    stream = stack.enter_context(listener.accept()[0])
    assert stream.recv(4, socket.MSG_WAITALL) == struct.pack("<i", TRACKER_MAGIC)
    if says:
        stack.enter_context(dripping(stream, says))
    return server


def under_a_tracker_that_takes_no_connection(agent: Sequence[str], work: Path, stack: ExitStack) -> Server:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    for _ in range(3):  # what the kernel keeps; beyond that it does not answer
        stream = stack.enter_context(socket.socket())
        stream.setblocking(False)
        stream.connect_ex(listener.getsockname())
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    return stack.enter_context(serving(agent, work, "--heartbeat", "60", "--tracker", address))


def while_a_name_is_asked_for(agent: Sequence[str], work: Path, stack: ExitStack) -> Server:
    """In a name space of its own, whose name server says nothing."""
    name_server = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    try:
        name_server.bind(("127.0.0.97", 53))
        subprocess.run(["unshare", "-m", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root has name servers")
    settings = put(work.parent / f"{work.name}.conf", "nameserver 127.0.0.97\noptions timeout:30\n")
    script = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
    isolated = ["unshare", "-m", "sh", "-c", script, str(settings), *agent]
    server = stack.enter_context(serving(isolated, work, "--heartbeat", "60", "--tracker", "board.example:9190"))
    name_server.settimeout(generous(10))
    assert b"example" in name_server.recv(512)
    return server


def while_nobody_reads_its_messages(agent: Sequence[str], work: Path, stack: ExitStack) -> Server:
    _, writer = map(stack.enter_context, map(open, os.pipe(), "rw"))
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    server = stack.enter_context(serving(agent, work, "--heartbeat", "60", stderr=writer.fileno()))
    for _ in range(100):  # each refusal is a line of more than fifty bytes
        with connected(server) as stream, suppress(ConnectionResetError):
            stream.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert stream.recv(1) == b""
    assert not select.select([], [writer], [], 0)[1]
    welcomed(server).close()
    return server


SLOWLY = struct.pack("<ii", TRACKER_MAGIC, 1 << 20) + b" " * 100
STATES = {
    "idle": idle,
    "waiting_for_a_greeting": waiting_for_a_greeting,
    "in_a_session": in_a_session,
    "in_an_idle_session": in_an_idle_session,
    "under_a_silent_tracker": partial(under_a_tracker, b""),
    "under_a_slow_tracker": partial(under_a_tracker, SLOWLY),
    "under_a_tracker_that_takes_no_connection": under_a_tracker_that_takes_no_connection,
    "while_a_name_is_asked_for": while_a_name_is_asked_for,
    "while_nobody_reads_its_messages": while_nobody_reads_its_messages,
}


# Agents of other boards take minutes to build.
@pytest.mark.quick("SIGTERM-*-local", *(f"the end of its input-{each}-local" for each in ("idle", "in_a*_session")))
@pytest.mark.parametrize("board", ["local", *EMULATED])
@pytest.mark.parametrize("start", STATES.values(), ids=STATES)
@pytest.mark.parametrize("how", ["SIGTERM", "the end of its input"])
def test_it_ends_when_asked_to_in_every_state(board: str, start: Start, how: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = start(command_of(board), tmp_path, stack)
        time.sleep(0.3)
        assert server.process.poll() is None
        if how == "SIGTERM":
            server.process.terminate()
        else:
            server.end_input()
        assert server.process.wait(generous(8)) == 0
    assert not list(tmp_path.iterdir())


def test_it_ends_under_a_silent_tracker_when_its_heartbeat_stops(agent: Path, tmp_path: Path) -> None:
    with tracker_port() as (_, address), serving(agent, tmp_path, "--heartbeat", "1", "--tracker", address) as server:
        assert server.process.wait(generous(4)) == 0


@pytest.mark.slow
def test_a_tracker_that_answers_a_byte_at_a_time_is_left_and_tried_again(agent: Path, tmp_path: Path) -> None:
    with tracker_port() as (listener, address), serving(agent, tmp_path, "--tracker", address):
        with listener.accept()[0] as stream:
            answer = struct.pack("<ii", TRACKER_MAGIC, 1 << 20) + b" " * 1000
            with dripping(stream, answer, 1) as refused:
                assert refused.wait(generous(10))
        listener.settimeout(generous(10))
        listener.accept()[0].close()


@pytest.mark.slow
@pytest.mark.parametrize("answer", [b"{}", b"[7]", b"nonsense", b"\xff"])
def test_what_a_tracker_answers_does_not_end_it(agent: Path, tmp_path: Path, answer: bytes) -> None:
    magic = struct.pack("<i", TRACKER_MAGIC)
    with tracker_port() as (listener, address), serving(agent, tmp_path, "--tracker", address) as server:
        with listener.accept()[0] as stream:
            stream.sendall(magic + (struct.pack("<i", len(answer)) + answer) * 4)
            with suppress(OSError):
                while stream.recv(4096):
                    pass
        listener.settimeout(generous(10))
        listener.accept()[0].close()
        assert server.process.poll() is None
