"""Draws docs/pictures/terminal.svg: a real run of build, push and demo, on a virtual Raspberry Pi 4."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from edgedeploy.virtual.board import down, find

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "terminal.svg"
BOARD = "rpi4"
COMMANDS = [
    f"edgedeploy build retinaface --board {BOARD} --force",
    f"edgedeploy push retinaface --board {BOARD} --virtual",
    f"edgedeploy demo retinaface --board {BOARD} --virtual --save faces.jpg --log named",
]
COLUMNS = 104

# Programs that show SVG load no fonts of others: letters are those of the reader.
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def run(command: str, folder: str) -> list[str]:
    """What a command prints in a folder, progress and results together; if it fails, the script ends."""
    words = [sys.executable, "-m", *command.split()]
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{command} ended with exit code {done.returncode}:\n{done.stdout}")
    return done.stdout.splitlines()


def draw(outputs: dict[str, list[str]]) -> str:
    """The picture of a terminal with commands and what they printed; lines of progress are dim."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for command, lines in outputs.items():
        console.print(Text(f"$ {command}", style="bold cyan"))
        for line in lines:
            console.print(Text(line, style="dim" if line.startswith("  ") else ""), soft_wrap=True)
    return _FONTS.sub("", console.export_svg(title="edgedeploy", unique_id="terminal"))


def main() -> None:
    """Run the commands on a fresh virtual board, and draw them."""
    if find(BOARD):
        sys.exit(f"a virtual board runs, with releases of its own: edgedeploy virtual down {BOARD}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            # What is made once is made before: the agent, and the board.
            for command in (COMMANDS[0], f"edgedeploy virtual up {BOARD}"):
                run(command, folder)
            outputs = {command: run(command, folder) for command in COMMANDS}
    finally:
        if started := find(BOARD):
            down(started)
    PICTURE.write_text(draw(outputs), encoding="utf-8")
    print(PICTURE)


if __name__ == "__main__":
    main()
