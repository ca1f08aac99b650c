"""Garbage sent to the agent, of which it takes no harm; with sanitizers in `make test-all`, which see what it hides."""

import json
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from support.agents import MAGIC, TOOLCHAINS, answer, call, greeting, known_toolchain, request, serving, unpacked
from support.fuzzing import damaged
from support.listeners import TRACKER_MAGIC
from support.networks import tiny

from edgedeploy.agent.build import agent_for
from edgedeploy.target.board import load_board

GREETING = greeting(b"client:k -timeout=0.0001")


@pytest.fixture(scope="module", params=TOOLCHAINS)
def toolchain(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def many(toolchain: str) -> Callable[[int], int]:
    """How many cases there are of so many: without the sanitizers, which are for the slow tests, a fortieth."""
    return lambda count: count // 40 if toolchain == TOOLCHAINS[0] else count


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tiny(tmp_path_factory.mktemp("package") / "net.onnx"))


@pytest.fixture
def agent(toolchain: str, package: Path, tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "toolchain").mkdir()
    with known_toolchain(toolchain, tmp_path / "toolchain"):
        yield agent_for(load_board("local"), toolchain).path


@contextmanager
def ending_well(agent: Path, work: Path, *options: str) -> Iterator[int]:
    """The port of a server, which ends well when it is asked to."""
    work.mkdir()
    with serving(agent, work, "--heartbeat", "600", *options, stderr=subprocess.DEVNULL) as server:
        yield server.port
        assert server.process.poll() is None
        server.end_input()
        assert server.process.wait(20) == 0
    assert not list(work.iterdir())


def said_to(port: int, content: bytes) -> bytes:
    """What comes back for some bytes and the end of them."""
    with socket.create_connection(("127.0.0.1", port), 30) as stream, suppress(OSError):
        stream.sendall(content)
        stream.shutdown(socket.SHUT_WR)
        return stream.recv(1 << 16)
    return b""


def test_greetings(agent: Path, many: Callable[[int], int], tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    with ending_well(agent, tmp_path / "work") as port:
        for number in range(many(12_000)):
            content = damaged(GREETING, random) if number % 4 else random.bytes(int(random.integers(64)))
            said_to(port, content)
        assert said_to(port, GREETING).startswith(MAGIC)


def test_messages_of_sessions(agent: Path, many: Callable[[int], int], tmp_path: Path) -> None:
    """What they do in their own process is TVM's business, but the server goes on."""
    random = np.random.default_rng(2)
    # Their length, and what TVM asks of a server first: its protocol's version (`RPCCode`, rpc_reference.h).
    message = struct.pack("<qi", 32, 3) + b"0.27.0" + bytes(22)
    with ending_well(agent, tmp_path / "work") as port:
        for _ in range(many(200)):
            said_to(port, GREETING + damaged(message, random))
        assert said_to(port, GREETING).startswith(MAGIC)


def test_answers_of_trackers(agent: Path, many: Callable[[int], int], tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    sound = struct.pack("<ii", TRACKER_MAGIC, 1) + b"0" + struct.pack("<i", 1) + b"0" + struct.pack("<i", 4) + b'["k"]'
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with ending_well(agent, tmp_path / "work", "--tracker", address):
            for _ in range(max(1, many(10))):
                with listener.accept()[0] as stream, suppress(OSError):
                    stream.sendall(damaged(sound, random))
                    stream.shutdown(socket.SHUT_WR)
                    while stream.recv(4096):
                        pass


def test_requests(agent: Path, package: Path, many: Callable[[int], int]) -> None:
    random = np.random.default_rng(4)
    data = (package / "selftest" / "input-0.bin").read_bytes()
    commands = ("run", "measure", "measure-end-to-end", "profile")
    requests = [*(request(command, data, id="x", repeat=2, warmup=0) for command in commands), request("status")]
    for _ in range(many(200)):
        chosen = [requests[int(random.integers(len(requests)))] for _ in range(3)]
        head, _, rest = damaged(chosen[1].partition(b"\n")[0], random).partition(b"\n")
        done = call(agent, "serve", package, stdin=chosen[0] + head + b"\n" + rest + chosen[2])
        assert done.returncode in (0, 7), done.stderr


def test_packages(agent: Path, package: Path, many: Callable[[int], int], tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    manifest = (package / "manifest.json").read_bytes()
    for number in range(many(200)):
        shutil.copytree(package, tmp_path / "damaged", dirs_exist_ok=True)
        (tmp_path / "damaged" / "manifest.json").write_bytes(damaged(manifest, random))
        command = ("verify", "selftest", "run")[number % 3]
        options = ["--fill", "selftest"] if command == "run" else []
        done = call(agent, command, tmp_path / "damaged", *options)
        assert done.returncode in (0, 6, 7, 8), done.stderr
        shutil.rmtree(tmp_path / "damaged")


def test_what_is_sound_passes(agent: Path, package: Path, tmp_path: Path) -> None:
    """All commands, as they should be: what the sanitizers see must be seen where nothing is wrong, too."""
    files = json.loads((package / "manifest.json").read_text())["files"]
    assert answer(agent, "verify", package)["files"] == len(files)
    assert answer(agent, "selftest", package)["passed"]
    assert answer(agent, "run", package, "--fill", "ones", "--output-dir", tmp_path / "out")["outputs"]
    assert answer(agent, "facts")["cores"]
