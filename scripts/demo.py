"""The demo of `make demo`: the best network whose files can be had here, at last the digits that come with edgedeploy.

It runs on this machine and, where there can be such, on virtual Raspberry Pis of 64 and of 32 bits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from edgedeploy.audio.spec import SOUND_DEMOS
from edgedeploy.board import load_board
from edgedeploy.cli.console import ConsoleProgress
from edgedeploy.demo.spec import DEMOS
from edgedeploy.errors import DownloadError, EdgedeployError, VirtualBoardError
from edgedeploy.interruption import INTERRUPTED
from edgedeploy.virtual.board import down, find
from edgedeploy.virtual.emulation import emulation_of, require_means
from edgedeploy.zoo.download import Patience
from edgedeploy.zoo.entry import MODELS
from edgedeploy.zoo.store import fetch, obtainable, pull

# Demos in order of preference: the first one whose files can be had is shown. Names of demos that are not here are
# passed over. The last one comes with edgedeploy.
PREFERRED = ("retinaface", "face-mesh", "ocr", "pose", "hands", "wake-word", "digits")
BOARDS = ("rpi4", "rpi-armhf")

SCRIPTS = Path(__file__).resolve().parent
PICTURE = SCRIPTS.parent / "build" / "demo.png"

# One short attempt: somebody waits, and there is something else to show.
HASTE = Patience(connect=4, read=10, attempts=1)


def obstacle(name: str) -> DownloadError | None:
    """Why a file of a demo cannot be had; what else may be wrong the demo itself reports."""
    progress = ConsoleProgress()
    try:
        if name in SOUND_DEMOS.names():
            sound_demo = SOUND_DEMOS.load(name)
            folder, stages, shown = SOUND_DEMOS.find(name).parent, sound_demo.stages, sound_demo.sound
        else:
            demo = DEMOS.load(name)
            folder, stages, shown = DEMOS.find(name).parent, demo.stages, demo.image
        for stage in stages:
            path, model = obtainable(MODELS.find(stage.model), MODELS.load(stage.model), progress)
            pull(model, folder=path.parent, progress=progress, patience=HASTE)
        if not shown.bundled:
            fetch(shown, folder=folder, progress=progress, patience=HASTE)
    except DownloadError as error:
        return error
    except EdgedeployError:
        return None
    return None


def choose(preferred: Sequence[str] = PREFERRED) -> str:
    """The first demo whose files can be had; says why those before it cannot be shown."""
    known = {*DEMOS.names(), *SOUND_DEMOS.names()}
    *better, last = [name for name in preferred if name in known]
    for name in better:
        found = obstacle(name)
        if found is None:
            print(f"This is the demo {name}: its files are at hand.\n")
            return name
        print(f"{name} cannot be shown: {str(found).splitlines()[0]}")
    print(f"This is the demo {last}, whose files come with edgedeploy.\n")
    return last


def play(name: str, *options: str) -> int:
    """Run a demo as a user does; its exit code."""
    sys.stdout.flush()
    return subprocess.run([sys.executable, "-m", "edgedeploy", "demo", name, *options], check=False).returncode


@contextmanager
def own_interruptions() -> Iterator[None]:
    """Within the block Ctrl-C in a terminal reaches this program and what it starts, and not the make that waits."""
    try:
        before = os.tcgetpgrp(sys.stdin.fileno())
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # who is in the background may not take the terminal else
        os.setpgid(0, 0)
        os.tcsetpgrp(sys.stdin.fileno(), os.getpgrp())
    except (OSError, ValueError):  # no terminal, or a session's first process
        yield
        return
    try:
        yield
    finally:
        os.tcsetpgrp(sys.stdin.fileno(), before)


def on_boards(name: str) -> int:
    """The same demo on virtual boards, after Debian's packages for them are there; its exit code."""
    print("\nThe same on virtual Raspberry Pis comes now; Ctrl-C leaves it out.", flush=True)
    subprocess.run([SCRIPTS / "system_packages.sh", "virtual-boards"], check=False)
    try:
        require_means()
        for board in BOARDS:
            emulation_of(load_board(board))
    except VirtualBoardError as error:
        print(f"\nThere can be no virtual boards here: {error.cause}")
        return 0
    code = 0
    for board in BOARDS:
        if code == 0:
            print(f"\nThe same on a virtual {board}; the times are those of an emulator:\n")
            found_running = find(board)
            try:
                code = play(name, "--board", board, "--virtual", *sys.argv[1:])
            finally:
                started = find(board)
                if started and started != found_running:
                    down(started)
            if code == VirtualBoardError.exit_code:
                print("\nThere can be no virtual boards here, as the error says; on this machine itself the demo ran.")
                return 0
    return code


def main() -> int:
    """Say which demo it is and why, and run it here and on virtual boards."""
    name = choose()
    drawn = [] if name in SOUND_DEMOS.names() else ["--save", os.path.relpath(PICTURE)]
    code = play(name, "--board", "local", *drawn, *sys.argv[1:])
    if code != 0:
        return code
    try:
        code = on_boards(name)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        print("\nThe virtual boards are left out.")
        return 0
    return code


if __name__ == "__main__":
    with own_interruptions():
        code = main()
    sys.exit(code)
