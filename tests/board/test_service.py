"""Services of the agent: what docs/service.md promises to clients, to systemd and to whoever reads the log."""

import fcntl
import json
import mmap
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import psutil
import pytest
from conftest import ROOT, Command
from support.agents import command_of, digits, digits_with_use, need_jpeg, request, unpack
from support.commands import beside, executable, generous, json_of, need, output_of, put, refused, until
from support.services import BASE, FIRST, SECOND, Client, Home, UserSystemd, events, home_of, user_systemd
from support.virtual_boards import Bench, Start, said, two_packages

from edgedeploy.errors import InputError, ServiceError, VirtualBoardError
from edgedeploy.remote import connection
from edgedeploy.remote.place import Place
from edgedeploy.service.systemd import LOGS, Choices, Service, unit_text
from edgedeploy.virtual.board import VirtualBoard, _systemd_of, down, reboot


class TestClients:
    def test_several_at_once_get_the_networks_outputs(self, home: Home) -> None:
        with home.running(), home.client() as one, home.client() as other:
            assert one.greeting["ready"]
            assert (one.greeting["protocol"], one.greeting["model"]) == (1, "digits")
            assert one.greeting["release"] == FIRST
            assert one.greeting["inputs"][0]["bytes"] == len(home.inputs[FIRST])
            for number in range(3):
                for client in (one, other):
                    said, content = client.ask("run", home.inputs[FIRST], id=number)
                    assert said["id"] == number
                    assert said["ms"] > 0
                    home.assert_right(FIRST, said, content)
            said, _ = one.ask("status")
            assert (said["requests"], said["release"]) == (6, FIRST)
            assert said["memory"]["resident_bytes"] > 0
            assert other.ask("quit") == ({"ok": True}, b"")
            assert other.reply() == ({}, b"")
            assert one.ask("status")[0]["ok"]

    def test_the_examples_of_its_page_are_programs(self, seeing: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        [values, frames] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "service.md").read_text(), re.DOTALL)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(seeing.folder))
        seeing.socket = seeing.folder / "edgedeploy-digits" / "socket"
        seeing.socket.parent.mkdir()
        with seeing.running():
            assert len(_ran(values)["outputs"]) == seeing.outputs[FIRST].nbytes
            names = _ran(frames)
            assert names["shared"]["ok"]
            assert len(names["seen"]["results"]) == 5

    def test_one_that_stops_within_a_request_keeps_nobody_waiting(self, home: Home) -> None:
        with home.running(), home.client() as stuck, home.client() as client:
            stuck.socket.sendall(request("run", home.inputs[FIRST])[:-1])
            home.assert_right(FIRST, *client.ask("run", home.inputs[FIRST]))
            stuck.socket.sendall(home.inputs[FIRST][-1:])
            home.assert_right(FIRST, *stuck.reply())

    @pytest.mark.parametrize(
        ("command", "content", "fields", "error"),
        [
            ("run", b"short", {}, "the inputs have 1024 bytes: 5 were announced"),
            ("run", b"", {"entry": 1}, "entry is out of range: the release in use has 1"),
            ("run", b"", {"entry": -1}, "entry is out of range: the release in use has 1"),
            ("run", b"", {"at": 0}, "no memory was shared: the command 'share' comes before"),
            ("share", b"", {"size": 10}, "no descriptor came with the request"),
            ("detect", b"", {"width": 0, "height": 4, "format": "bgr"}, "width is not the side of a frame"),
            ("detect", b"", {"width": 4, "height": 4, "format": "jpeg"}, "frames of 'jpeg' are not known here"),
            ("detect", b"x", {"width": 4, "height": 4, "format": "bgr"}, "the inputs have 48 bytes: 1 were announced"),
            (
                "measure",
                b"x" * 1024,
                {},
                "unknown command 'measure': a service has run, detect, share, status, watch and quit",
            ),
        ],
    )
    def test_what_cannot_be_done_is_refused_and_the_next_request_served(
        self, home: Home, command: str, content: bytes, fields: dict[str, object], error: str
    ) -> None:
        with home.running(), home.client() as client:
            said, _ = client.ask(command, content, id="x", **fields)
            assert said == {"id": "x", "ok": False, "code": 7, "error": error}
            home.assert_right(FIRST, *client.ask("run", home.inputs[FIRST]))

    @pytest.mark.parametrize("noise", [b"hello\n", b'{"command": "run", "bytes": -1}\n', b"[" * 70000, b"\x00\xff\n"])
    def test_after_nonsense_that_client_is_let_go_and_others_stay(self, home: Home, noise: bytes) -> None:
        with home.running(), home.client() as client, home.client() as other:
            client.socket.sendall(noise)
            said, _ = client.reply()
            assert (said["ok"], said["code"]) == (False, 7)
            assert client.reply() == ({}, b"")
            home.assert_right(FIRST, *other.ask("run", home.inputs[FIRST]))

    def test_there_is_a_most_of_clients(self, home: Home) -> None:
        with home.running():
            clients = [home.client() for _ in range(64)]
            with home.client() as refused:
                assert refused.greeting == {"ok": False, "code": 1, "error": "there are 64 clients"}
            clients.pop().close()
            until(lambda: _is_welcome(home))
            for each in clients:
                each.close()

    def test_refused_ones_that_come_and_go_end_nothing(self, home: Home) -> None:
        with home.running() as service:
            clients = [home.client() for _ in range(64)]
            for _ in range(500):
                with socket.socket(socket.AF_UNIX) as gone:
                    gone.connect(str(home.socket))
            home.assert_right(FIRST, *clients[0].ask("run", home.inputs[FIRST]))
            for each in clients:
                each.close()
            service.terminate()
            told = [each for each in events(service.communicate()[0].splitlines()) if each["event"] == "turned_away"]
        assert service.returncode == 0
        assert 0 < len(told) <= 500
        assert {each["error"] for each in told} == {"there are 64 clients"}

    def test_one_for_whom_there_is_no_thread_is_refused_and_the_next_served(self, home: Home) -> None:
        with home.running() as service, home.client() as client:
            limits = resource.prlimit(service.pid, resource.RLIMIT_AS)
            taken = psutil.Process(service.pid).memory_info().vms
            resource.prlimit(service.pid, resource.RLIMIT_AS, (taken, limits[1]))
            with home.client() as refused:
                assert (refused.greeting["ok"], refused.greeting["code"]) == (False, 1)
            resource.prlimit(service.pid, resource.RLIMIT_AS, limits)  # a request may need memory of its own
            home.assert_right(FIRST, *client.ask("run", home.inputs[FIRST]))
            assert _is_welcome(home)

    def test_what_is_announced_takes_no_memory_before_it_comes(self, home: Home) -> None:
        with home.running() as service:
            before = psutil.Process(service.pid).memory_info().rss
            fields = {"width": 8192, "height": 16384, "format": "bgr", "bytes": 3 << 27}
            clients = [home.client() for _ in range(4)]
            for each in clients:
                each.socket.sendall(request("detect", **fields) + bytes(1 << 22))  # more than a socket holds
            with home.client() as other:
                home.assert_right(FIRST, *other.ask("run", home.inputs[FIRST]))
            assert psutil.Process(service.pid).memory_info().rss - before < 1 << 26
            for each in clients:
                each.close()

    def test_the_memory_of_all_requests_together_is_bounded(self, home: Home) -> None:
        frame = request("detect", bytes(1_000_000), width=1000, height=1000, format="gray")
        with home.running("--request-bytes", "1500000"), home.client() as slow, home.client() as client:
            slow.socket.sendall(frame[:-100_000])
            until(lambda: "together" in str(_answer(client, frame).get("error")))
            home.assert_right(FIRST, *client.ask("run", home.inputs[FIRST]))
            slow.socket.sendall(frame[-100_000:])
            assert "together" not in slow.reply()[0]["error"]  # but that it is no network of images
            assert "together" not in _answer(client, frame)["error"]


def _answer(client: Client, content: bytes) -> dict[str, Any]:
    client.socket.sendall(content)
    return client.reply()[0]


def _ran(program: str) -> dict[str, Any]:
    """The names that a program on a page leaves."""
    names: dict[str, Any] = {}
    exec(program, names)
    for each in ("stream", "service"):
        names[each].close()
    return names


def _is_welcome(home: Home) -> bool:
    with home.client() as client:
        return "ready" in client.greeting


@contextmanager
def sealed(size: int, seals: int = fcntl.F_SEAL_SHRINK) -> Iterator[tuple[int, mmap.mmap]]:
    descriptor = os.memfd_create("frames", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        with mmap.mmap(descriptor, size) as memory:
            yield descriptor, memory
    finally:
        os.close(descriptor)


class TestSharedMemory:
    def test_values_come_and_go_without_the_socket(self, home: Home) -> None:
        inputs, at = home.inputs[FIRST], 4096
        with sealed(3 * at) as (descriptor, memory), home.running(), home.client() as client:
            assert client.share(descriptor, 3 * at) == ({"ok": True}, b"")
            memory[at : at + len(inputs)] = inputs
            said, content = client.ask("run", at=at, outputs_at=0)
            assert content == b""
            home.assert_right(FIRST, said, memory[: home.outputs[FIRST].nbytes])
            home.assert_right(FIRST, *client.ask("run", at=at))
            said, _ = client.ask("run", inputs, outputs_at=64)
            home.assert_right(FIRST, said, memory[64 : 64 + home.outputs[FIRST].nbytes])

    def test_frames_are_seen_where_they_lie_and_where_they_are_sent(self, seeing: Home) -> None:
        digit = cv2.resize(cv2.imread(str(ROOT / "models" / "digit.png")), (640, 480))
        about = {"width": 640, "height": 480, "format": "bgr"}
        with sealed(digit.nbytes + 100) as (descriptor, memory), seeing.running(), seeing.client() as client:
            memory[100:] = digit.tobytes()
            client.share(descriptor, len(memory))
            there, _ = client.ask("detect", at=100, **about)
            sent, _ = client.ask("detect", digit.tobytes(), **about)
            assert there["results"] == sent["results"]
            assert (there["results"][0]["label"], there["release"]) == ("3", FIRST)
            planes = cv2.cvtColor(digit, cv2.COLOR_BGR2YUV_I420)
            said, _ = client.ask("detect", planes.tobytes(), **{**about, "format": "yuv420"})
            assert said["results"][0]["label"] == "3"

    def test_what_lies_outside_of_it_is_refused(self, home: Home) -> None:
        with sealed(2048) as (descriptor, _), home.running(), home.client() as client:
            client.share(descriptor, 2048)
            places = [{"at": each} for each in (1025, 2049, -1, 1 << 62)]
            places += [{"at": 0, "outputs_at": each} for each in (2048 - 39, -1, 1 << 62)]
            for place in places:
                said, _ = client.ask("run", **place)
                assert (said["ok"], said["code"]) == (False, 7)
                assert "the shared memory has 2048" in said["error"]
            assert client.ask("run", at=1024)[0]["ok"]

    @pytest.mark.parametrize(
        ("seals", "size", "why"),
        [(0, 2048, "may shrink"), (fcntl.F_SEAL_SHRINK, 2049, "has 2048 bytes: 2049 were announced")],
    )
    def test_memory_that_would_end_the_service_is_refused(self, home: Home, seals: int, size: int, why: str) -> None:
        with sealed(2048, seals) as (descriptor, _), home.running(), home.client() as client:
            said, _ = client.share(descriptor, size)
            assert why in said["error"]
            home.assert_right(FIRST, *client.ask("run", home.inputs[FIRST]))

    def test_descriptors_that_nothing_asks_for_end_the_connection_alone(self, home: Home) -> None:
        with sealed(2048) as (descriptor, _), home.running(), home.client() as one, home.client() as other:
            for _ in range(3):
                socket.send_fds(one.socket, [request("status")], [descriptor] * 2)
            assert {} in [one.reply()[0] for _ in range(4)]
            home.assert_right(FIRST, *other.ask("run", home.inputs[FIRST]))


@pytest.fixture
def camera(home: Home) -> dict[str, str]:
    """The environment of a board with a Raspberry Pi's camera, in front of which a three lies."""
    digit = cv2.imread(str(ROOT / "models" / "digit.png"))
    planes = cv2.cvtColor(cv2.resize(digit, (640, 480)), cv2.COLOR_BGR2YUV_I420)
    (home.folder / "frame").write_bytes(planes.tobytes())
    program = executable(home.folder / "bin" / "rpicam-vid", f"while cat '{home.folder}/frame'; do sleep 0.02; done")
    return {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def seeing(home: Home, tmp_path: Path) -> Home:
    """A release in use that says how images become its input, and another."""
    package = digits_with_use(tmp_path / "used.tar.gz")
    for name in (FIRST, SECOND):
        shutil.rmtree(home.releases / name)
        home.add(package, name)
    return home


class TestCamera:
    def test_watchers_get_what_it_sees_and_slow_ones_miss_some(self, seeing: Home, camera: dict[str, str]) -> None:
        need_jpeg()
        with seeing.running("--camera=rpicam", **camera), seeing.client() as one, seeing.client() as other:
            assert one.greeting["camera"] == "rpicam:0"
            assert one.ask("watch", images=True, id=1) == ({"id": 1, "ok": True}, b"")
            assert other.ask("watch") == ({"ok": True}, b"")
            told = [one.reply() for _ in range(3)]
            assert [said["results"][0]["label"] for said, _ in told] == ["3"] * 3
            assert {said["release"] for said, _ in told} == {FIRST}
            assert list(told[0][0]["times"]) == ["capture_ms", "preprocess_ms", "inference_ms", "postprocess_ms"]
            assert cv2.imdecode(np.frombuffer(told[0][1], np.uint8), cv2.IMREAD_COLOR).shape == (480, 640, 3)
            frames = [other.reply()[0]["frame"] for _ in range(3)]
            assert frames == sorted(set(frames))
            seen = told[-1][0]["frame"]
            with seeing.client() as third:  # the second one takes nothing meanwhile
                third.ask("watch")
                until(lambda: third.reply()[0]["frame"] > seen + 20)
                newest = third.reply()[0]["frame"]
            with seeing.client() as asking:
                seeing.assert_right(FIRST, *asking.ask("run", seeing.inputs[FIRST]))
            assert newest > seen + 20

    def test_it_follows_releases(self, seeing: Home, camera: dict[str, str]) -> None:
        with seeing.running("--camera", "rpicam", **camera), seeing.client() as client:
            client.ask("watch")
            assert client.reply()[0]["release"] == FIRST
            seeing.switch(SECOND)
            until(lambda: client.reply()[0]["release"] == SECOND)

    def test_sigterm_ends_it_with_the_cameras_program(self, seeing: Home, camera: dict[str, str]) -> None:
        with seeing.running("--camera", "rpicam", **camera) as process, seeing.client() as client:
            client.ask("watch")
            client.reply()
            process.terminate()
            assert process.wait(generous(30)) == 0
            while client.reply()[0]:
                pass
        commands = [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
        assert not [command for command in commands if str(seeing.folder / "bin") in command]

    def test_a_camera_that_stops_ends_it_with_a_reason(self, seeing: Home, camera: dict[str, str]) -> None:
        with seeing.running("--camera", "rpicam", **camera) as process:
            (seeing.folder / "frame").unlink()
            log = events(process.communicate(timeout=generous(30))[0].splitlines())
        assert process.returncode == 7
        [failed] = [each for each in log if each["event"] == "failed"]
        assert "rpicam" in failed["error"]

    def test_without_a_camera_nobody_watches(self, home: Home) -> None:
        with home.running(), home.client() as client:
            said, _ = client.ask("watch")
            assert said == {"ok": False, "code": 7, "error": "this service has no camera"}

    def test_a_network_that_does_not_say_how_it_is_used_has_none(self, home: Home, camera: dict[str, str]) -> None:
        with home.running("--camera", "rpicam", **camera) as process:
            assert process.wait(generous(30)) == 7


class TestReleases:
    def test_it_changes_to_a_pushed_one_between_two_requests_and_loses_none(self, home: Home) -> None:
        answers: list[tuple[str, bytes]] = []
        with home.running() as process, home.client() as client:

            def ask(done: threading.Event) -> None:
                while not done.is_set():
                    said, content = client.ask("run", home.inputs[FIRST])
                    assert said["ok"]
                    answers.append((said["release"], content))

            with beside(ask):
                until(lambda: len(answers) > 5)
                home.switch(SECOND)
                until(lambda: answers[-1][0] == SECOND)
            process.terminate()
            log = events(process.communicate(timeout=generous(30))[0].splitlines())
        names = [name for name, _ in answers]
        assert names == sorted(names)
        for name in (FIRST, SECOND):
            assert len({content for each, content in answers if each == name}) == 1
        assert answers[0][1] != answers[-1][1]
        [switched] = [each for each in log if each["event"] == "switched"]
        assert (switched["release"], switched["before"]) == (SECOND, FIRST)
        assert (log[-1]["event"], log[-1]["requests"]) == ("ended", len(answers))

    def test_it_changes_while_nobody_asks(self, home: Home) -> None:
        with home.running("--log", home.folder / "log"), home.client() as client:
            home.switch(SECOND)
            until(lambda: '"switched"' in (home.folder / "log").read_text())
            home.assert_right(SECOND, *client.ask("run", home.inputs[SECOND]))

    def test_one_that_does_not_load_is_refused_and_the_one_before_stays(self, home: Home) -> None:
        (home.releases / SECOND / "model.so").write_bytes(b"nonsense")
        with home.running("--log", home.folder / "log"), home.client() as client:
            home.switch(SECOND)
            until(lambda: '"refused"' in (home.folder / "log").read_text())
            home.assert_right(FIRST, *client.ask("run", home.inputs[FIRST]))
        [refused] = [each for each in events((home.folder / "log").read_text().splitlines()) if "error" in each]
        assert refused["release"] == SECOND
        assert "model.so" in refused["error"]


class TestBeginningAndEnd:
    def test_sigterm_ends_it_after_the_requests_that_were_sent(self, home: Home) -> None:
        with home.running() as process, home.client() as client:
            count = 50
            client.socket.sendall(request("run", home.inputs[FIRST]) * count)
            home.assert_right(FIRST, *client.reply())
            process.send_signal(signal.SIGTERM)
            for _ in range(count - 1):
                home.assert_right(FIRST, *client.reply())
            assert client.reply() == ({}, b"")
            assert process.wait(generous(30)) == 0
            assert not home.socket.exists()

    def test_after_kill_the_next_one_takes_the_socket(self, home: Home) -> None:
        with home.running() as process:
            process.kill()
            process.wait()
        assert home.socket.exists()
        with home.running(), home.client() as client:
            home.assert_right(FIRST, *client.ask("run", home.inputs[FIRST]))

    def test_a_second_one_leaves_the_first_alone(self, home: Home) -> None:
        with home.running(), home.client() as client:
            with home.running() as second:
                assert "another program answers there" in second.communicate(timeout=generous(30))[1]
            assert second.returncode == 1
            home.assert_right(FIRST, *client.ask("run", home.inputs[FIRST]))

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["digits"], 2, "--socket PATH is missing"),
            (["digits", "--socket", "x" * 200], 2, "the path of the socket has 200 bytes"),
            (["digits", "--socket", "/no/such/folder/s"], 1, "cannot listen at /no/such/folder/s"),
            (["digits", "--socket", "/dev/null"], 1, "something else lies there"),
            (["digits", "--socket", "s", "--log", "/dev/full"], 10, "it is not a regular file"),
            (["nothing", "--socket", "s"], 8, "is not a link to a release"),
        ],
    )
    def test_what_cannot_begin_says_why(self, home: Home, arguments: list[str], code: int, message: str) -> None:
        done = subprocess.run(
            [*home.agent, "service", *arguments], env={**os.environ, "HOME": str(home.folder)}, cwd=home.folder,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, message in done.stderr) == (code, True), done.stderr

    def test_the_socket_is_its_owners_alone(self, home: Home) -> None:
        before = os.umask(0)
        try:
            with home.running():
                assert stat.S_IMODE(home.socket.stat().st_mode) == 0o600
        finally:
            os.umask(before)

    @pytest.mark.parametrize("abstract", [False, True])
    def test_it_says_when_it_is_ready_alive_and_stopping(self, home: Home, abstract: bool) -> None:
        name = f"edgedeploy-test-{os.getpid()}" if abstract else str(home.folder / "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.bind(f"\0{name}" if abstract else name)
            systemd.settimeout(generous(30))
            told = {"NOTIFY_SOCKET": f"@{name}" if abstract else name, "WATCHDOG_USEC": "200000"}
            with home.running(**told) as process:
                assert systemd.recv(100) == b"READY=1"
                assert {systemd.recv(100) for _ in range(5)} == {b"WATCHDOG=1"}
                process.terminate()
                while (said := systemd.recv(100)) == b"WATCHDOG=1":
                    pass
                assert said == b"STOPPING=1"
                assert process.wait(generous(30)) == 0


class TestLog:
    def test_each_event_is_a_line_with_its_time(self, home: Home) -> None:
        with home.running() as process:
            with home.client() as client:
                client.ask("run", home.inputs[FIRST])
            process.terminate()
            log = events(process.communicate(timeout=generous(30))[0].splitlines())
        assert [each["event"] for each in log] == ["ready", "connected", "disconnected", "ended"]
        assert all(each["time"][10] == "T" and each["time"].endswith("Z") for each in log)
        ready, connected, disconnected, _ = log
        assert (ready["model"], ready["release"], ready["socket"]) == ("digits", FIRST, str(home.socket))
        assert ready["load_ms"] > 0
        assert connected["client"] == disconnected["client"] == 1
        assert disconnected["requests"] == 1

    def test_a_file_is_bounded(self, home: Home) -> None:
        log = home.folder / "log"
        with home.running("--log", log, "--log-bytes", 4096):
            for _ in range(100):
                home.client().close()
            until(lambda: '"client":100' in log.read_text().replace(" ", ""))
        assert all(0 < size <= 4096 for size in [path.stat().st_size for path in (log, home.folder / "log.1")])
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        assert [json.loads(line) for path in ("log.1", "log") for line in (home.folder / path).read_text().splitlines()]


@pytest.mark.slow  # zig builds the agent for each first
@pytest.mark.parametrize("board", ["rpi4", "rpi-armhf"])
def test_the_agent_of_a_board_serves_and_follows_under_emulation(board: str, tmp_path: Path) -> None:
    package = digits(tmp_path / "digits.tar.gz", board)
    made = home_of(tmp_path, command_of(board), (package, package))
    with made.running() as process, made.client() as client, made.client() as other:
        for each in (client, other):
            made.assert_right(FIRST, *each.ask("run", made.inputs[FIRST]))
        made.switch(SECOND)
        until(lambda: client.ask("run", made.inputs[FIRST])[0]["release"] == SECOND, 120)
        made.assert_right(SECOND, *other.ask("run", made.inputs[SECOND]))
        process.terminate()
        assert process.wait(generous(30)) == 0
        assert not made.socket.exists()


# `edgedeploy service` with the systemd of a user: installed, killed, hung, rebooted, switched, and removed.


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
