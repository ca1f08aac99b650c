"""The live page of demos: what its server answers and refuses, what it shows, and that no browser slows anything."""

import http.client
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import cv2
import numpy as np
import pytest
from support.commands import becomes, generous
from support.demo_runs import ROOT, RunDemo
from support.recordings import write_film

from edgedeploy.live import server
from edgedeploy.live.server import serving
from edgedeploy.live.showing import Seen, Showing, paced

DIGIT = cv2.imread(str(ROOT / "models" / "digit.png"))
TIMES = {"capture": 1.0, "preparation": 2.0, "inference": 3.0, "decoding": 4.0}


def seen(index: int, level: int = 0, size: tuple[int, int] = (48, 64)) -> Seen:
    """A grey image."""
    return Seen(index, lambda: np.full((*size, 3), level, np.uint8), [f"level {level}"], TIMES)


@pytest.fixture
def showing() -> Showing:
    return Showing()


@pytest.fixture
def port(showing: Showing) -> Iterator[int]:
    with serving(showing, "<b>digits</b>", 0) as address:
        yield int(address.rstrip("/").rpartition(":")[2])


def asked(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    """The status, the headers and the content that the server answers with; `_` in headers stands for a hyphen."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=generous(10))
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


def state(port: int) -> dict[str, Any]:
    status, _, content = asked(port, "/state")
    assert status == 200
    return dict(json.loads(content))


@contextmanager
def watching(port: int) -> Iterator[Iterator[np.ndarray]]:
    """The pictures that a browser gets, one after the other."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=generous(10))
    connection.request("GET", "/video")
    answer = connection.getresponse()
    assert answer.getheader("Content-Type") == "multipart/x-mixed-replace; boundary=edgedeploy-frame"

    def pictures(stream: IO[bytes]) -> Iterator[np.ndarray]:
        while line := stream.readline():
            if found := re.fullmatch(rb"Content-Length: (\d+)\r\n", line):
                assert stream.readline() == b"\r\n"
                picture = cv2.imdecode(np.frombuffer(stream.read(int(found[1])), np.uint8), cv2.IMREAD_COLOR)
                assert stream.read(2) == b"\r\n"
                assert stream.readline() == b"--edgedeploy-frame\r\n"  # the picture is shown when this line is there
                yield picture

    try:
        yield pictures(answer)
    finally:
        connection.close()


class TestWhatItShows:
    def test_the_page_loads_nothing_from_elsewhere_and_its_title_is_text(self, port: int) -> None:
        status, headers, content = asked(port, "/")
        page = content.decode()
        assert status == 200
        assert "<h1>&lt;b&gt;digits&lt;/b&gt;</h1>" in page
        assert "//" not in page.replace("// ", "")
        policy = headers["Content-Security-Policy"]
        [nonce] = set(re.findall(r'nonce="([^"]+)"', page))
        assert "default-src 'none'" in policy
        assert f"script-src 'nonce-{nonce}'" in policy
        assert not re.search(r"\son\w+=|style=", page)  # which the policy would not let run

    def test_all_browsers_see_the_newest_image(self, showing: Showing, port: int) -> None:
        showing.put(seen(0, 50))
        with watching(port) as one, watching(port) as other:
            assert [round(next(each).mean()) for each in (one, other)] == [50, 50]
            showing.put(seen(1, 90))
            assert [round(next(each).mean()) for each in (one, other)] == [90, 90]
            showing.end()
            assert [list(one), list(other)] == [[], []]

    def test_the_state_has_rates_times_and_results(self, showing: Showing, port: int) -> None:
        assert state(port) == {"state": "starting", "frame": None, "fps": None, "times_ms": {}, "results": []}
        for index in range(5):
            showing.put(seen(index, index))
            time.sleep(0.01)
        told = state(port)
        assert (told["state"], told["frame"], told["results"]) == ("running", 4, ["level 4"])
        assert told["times_ms"] == TIMES
        assert 0 < told["fps"] < 100
        asked(port, "/frame.jpg")
        with watching(port) as pictures:
            next(pictures)
        assert state(port)["times_ms"]["drawing"] > 0
        showing.end()
        assert state(port)["state"] == "ended"

    def test_a_frame_is_saved_whole_and_streamed_no_larger_than_needed(self, showing: Showing, port: int) -> None:
        assert asked(port, "/frame.jpg")[0] == 404
        showing.put(seen(7, 10, (1500, 2000)))
        status, headers, content = asked(port, "/frame.jpg")
        assert (status, headers["Content-Disposition"]) == (200, 'attachment; filename="frame-000007.jpg"')
        assert cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR).shape == (1500, 2000, 3)
        with watching(port) as pictures:
            assert next(pictures).shape == (960, 1280, 3)

    def test_a_pause_holds_images_of_a_file_and_lets_those_of_a_camera_go_by(self, showing: Showing, port: int) -> None:
        assert json.loads(asked(port, "/pause", "POST")[2])["state"] == "paused"
        done: list[object] = []
        threading.Timer(0.1, lambda: (done.append("resumed"), asked(port, "/resume", "POST"))).start()
        done.extend(paced(range(3), showing, lambda: False))
        assert done == ["resumed", 0, 1, 2]
        asked(port, "/pause", "POST")

        def camera() -> Iterator[int]:
            for number in itertools.count():
                if number == 100:
                    showing.set_paused(False)
                yield number

        showing.live = True
        assert list(itertools.islice(paced(camera(), showing, lambda: False), 2)) == [100, 101]

    def test_who_waits_in_a_pause_ends_when_asked_to(self, showing: Showing) -> None:
        showing.set_paused(True)
        answers = iter([False, False, True, True])
        assert list(paced(range(3), showing, lambda: next(answers))) == []


class Clock:
    """Seconds that pass when somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.slept = 0.0
        monkeypatch.setattr("edgedeploy.live.showing.monotonic", lambda: self.now)
        monkeypatch.setattr("edgedeploy.live.showing.sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class TestPacing:
    def test_a_video_runs_at_its_own_rate(self, clock: Clock) -> None:
        times = [clock.now for _ in paced(range(11), Showing(rate=50), lambda: False)]
        assert times == pytest.approx([number / 50 for number in range(11)])

    def test_who_is_late_by_far_does_not_hurry(self, clock: Clock) -> None:
        images = paced(range(100), Showing(rate=10), lambda: False)
        next(images)
        clock.now += 1.5  # fifteen images
        times = [clock.now for _ in itertools.islice(images, 8)]
        # Half a second, and no more, is made up for.
        assert times == pytest.approx([1.5] * 5 + [1.6, 1.7, 1.8])


class TestSlowBrowsers:
    def test_a_browser_that_takes_nothing_keeps_nobody_waiting(self, showing: Showing, port: int) -> None:
        noise = np.random.default_rng(0).integers(0, 256, (720, 1280, 3), np.uint8)
        with socket.create_connection(("127.0.0.1", port)) as stuck, watching(port) as pictures:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.sendall(b"GET /video HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            slowest = 0.0
            for index in range(20):
                begun = time.monotonic()
                showing.put(Seen(index, lambda: noise, [], TIMES))
                slowest = max(slowest, time.monotonic() - begun)
                assert next(pictures).shape == noise.shape
        assert slowest < generous(1)

    def test_no_picture_is_drawn_that_nobody_asks_for(self, showing: Showing, port: int) -> None:
        showing.put(Seen(0, lambda: pytest.fail("drawn"), [], TIMES))
        state(port)

    def test_browsers_that_are_too_many_are_turned_away_and_others_served_again_later(self, port: int) -> None:
        many = [socket.create_connection(("127.0.0.1", port), timeout=generous(10)) for _ in range(40)]
        assert many[-1].recv(1) == b""
        for each in many:
            each.close()
        assert becomes(lambda: is_served(port))

    def test_requests_sent_byte_by_byte_hold_no_place(self, showing: Showing, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "_PATIENCE_S", 0.5)
        with serving(showing, "digits", 0) as address:
            port = int(address.rstrip("/").rpartition(":")[2])
            slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(32)]
            assert becomes(lambda: all(is_closed_after_a_byte(each) for each in slow))
            assert becomes(lambda: is_served(port))
            for each in slow:
                each.close()


def is_closed_after_a_byte(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"G")
        connection.settimeout(0.001)
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def is_served(port: int) -> bool:
    try:
        return bool(state(port))
    except (ConnectionError, http.client.HTTPException):
        return False


class TestWhoIsServed:
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9", "LocalHost"])
    def test_this_machine_by_its_names_and_through_a_tunnel(self, port: int, host: str) -> None:
        assert asked(port, "/state", Host=host)[0] == 200

    @pytest.mark.parametrize(
        "headers",
        [
            *({"Host": host} for host in ("evil.example", "127.0.0.1.evil.example", "evil.example@127.0.0.1", "")),
            *({"Host": "localhost", "Origin": origin} for origin in ("http://evil.example", "null")),
            *({"Host": "localhost", "Sec_Fetch_Site": site} for site in ("cross-site", "same-site")),
        ],
    )
    @pytest.mark.parametrize(("path", "method"), [("/state", "GET"), ("/video", "GET"), ("/pause", "POST")])
    def test_pages_of_others_are_not(
        self, showing: Showing, port: int, headers: dict[str, str], path: str, method: str
    ) -> None:
        assert asked(port, path, method, **headers)[0] == 403
        assert not showing.paused

    @pytest.mark.parametrize(("path", "method"), [("/x", "GET"), ("/../etc/passwd", "GET"), ("/x", "POST")])
    def test_nothing_else_is_there(self, port: int, path: str, method: str) -> None:
        assert asked(port, path, method)[0] == 404

    def test_it_listens_on_loopback_alone(self, port: int) -> None:
        listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if " 0A " in line]
        assert [each for each in listening if each.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]

    def test_the_port_is_free_again_at_once(self, showing: Showing) -> None:
        port = 0
        for _ in range(2):
            with serving(showing, "", port) as address, watching(port := int(address.rpartition(":")[2][:-1])):
                pass


class TestTheCommand:
    @pytest.fixture
    def film(self, tmp_path: Path) -> Path:
        return write_film(tmp_path / "three.avi", [np.roll(DIGIT, index, axis=1) for index in range(8)], rate=20)

    def test_a_video_keeps_time_and_ends(self, run_demo: RunDemo, film: Path, clock: Clock) -> None:
        code, out, err = run_demo("demo", "digits", "--image", film, "--serve", "--port", "0", "--json")
        assert clock.slept == pytest.approx(7 / 20)
        assert code == 0
        assert re.search(r"^open http://127\.0\.0\.1:\d+/ in a browser; Ctrl-C ends it$", err, re.MULTILINE)
        assert json.loads(out.splitlines()[-1])["summary"]["frames"] == 8
        clock.slept = 0.0
        code, out, _ = run_demo("demo", "digits", "--image", film, "--serve", "--port", "0", "--json", "--unpaced")
        assert json.loads(out.splitlines()[-1])["summary"]["frames"] == 8
        assert clock.slept == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("all --serve", "--serve needs one demo on images"),
            ("wake-word --serve", "--serve needs one demo on images"),
            ("digits --port 8081", "--port needs --serve"),
            ("digits --unpaced", "--unpaced needs --serve"),
            ("digits --serve", "--serve needs a folder, a video or a camera"),
        ],
    )
    def test_what_does_not_go_together_ends_before_anything_is_built(
        self, run_demo: RunDemo, built: list[dict[str, Any]], arguments: str, message: str
    ) -> None:
        code, _, err = run_demo("demo", *arguments.split())
        assert (code, message in err, built) == (7, True, [])

    def test_a_taken_port_ends_before_any_build(
        self, run_demo: RunDemo, built: list[dict[str, Any]], film: Path, port: int
    ) -> None:
        code, _, err = run_demo("demo", "digits", "--image", film, "--serve", "--port", port)
        assert (code, f"port {port} of 127.0.0.1 is taken" in err, built) == (7, True, [])
        assert err.split("  try: ")[1:] == ["give another one with --port; 0 takes any that is free\n"]

    @pytest.mark.compiles
    @pytest.mark.slow
    def test_ctrl_c_ends_it_in_a_pause_with_the_summary(self, tmp_path: Path) -> None:
        film = write_film(tmp_path / "long.avi", [DIGIT] * 3000)
        command = [sys.executable, "-m", "edgedeploy", "demo", "digits", "--image", film, "--serve", "--port", "0"]
        with subprocess.Popen(
            [*command, "--json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ) as process:  # fmt: skip
            port = next(int(found[1]) for line in process.stderr if (found := re.search(r"127\.0\.0\.1:(\d+)/", line)))
            process.stdout.readline()
            with watching(port) as pictures:
                assert next(pictures).shape == DIGIT.shape
                assert json.loads(asked(port, "/pause", "POST")[2])["state"] == "paused"
                process.send_signal(signal.SIGINT)
                out, _ = process.communicate(timeout=generous(60))
        assert process.returncode == 130
        summary = json.loads(out.splitlines()[-1])["summary"]
        assert summary["interrupted"]
        assert summary["frames"] < 3000
