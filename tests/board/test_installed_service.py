"""`edgedeploy service` with the systemd of a user: installed, killed, hung, rebooted, switched, and removed."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import Command
from support.agents import unpack
from support.board_releases import Bench, two_packages
from support.commands import beside, executable, json_of, need, output_of, put, refused, until
from support.services import BASE, FIRST, SECOND, Client, Home, UserSystemd, events, user_systemd
from support.virtual_boards import Start, said

from edgedeploy.errors import InputError, ServiceError, VirtualBoardError
from edgedeploy.remote import connection
from edgedeploy.remote.place import Place
from edgedeploy.service.systemd import LOGS, Choices, Service, unit_text
from edgedeploy.virtual.board import VirtualBoard, _systemd_of, down, reboot


@pytest.fixture
def systemd(home: Home) -> Iterator[UserSystemd]:
    with user_systemd(home.folder) as made:
        yield made


def log_of(home: Path) -> list[dict[str, Any]]:
    return events((home / BASE / "logs" / "digits.jsonl").read_text().splitlines())


def count(log: list[dict[str, Any]], event: str) -> int:
    return sum(each["event"] == event for each in log)


def client(runtime: Path) -> Client:
    return Client(runtime / "edgedeploy-digits" / "socket")


def service_of(systemd: UserSystemd, model: str = "digits") -> Service:
    return Service(systemd.run, model, "here")


class TestWithSystemd:
    @pytest.mark.slow
    def test_it_answers_follows_releases_and_survives_kills_and_hangs(self, home: Home, systemd: UserSystemd) -> None:
        made = service_of(systemd).install(Choices("200M", "150%", watchdog_s=2))
        assert (made.unit, made.socket) == ("edgedeploy-digits.service", "$XDG_RUNTIME_DIR/edgedeploy-digits/socket")
        with client(systemd.runtime) as one:
            home.assert_right(FIRST, *one.ask("run", home.inputs[FIRST]))
            home.switch(SECOND)
            until(lambda: count(log_of(home.folder), "switched"))
            home.assert_right(SECOND, *one.ask("run", home.inputs[SECOND]))

        said = service_of(systemd).status()
        assert (said["active"], said["state"], said["restarts"]) == (True, "active (running)", 0)
        assert (said["enabled"], said["release"]) == (True, SECOND)

        systemd.kill(said["pid"], signal.SIGKILL)
        until(lambda: count(log_of(home.folder), "ready") == 2)
        with client(systemd.runtime) as one:
            home.assert_right(SECOND, *one.ask("run", home.inputs[SECOND]))

        systemd.kill(service_of(systemd).status()["pid"], signal.SIGSTOP)
        until(lambda: count(log_of(home.folder), "ready") == 3)
        said = service_of(systemd).status()
        assert said["restarts"] == 2

        service_of(systemd).control("stop")
        said = service_of(systemd).status()
        assert (said["active"], said["pid"]) == (False, None)
        assert log_of(home.folder)[-1]["event"] == "ended"
        service_of(systemd).control("start")
        assert count(log_of(home.folder), "ready") == 4
        logs = systemd.run(LOGS, str(BASE), "digits", "2", "").text.splitlines()
        assert [json.loads(line) for line in logs] == log_of(home.folder)[-2:]

        service_of(systemd).control("uninstall")
        assert not (systemd.runtime / "edgedeploy-digits").exists()
        assert not list((home.folder / BASE / "logs").iterdir())
        with pytest.raises(ServiceError, match="here has no service edgedeploy-digits"):
            service_of(systemd).status()
        assert (home.releases / "current").is_symlink()

    def test_it_starts_with_the_users_systemd_after_all_processes_were_killed(self, home: Home) -> None:
        with user_systemd(home.folder) as before:
            service_of(before).install(Choices())
            socket = before.runtime / "edgedeploy-digits" / "socket"
            with client(before.runtime) as one:
                home.assert_right(FIRST, *one.ask("run", home.inputs[FIRST]))
        until(lambda: not socket.exists())
        with user_systemd(home.folder) as next_time:
            until(lambda: count(log_of(home.folder), "ready") == 2)
            with client(next_time.runtime) as one:
                home.assert_right(FIRST, *one.ask("run", home.inputs[FIRST]))
            assert service_of(next_time).status()["enabled"]

    def test_one_that_does_not_start_says_why_and_changes_nothing(self, home: Home, systemd: UserSystemd) -> None:
        units = home.folder / ".config" / "systemd" / "user"
        with pytest.raises(ServiceError, match=r"edgedeploy-digits does not start on here: .*no-such-camera"):
            service_of(systemd).install(Choices(camera="/dev/no-such-camera"))
        assert not list(units.glob("*.service"))
        service_of(systemd).install(Choices())
        with pytest.raises(ServiceError, match=r"no-such-camera.*; the board is unchanged"):
            service_of(systemd).install(Choices(camera="/dev/no-such-camera"))
        assert [unit.name for unit in units.iterdir() if unit.is_file()] == ["edgedeploy-digits.service"]
        with client(systemd.runtime) as one:
            home.assert_right(FIRST, *one.ask("run", home.inputs[FIRST]))

    def test_without_a_release_or_with_an_old_agent_nothing_is_written(self, home: Home, systemd: UserSystemd) -> None:
        with pytest.raises(ServiceError, match="no release of it is in use there") as raised:
            service_of(systemd, "retinaface").install(Choices())
        assert raised.value.hints == ("edgedeploy push retinaface",)
        old = home.releases / FIRST / "agent"
        old.unlink()
        executable(old, "echo usage: agent run")
        with pytest.raises(ServiceError, match="the agent of the release in use is older than services"):
            service_of(systemd).install(Choices())
        assert not (home.folder / ".config" / "systemd" / "user").exists()


# On virtual boards that systemd runs.
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


def root_of(board: VirtualBoard) -> Path:
    """Its files as they are seen from here; the socket among them is the same to the kernel."""
    return Path(f"/proc/{_systemd_of(board)}/root")


@pytest.mark.slow
def test_it_survives_a_kill_a_reboot_and_a_push(board: VirtualBoard, board_command: Command, tmp_path: Path) -> None:
    at = ("--board", board.board, "--host", f"virtual:{board.name}")
    packages = two_packages(board.board, tmp_path)
    folder = unpack(packages[0], tmp_path / "package")
    content = (folder / "selftest" / "input-0.bin").read_bytes()
    wanted = np.fromfile(folder / "selftest" / "output-0.bin", np.float32)

    def asked() -> str:
        with client(root_of(board) / "run/user/1000") as one:
            reply, outputs = one.ask("run", content)
        assert reply["ok"], reply
        np.testing.assert_allclose(np.frombuffer(outputs, np.float32), wanted, atol=1e-4)
        return str(reply["release"])

    def logs() -> list[dict[str, Any]]:
        return log_of(root_of(board) / "home" / board.user)

    def status() -> dict[str, Any]:
        return dict(json_of(board_command, "service", "status", "digits", *at))

    def is_ready(times: int) -> Callable[[], bool]:
        return lambda: count(logs(), "ready") == times

    output_of(board_command, "push", packages[0], *at)
    assert json_of(board_command, "service", "install", "digits", *at)["lingers"]
    first = asked()
    assert status()["release"] == first

    said(board, f"kill -9 {status()['pid']}")
    until(is_ready(2), SERVICE_S)
    assert asked() == first
    assert status()["restarts"] == 1

    assert "systemd" in said(board, "ps -o pid,args")
    reboot(board)
    until(is_ready(3), SERVICE_S)  # the log goes on, though nobody has logged in to start it
    assert asked() == first
    after = status()
    assert (after["active"], after["enabled"], after["restarts"]) == (True, True, 0)

    replies: list[dict[str, Any]] = []

    def send_frames(ended: Event) -> None:
        with client(root_of(board) / "run/user/1000") as one:
            while not ended.is_set():
                replies.append(one.ask("run", content)[0])

    with beside(send_frames):
        until(lambda: len(replies) > 5, SERVICE_S)
        output_of(board_command, "push", packages[1], *at)
        until(lambda: replies[-1]["release"] != first, SERVICE_S)
        seen = len(replies)
        until(lambda: len(replies) > seen + 5, SERVICE_S)
    assert all(reply["ok"] for reply in replies)
    releases = [reply["release"] for reply in replies]
    second = releases[-1]
    assert releases == [first] * releases.count(first) + [second] * releases.count(second)
    [switched] = [each for each in logs() if each["event"] == "switched"]
    assert (switched["before"], switched["release"]) == (first, second)
    assert count(logs(), "ready") == 3
    assert count(logs(), "failed") == 0

    output_of(board_command, "service", "uninstall", "digits", *at)
    reboot(board)
    assert not said(board, f"ls {BASE}/logs").split()


@pytest.mark.slow
def test_files_stay_and_processes_go(board: VirtualBoard, board_command: Command) -> None:
    said(board, "echo here >kept; nohup sleep 1000 >/dev/null 2>&1 &")
    output_of(board_command, "virtual", "reboot", board.name)
    assert said(board, "cat kept") == "here"
    assert "sleep 1000" not in said(board, "ps")


class TestCommands:
    @pytest.fixture
    def service(self, systemd: UserSystemd, command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
        """`edgedeploy service` with the systemd here as a board's."""
        there = SimpleNamespace(run=systemd.run, address="pi@there")
        monkeypatch.setattr(connection, "Connection", lambda *arguments, **options: nullcontext(there))
        return lambda *words: command("service", *words, "--board", "rpi4", "--host", "pi@there")

    def test_they_say_what_they_did(self, home: Home, service: Command) -> None:
        at = "$XDG_RUNTIME_DIR/edgedeploy-digits/socket"
        installed = output_of(service, "install", "digits", "--memory-max", "100M")
        assert installed == f"edgedeploy-digits.service runs on pi@there, at {at}\n"
        assert json_of(service, "status", "digits")["release"] == FIRST
        assert "active (running)" in output_of(service, "status", "digits")
        output_of(service, "stop", "digits")
        assert not json_of(service, "status", "digits")["active"]
        output_of(service, "start", "digits")
        assert output_of(service, "uninstall", "digits") == "the service of digits is removed from pi@there\n"
        assert "pi@there has no service edgedeploy-digits" in refused(service, 26, "stop", "digits")

    @pytest.mark.parametrize("words", [("install", "../x"), ("status", "a b"), ("install", "x", "--cpu-quota", "2")])
    def test_bad_names_and_limits_are_refused(self, service: Command, words: tuple[str, ...]) -> None:
        assert service(*words)[0] == 7


def test_logs_are_printed_and_followed_over_ssh(bench: Bench, board_command: Command) -> None:
    bench.say(f"mkdir -p {BASE}/logs && cd {BASE}/logs && seq 3 >digits.jsonl.1 && seq 4 6 >digits.jsonl")
    out = output_of(board_command, "service", "logs", "digits", *bench.at, "--lines", 4)
    assert out.split() == ["3", "4", "5", "6"]
    with bench.connected() as connected:
        program = Place(connected).start(LOGS, str(BASE), "digits", "1", "follow")
        lines = program.lines()
        assert next(lines) == "6"
        until(lambda: "tail" in bench.say("ps | grep '[d]igits.jsonl'"))
        time.sleep(1)  # it has begun when it has looked
        bench.say(f"echo 7 >>{BASE}/logs/digits.jsonl")
        assert next(lines) == "7"
        program.close()
    until(lambda: "tail" not in bench.say("ps | grep '[d]igits.jsonl'"))


class TestUnit:
    @pytest.mark.parametrize("user", [None, "pi"])
    @pytest.mark.parametrize("systemd", [252, 257])
    @pytest.mark.parametrize("choices", [Choices(), Choices("256M", "150%", 2), Choices(camera="http://cam/a%20b")])
    def test_systemd_knows_each_line(self, tmp_path: Path, user: str | None, systemd: int, choices: Choices) -> None:
        need("systemd-analyze", "systemd")
        executable(tmp_path / BASE / "releases" / "digits" / "current" / "agent", "")
        unit = put(tmp_path / "edgedeploy-digits.service", unit_text("digits", choices, str(tmp_path), user, systemd))
        command = ["systemd-analyze", "verify", "--man=no", *([] if user else ["--user"]), str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={"HOME": str(tmp_path)})
        said = [line for line in done.stderr.splitlines() if "edgedeploy-digits" in line]
        version = re.match(r"systemd (\d+)", subprocess.check_output(["systemd-analyze", "--version"], text=True))
        if systemd >= 254 > int(version[1]):
            said = [line for line in said if "RestartSteps" not in line and "RestartMaxDelaySec" not in line]
        assert said == []

    def test_it_states_the_limits_and_hardens_units_of_the_system(self) -> None:
        text = unit_text("digits", Choices("256M", "150%", 2, 10), "/home/pi", "pi", 254)
        for line in ("MemoryMax=256M", "CPUQuota=150%", "WatchdogSec=10", "User=pi", "RestartSteps=5"):
            assert f"\n{line}\n" in text
        assert " --threads 2\n" in text
        assert "\nProtectSystem=strict\n" in text
        assert "SupplementaryGroups" not in text
        watching = unit_text("digits", Choices(camera="http://cam/a%20b"), "/home/pi", "pi", 254)
        for line in ("SupplementaryGroups=video", "PrivateDevices=no", "PrivateNetwork=no"):
            assert f"\n{line}\n" in watching
        assert " --camera=http://cam/a%%20b\n" in watching
        own = unit_text("digits", Choices(), "/home/pi", None, 252)
        for word in ("MemoryMax", "CPUQuota", "User=", "RestartSteps", "ProtectSystem", "--threads"):
            assert word not in own

    @pytest.mark.parametrize(
        "options",
        [
            {"memory_max": "much"},
            {"cpu_quota": "1.5"},
            {"memory_max": "1\nUser=root"},
            {"camera": "0 --log /x"},
            {"camera": "rtsp://a\nUser=root"},
        ],
    )
    def test_limits_that_systemd_would_not_understand_are_refused(self, options: dict[str, str]) -> None:
        with pytest.raises(InputError):
            Choices(**options)  # type: ignore[arg-type]

    def test_a_home_that_a_unit_cannot_hold_is_refused(self) -> None:
        with pytest.raises(InputError, match="cannot be written into a unit"):
            unit_text("digits", Choices(), "/home/a b%n", None, 252)


def test_a_board_without_systemd_says_so(bench: Bench, board_command: Command) -> None:
    bench.push(bench.first)
    assert "it has no systemd" in refused(board_command, 26, "service", "install", "digits", *bench.at)
    assert "has no service edgedeploy-digits" in refused(board_command, 26, "service", "status", "digits", *bench.at)
