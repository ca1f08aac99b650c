"""Pages with commands and what they print: run from top to bottom, as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_BLOCK = re.compile(r"^```(console|python|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.(?:py|yaml))\n")


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
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            printed = _output(command, folder, variables)
            if not _pattern(shown).fullmatch(printed):
                differences.append(f"$ {command}\nshown:\n{shown}\nprinted:\n{printed}")
    return differences


def _output(command: str, folder: Path, variables: dict[str, str]) -> str:
    programs = folder / ".programs"
    programs.mkdir(exist_ok=True)
    for name, words in (("edgedeploy", "-m edgedeploy"), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        program.chmod(0o755)
    environment = {**os.environ, **variables, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
    return done.stdout


def _pattern(shown: str) -> re.Pattern[str]:
    lines = [".*?".join(map(re.escape, line.split("..."))) for line in shown.strip().splitlines()]
    text = "\n".join("(?:.*\n)*?.*" if line == ".*?" else line for line in lines)
    return re.compile(rf"\s*{text}\s*")
