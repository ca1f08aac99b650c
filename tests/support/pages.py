"""Pages, followed as a reader would: commands with what they print, and Python, in the order in which it stands."""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from support.commands import executable, printed, put

_BLOCK = re.compile(r"^```(console|python|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.(?:py|yaml))\n")

# What needs a board.
BOARD = "ed.connect("


def follow(page: str, folder: Path, variables: dict[str, str]) -> list[str]:
    """Do what a page says in a folder; what differs from what it shows, a text for each command.

    Blocks of Python and YAML are files, whose name is in their first line. In blocks `console`, lines after `$` are
    commands, and the others what they print on standard output; `...` stands for anything.
    """
    differences = []
    for kind, text in _BLOCK.findall(page):
        if kind != "console":
            named = _FILE.match(text)
            assert named, text
            path = folder / named[1]
            put(path, text)
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            printed = _output(command, folder, variables)
            if not _pattern(shown).fullmatch(printed):
                differences.append(f"$ {command}\nshown:\n{shown}\nprinted:\n{printed}")
    return differences


def _output(command: str, folder: Path, variables: dict[str, str]) -> str:
    programs = folder / ".programs"
    for name, words in (("edgedeploy", "-m edgedeploy"), ("python", "")):
        executable(programs / name, f'exec {sys.executable} {words} "$@"')
    environment = {**os.environ, **variables, "PATH": f"{programs}:{os.environ['PATH']}"}
    return printed("sh", "-c", command, cwd=folder, env=environment)


def _pattern(shown: str) -> re.Pattern[str]:
    lines = [".*?".join(map(re.escape, line.split("..."))) for line in shown.strip().splitlines()]
    text = "\n".join("(?:.*\n)*?.*" if line == ".*?" else line for line in lines)
    return re.compile(rf"\s*{text}\s*")


def snippets(page: Path) -> list[tuple[int, str]]:
    """The blocks of Python in a page, with the lines that they begin in."""
    text = page.read_text(encoding="utf-8")
    blocks = [found for found in _BLOCK.finditer(text) if found[1] == "python"]
    return [(text[: found.start()].count("\n") + 2, found[2]) for found in blocks]


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
