"""A headless Chromium for tests, driven through chromedriver's WebDriver protocol (W3C), as a context manager."""

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from support.patience import generous

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
