"""The agent for tests: built once for each content of its sources, kept between runs of the tests, and called."""

import ctypes
import json
import re
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgedeploy.agent.build import DEFAULT_TOOLCHAIN, Agent, Product, agent_for, build_product
from edgedeploy.agent.recipe import AGENT, own_sources
from edgedeploy.building import Built, build
from edgedeploy.demo.usage import find_use
from edgedeploy.package.abi import read_abi
from edgedeploy.package.archive import manifest_bytes, read_package
from edgedeploy.package.manifest import MANIFEST_NAME, Abi
from edgedeploy.target.board import Board, load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.target.triples import architecture_of, multiarch
from edgedeploy.virtual.emulation import emulator
from edgedeploy.zoo.source import find_source
from support.commands import generous, put, started

# One board of each architecture that this machine may not be, and qemu's name of it.
EMULATED = {name: architecture_of(load_board(name).triple).qemu for name in ("rpi4", "rpi-armhf", "visionfive2")}


@pytest.fixture(scope="session")
def agent(_own_user_folders: None) -> Path:
    """This machine's."""
    return agent_for(load_board("local")).path


def command_of(board: str) -> list[str]:
    """How a board's agent is called here; a test that needs an emulator which is not installed is skipped."""
    profile = load_board(board)
    return [*(emulation_here(profile) if board in EMULATED else []), str(agent_for(profile).path)]


def emulation_here(board: Board) -> list[str]:
    """How programs of a board's architecture are called here; skips the test where they cannot be."""
    qemu = architecture_of(board.triple).qemu
    program, root = emulator(qemu) if qemu else None, Path("/usr", multiarch(board.triple))
    if program is None or not (root / "lib").is_dir():
        pytest.skip(f"needs qemu-{qemu} and {root}: scripts/system_packages.sh virtual-boards")
    return [program, "-L", str(root)]


# A toolchain whose programs end at the first wrong access to memory and the first undefined behaviour. It takes
# minutes to compile TVM's runtime, once.
SANITIZED = "sanitized"
_SANITIZED_FILE = """
description: this machine's C++ compiler with the address and undefined-behaviour sanitizers
linkers: [[gcc]]
compilers: [[g++]]
options: ["-fsanitize=address,undefined", -fno-sanitize-recover=undefined, -fno-omit-frame-pointer]
install: apt install g++
architectures: native
"""

# What they report, but for memory that is not given: that is an exit code of the tests' own.
_FINDING = r"ERROR: (?!AddressSanitizer: (requested allocation size|allocator is out of memory))|runtime error"

# With and without it: parameters of fixtures.
TOOLCHAINS = [DEFAULT_TOOLCHAIN, pytest.param(SANITIZED, marks=pytest.mark.slow)]


@contextmanager
def known_toolchain(toolchain: str, folder: Path) -> Iterator[None]:
    """Within the block the sanitizers' toolchain can be named, and findings of what runs are the test's failure."""
    if toolchain != SANITIZED:
        yield
        return
    reports = folder / "reports"
    reports.mkdir()
    put(folder / "toolchains" / f"{SANITIZED}.yaml", _SANITIZED_FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for variable in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            patch.setenv(variable, f"log_path={reports}/{variable}:print_stacktrace=1:exitcode=99")
        yield
    found = [path.read_text(errors="replace") for path in reports.iterdir()]
    # TVM asks for as much memory as the client of a session says; its process may be killed while it reports that.
    assert [text for text in found if re.search(_FINDING, text)] == []


def build_probe(toolchain: str = DEFAULT_TOOLCHAIN) -> Agent:
    sources = [path for path in own_sources() if path.name != "main.cc"]
    probe = AGENT / "tests" / "probe.cc"
    return build_product(Product.executable("probe", [*sources, probe]), load_board("local"), toolchain)


@pytest.fixture(scope="module", params=TOOLCHAINS)
def probe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The agent's parts as a program, which tests call one by one."""
    with known_toolchain(request.param, tmp_path_factory.mktemp("probe")):
        yield build_probe(request.param).path


def unpack(archive: Path, folder: Path) -> Path:
    manifest, contents = read_package(archive)
    for name, content in {**contents, MANIFEST_NAME: manifest_bytes(manifest)}.items():
        put(folder / name, content)
    return folder


def packaged(network: Path, board: str = "local") -> Built:
    return build(find_source(str(network)), resolve(board), network.with_suffix(".tar.gz"))


def unpacked(network: Path, board: str = "local") -> Path:
    return unpack(packaged(network, board).path, network.with_suffix(""))


def digits(path: Path, board: str = "local", **options: Any) -> Path:
    """The package of the bundled network."""
    return build(find_source("digits"), resolve(board), path, **options).path


def digits_with_use(path: Path, board: str = "local", **options: Any) -> Path:
    """The same, and it says how images become its input."""
    return digits(path, board, use=find_use("digits"), **options)


def assert_needs_little(path: Path, board: str, *, most_bytes: int) -> Abi:
    """A program or library is small, has the C++ library in itself, and runs with glibc 2.28; what it needs."""
    assert path.stat().st_size <= most_bytes
    abi = read_abi(path, load_board(board))
    assert not [name for name in abi.libraries if "c++" in name or "gcc" in name]
    assert [int(part) for part in (abi.glibc or "0").split(".")] <= [2, 28]
    return abi


def call(agent: Path, *arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [str(agent), *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=generous(300), check=False)
    need_what_it_lacks(done.stderr.decode(errors="replace"))
    return done


def need_what_it_lacks(said: str) -> None:
    """Skip the test if the agent says that it lacks a library, and this machine lacks it as well."""
    if missing := re.search(r"there is no (lib\w+\.so\.\d+); sudo ([\w -]+)", said):
        need_library(missing[1], missing[2])


def need_library(name: str, hint: str) -> None:
    """Skip the test if this machine lacks a library that the agent opens where it needs it."""
    try:
        ctypes.CDLL(name)
    except OSError:
        pytest.skip(f"this machine has no {name}: {hint}")


def need_jpeg() -> None:
    need_library("libjpeg.so.62", "apt install libjpeg62-turbo")


def request(command: str, content: bytes = b"", **fields: object) -> bytes:
    """What an agent that serves is sent: a line, and the content that it announces."""
    return json.dumps({"command": command, "bytes": len(content), **fields}).encode() + b"\n" + content


def answer(agent: Path, *arguments: object) -> Any:
    done = call(agent, *arguments)
    assert done.returncode == 0, done.stderr.decode()
    [line] = done.stdout.decode().splitlines()
    return json.loads(line)


def messages(content: bytes) -> list[tuple[Any, bytes]]:
    """What an agent says: lines of JSON, each with the content that it announces."""
    found = []
    while content:
        line, _, content = content.partition(b"\n")
        assert len(line) < 65536
        said = json.loads(line)
        count = said.get("bytes", 0)
        found.append((said, content[:count]))
        content = content[count:]
    return found


# Agents that serve TVM's RPC, and what clients send them first: tvm/rpc/base.py.
MAGIC = struct.pack("<i", 0xFF271)


@dataclass(frozen=True)
class Server:
    """A server that listens for clients of key `k`, and its folder for sessions."""

    process: subprocess.Popen[str]
    port: int
    work: Path

    def end_input(self) -> None:
        self.process.stdin.close()


@contextmanager
def serving(agent: Path | Sequence[str], work: Path, *options: str, stderr: int | None = None) -> Iterator[Server]:
    called = [agent] if isinstance(agent, Path) else agent
    ending_with_us = ("setpriv", "--pdeathsig", "TERM")  # also where the tests are killed
    command = [*ending_with_us, *called, "rpc", "--port", "0", "--key", "k", "--work-dir", work, *options]
    pipe = subprocess.PIPE
    with started(*command, stdin=pipe, stdout=pipe, stderr=stderr, text=True) as process:
        yield Server(process, json.loads(process.stdout.readline())["port"], work)


def greeting(text: bytes) -> bytes:
    return MAGIC + struct.pack("<i", len(text)) + text
