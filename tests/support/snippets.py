"""The Python in pages, run in the order in which it stands there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What needs a board.
BOARD = "ed.connect("


def snippets(page: Path) -> list[tuple[int, str]]:
    """The blocks of Python in a page, with the lines that they begin in."""
    text = page.read_text(encoding="utf-8")
    return [(text[: found.start()].count("\n") + 2, found[1]) for found in _BLOCK.finditer(text)]


def run(page: Path, parts: list[tuple[int, str]], names: dict[str, Any]) -> None:
    """Run blocks one after another, with the names of those before."""
    for line, text in parts:
        code = compile("\n" * (line - 1) + text, str(page), "exec")
        exec(code, names)


def lay_out(folder: Path, models: Path) -> dict[str, Any]:
    """The files that pages speak of; gives the names that they take as known."""
    shutil.copyfile(models / "digit.png", folder / "digit.png")
    shutil.copyfile(models / "digits.onnx", folder / "net.onnx")
    (folder / "photos").mkdir()
    image = cv2.imread(str(models / "digit.png"))
    for turn in range(24):
        shifted = np.roll(image, turn % 5 - 2, axis=1 + turn % 2 - 1)
        cv2.imwrite(str(folder / "photos" / f"{turn}.png"), shifted)
    return {"array": np.zeros((1, 1, 16, 16), np.float32)}
