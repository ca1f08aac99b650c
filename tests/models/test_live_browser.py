"""The live page in Chromium: boxes lie where the results are, keys work, and it fits a phone."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from conftest import ROOT
from support.commands import generous, started, until
from support.recordings import write_film

from edgedeploy.vision.image import read_image

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared_zoo")]


# fmt: off
_FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]
# fmt: on


class Browser:
    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, address: str) -> None:
        _call(f"{self._session}/url", {"url": address})

    def run(self, script: str, *arguments: object) -> Any:
        return _call(f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, identity: str) -> str:
        return str(self.run("return document.getElementById(arguments[0]).innerText", identity))

    def press(self, key: str) -> None:
        """A key, where the focus is."""
        strokes = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        _call(f"{self._session}/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})

    def screenshot(self, identity: str) -> np.ndarray:
        element = self.run("return document.getElementById(arguments[0])", identity)
        [reference] = element.values()
        content = base64.b64decode(_call(f"{self._session}/element/{reference}/screenshot"))
        return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)


@contextmanager
def browser(folder: Path, width: int = 1280, height: int = 900) -> Iterator[Browser]:
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or chromium is None:
        pytest.skip("needs Chromium: apt install chromium chromium-driver")
    with subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            started = (re.search(r"started successfully on port (\d+)", line) for line in process.stdout)
            port = next(found[1] for found in started if found)
            options = {
                "binary": chromium,
                "args": [*_FLAGS, f"--user-data-dir={folder / 'user'}"],
                "prefs": {"download.default_directory": str(folder / "saved")},
                "mobileEmulation": {"deviceMetrics": {"width": width, "height": height, "pixelRatio": 1}},
            }
            wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
            session = f"http://127.0.0.1:{port}/session"
            made = f"{session}/{_call(session, wanted)['sessionId']}"
            try:
                yield Browser(made)
            finally:
                _call(made, method="DELETE")
        finally:
            process.terminate()


def _call(address: str, content: object | None = None, *, method: str | None = None) -> Any:
    body = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=generous(60)) as answer:
        return json.load(answer)["value"]


@contextmanager
def served(shared: Path, folder: Path) -> Iterator[tuple[str, dict[int, list[Any]], subprocess.Popen[str]]]:
    """The page of a video of faces that move to the left: its address, results by image as they come, the process."""
    faces = read_image(shared / "images" / "mtcnn_face4.jpg")
    film = write_film(folder / "faces.avi", [np.roll(faces, -index // 2, axis=1) for index in range(1500)])
    command = [sys.executable, "-m", "edgedeploy", "demo", "yunet", "--image", film, "--serve", "--port", "0", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    results: dict[int, list[Any]] = {}
    pipe = subprocess.PIPE
    with started(*command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True) as process:

        def read() -> None:
            for line in process.stdout:
                told = json.loads(line)
                if "frame" in told:
                    results[told["frame"]] = told["results"]

        try:
            found = (re.search(r"http://127\.0\.0\.1:\d+/", line) for line in process.stderr)
            address = next(each[0] for each in found if each)
            reader = threading.Thread(target=read)
            reader.start()
            yield address, results, process
        finally:
            process.terminate()
            process.wait(generous(60))
            reader.join()


def frame_of(page: Browser) -> int:
    found = re.match(r"frame (\d+),", page.text("rates"))
    return int(found[1]) if found else -1


def paused(page: Browser) -> int:
    """Pauses with the keyboard, and waits until nothing moves; the image that is shown."""
    page.press(" ")
    until(lambda: page.text("state") == "paused")
    shown = [-2, frame_of(page)]

    def rests() -> bool:
        page.run("return new Promise((done) => setTimeout(done, 1200))")
        shown.append(frame_of(page))
        return shown[-1] == shown[-2]

    until(rests)
    return shown[-1]


def test_boxes_are_drawn_where_the_results_are_and_keys_work(shared: Path, tmp_path: Path) -> None:
    with served(shared, tmp_path) as (address, results, process), browser(tmp_path) as page:
        page.open(address)
        until(lambda: frame_of(page) >= 20)
        rates = r"frame \d+, [\d.]+ frames per second, capture [\d.]+ ms, preparation [\d.]+ ms, inference [\d.]+ ms, "
        assert re.fullmatch(rates + r"decoding [\d.]+ ms, drawing [\d.]+ ms", page.text("rates"))
        index = paused(page)
        faces = results[index]
        assert len(faces) == len(page.run("return [...document.querySelectorAll('#results li')].map(e => e.innerText)"))
        assert faces

        page.press("s")
        saved = tmp_path / "saved" / f"frame-{index:06}.jpg"
        until(saved.is_file)
        height, width = read_image(saved).shape[:2]
        assert (height, width) == read_image(shared / "images" / "mtcnn_face4.jpg").shape[:2]

        picture = page.screenshot("video").astype(int)
        scale = min(picture.shape[0] / height, picture.shape[1] / width)
        shift = (picture.shape[1] - scale * width) / 2, (picture.shape[0] - scale * height) / 2
        blue, green, red = np.moveaxis(picture, 2, 0)
        is_drawn = green - np.maximum(blue, red) > 50  # JPEG blurs colours
        expected = np.zeros_like(is_drawn)
        for face in faces:
            corners = np.reshape(face["box"], (2, 2)) * scale + shift
            (x1, y1), (x2, y2) = np.rint(corners).astype(int)
            for x in (x1, x2):
                assert is_drawn[y1 + 8 : y2 - 8, x - 4 : x + 5].any(axis=1).mean() > 0.8
            for y in (y1, y2):
                assert is_drawn[y - 4 : y + 5, x1 + 8 : x2 - 8].any(axis=0).mean() > 0.8
            label = int(140 * scale)  # of the label, which stands above the box or over its upper edge
            expected[max(0, y1 - int(24 * scale)) : y2 + 6, max(0, x1 - 6) : max(x2, x1 + label) + 6] = True
        assert is_drawn[~expected].mean() < 0.002

        page.press(" ")
        until(lambda: frame_of(page) > index)
        process.terminate()
        until(lambda: page.text("state").startswith("ended"))
        assert page.run("return document.getElementById('pause').disabled")


def assert_results_are_seen_with_the_picture(page: Browser, height: int) -> None:
    until(lambda: page.run("return document.querySelectorAll('#results li').length"))
    places = "return [...document.querySelectorAll('#video, #results li')].map(each => each.getBoundingClientRect())"
    for box in page.run(places):
        assert 0 <= box["top"] < box["bottom"] <= height
    assert page.run("return document.getElementById('video').getBoundingClientRect().height") > height / 4


def test_it_fits_a_phone_and_has_names_for_screen_readers(shared: Path, tmp_path: Path) -> None:
    with served(shared, tmp_path) as (address, _, _), browser(tmp_path, 360, 740) as page:
        page.open(address)
        until(lambda: frame_of(page) >= 1)
        assert page.run("return [innerWidth, document.documentElement.scrollWidth]") == [360, 360]
        boxes = page.run(
            "return ['pause', 'save', 'video'].map(id => document.getElementById(id).getBoundingClientRect())"
        )
        for box in boxes:
            assert box["left"] >= 0
            assert box["right"] <= 360
            assert box["height"] >= 44
        assert boxes[0]["bottom"] < 740
        named = "return [...document.querySelectorAll('img, button, a')].map(e => e.alt || e.innerText)"
        assert page.run(named) == ["Live image with the results drawn in", "Pause", "Save frame"]
        assert page.run("return document.documentElement.lang") == "en"
        assert_results_are_seen_with_the_picture(page, 740)
        with browser(tmp_path / "wide", 1280, 720) as wide:
            wide.open(address)
            until(lambda: frame_of(wide) >= 1)
            assert_results_are_seen_with_the_picture(wide, 720)
        page.press("\ue004")  # Tab
        page.press("\ue007")  # Enter
        until(lambda: page.text("state") == "paused")
        assert page.text("pause") == "Resume"
