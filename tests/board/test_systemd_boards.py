"""Virtual boards that systemd runs: a service on one survives what kills it, a reboot, and a pushed release."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from conftest import Command
from support.agents import unpack
from support.board_releases import two_packages
from support.commands import output_of
from support.patience import until
from support.services import BASE, Client
from support.virtual_boards import Start

from edgedeploy.errors import VirtualBoardError
from edgedeploy.virtual.board import VirtualBoard, _systemd_of, down, reboot
from edgedeploy.virtual.process import Process

pytestmark = pytest.mark.slow

SERVICE_S = 240  # emulated, on a machine with other work


@pytest.fixture(scope="module", params=["rpi4", "rpi-armhf"])
def board(request: pytest.FixtureRequest, start: Start) -> Iterator[VirtualBoard]:
    try:
        virtual = start(request.param, name=f"{request.param}-system", systemd=True)
    except VirtualBoardError as error:
        if "control groups" in str(error):
            pytest.skip(str(error))
        raise
    yield virtual
    down(virtual)


@pytest.fixture(scope="module")
def packages(board: VirtualBoard, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return two_packages(board.board, tmp_path_factory.mktemp("packages"))


@pytest.fixture
def at(board: VirtualBoard) -> tuple[str, ...]:
    return ("--board", board.board, "--host", f"virtual:{board.name}")


def said(board: VirtualBoard, *words: str) -> str:
    """What a command prints there."""
    command = ["ssh", "-F", "none", "-i", board.key, "-p", str(board.port), f"{board.user}@127.0.0.1"]
    options = ["-o", f"UserKnownHostsFile={board.known_hosts}", "-o", "LogLevel=ERROR"]
    return subprocess.run([*command, *options, *words], capture_output=True, text=True, check=False).stdout


def events(board: VirtualBoard) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said(board, f"cat {BASE}/logs/digits.jsonl").splitlines()]


def count(board: VirtualBoard, event: str) -> int:
    return sum(each["event"] == event for each in events(board))


def client(board: VirtualBoard) -> Client:
    """A program on the board, as the kernel sees it: it finds the socket in the board's files."""
    return Client(Path(f"/proc/{_systemd_of(board)}/root/run/user/1000/edgedeploy-digits/socket"))


@contextmanager
def frames(board: VirtualBoard, content: bytes) -> Iterator[list[dict[str, Any]]]:
    """The replies to frames that are sent one after another while the block runs."""
    replies: list[dict[str, Any]] = []
    ended = Event()

    def send() -> None:
        with client(board) as one:
            while not ended.is_set():
                replies.append(one.ask("run", content)[0])

    sender = Thread(target=send)
    sender.start()
    try:
        yield replies
    finally:
        ended.set()
        sender.join(60)


def test_a_service_survives_a_kill_a_reboot_and_a_pushed_release(
    board: VirtualBoard, packages: tuple[Path, Path], at: tuple[str, ...], board_command: Command, tmp_path: Path
) -> None:
    folder = unpack(packages[0], tmp_path / "package")
    content = (folder / "selftest" / "input-0.bin").read_bytes()
    wanted = np.fromfile(folder / "selftest" / "output-0.bin", np.float32)

    def asked() -> str:
        with client(board) as one:
            reply, outputs = one.ask("run", content)
        assert reply["ok"], reply
        np.testing.assert_allclose(np.frombuffer(outputs, np.float32), wanted, atol=1e-4)
        return str(reply["release"])

    def status() -> dict[str, Any]:
        return dict(json.loads(output_of(board_command, "service", "status", "digits", *at, "--json")))

    def is_ready(times: int) -> Callable[[], bool]:
        return lambda: count(board, "ready") == times

    output_of(board_command, "push", packages[0], *at)
    made = json.loads(output_of(board_command, "service", "install", "digits", *at, "--json"))
    assert made["lingers"]
    first = asked()
    assert status()["release"] == first

    said(board, f"kill -9 {status()['pid']}")
    until(is_ready(2), SERVICE_S)
    assert asked() == first
    assert status()["restarts"] == 1

    before = said(board, "cat /proc/sys/kernel/random/boot_id; ps -o pid,args")
    assert "systemd" in before
    reboot(board)
    until(is_ready(3), SERVICE_S)  # the log goes on, though nobody has logged in to start it
    assert asked() == first
    after = status()
    assert (after["active"], after["enabled"], after["restarts"]) == (True, True, 0)

    with frames(board, content) as replies:
        until(lambda: len(replies) > 5, SERVICE_S)
        output_of(board_command, "push", packages[1], *at)
        until(lambda: replies[-1]["release"] != first, SERVICE_S)
        seen = len(replies)
        until(lambda: len(replies) > seen + 5, SERVICE_S)
    assert all(reply["ok"] for reply in replies)
    releases = [reply["release"] for reply in replies]
    second = releases[-1]
    assert releases == [first] * releases.count(first) + [second] * releases.count(second)
    [switched] = [each for each in events(board) if each["event"] == "switched"]
    assert (switched["before"], switched["release"]) == (first, second)
    assert count(board, "ready") == 3
    assert count(board, "failed") == 0

    output_of(board_command, "service", "uninstall", "digits", *at)
    reboot(board)
    assert not said(board, f"ls {BASE}/logs").split()


def test_files_stay_and_processes_go(board: VirtualBoard, board_command: Command) -> None:
    said(board, "echo here >kept; nohup sleep 1000 >/dev/null 2>&1 &")
    output_of(board_command, "virtual", "reboot", board.name)
    assert said(board, "cat kept") == "here\n"
    assert "sleep 1000" not in said(board, "ps")


def test_one_without_systemd_cannot_be_rebooted(start: Start) -> None:
    virtual = start("local")
    with pytest.raises(VirtualBoardError, match="has no systemd"):
        reboot(virtual)
    with pytest.raises(VirtualBoardError, match="runs without systemd"):
        start("local", systemd=True)


def test_one_that_is_still_starting_is_not_rebooted(tmp_path: Path) -> None:
    starting = Process.start(["sleep", "60"], tmp_path / "log")  # systemd is no child of it yet
    virtual = VirtualBoard(
        name="rpi4",
        board="rpi4",
        suite="bookworm",
        architecture="arm64",
        emulated=True,
        systemd=True,
        user="edge",
        port=1,
        process=starting,
    )
    try:
        with pytest.raises(VirtualBoardError, match="is starting or ending"):
            reboot(virtual)
    finally:
        starting.end()
    with pytest.raises(VirtualBoardError, match="is starting or ending"):
        reboot(virtual)
