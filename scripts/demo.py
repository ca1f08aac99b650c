"""The demo of `make demo`: RetinaFace where its files can be had, else the digits that come with edgedeploy.

It runs on this machine and, where there can be such, on virtual Raspberry Pis of 64 and of 32 bits.
"""

from __future__ import annotations

import subprocess
import sys

from edgedeploy.board import load_board
from edgedeploy.demo.spec import DEMOS
from edgedeploy.errors import DownloadError, EdgedeployError, VirtualBoardError
from edgedeploy.virtual.board import down, find
from edgedeploy.virtual.emulation import emulation_of, require_means
from edgedeploy.zoo.download import Patience
from edgedeploy.zoo.entry import MODELS
from edgedeploy.zoo.store import fetch, obtainable, pull

FIRST, BUNDLED = "retinaface", "digits"
BOARDS = ("rpi4", "rpi-armhf")

# One short attempt: somebody waits, and there is something else to show.
HASTE = Patience(connect=4, read=10, attempts=1)


def obstacle(name: str) -> DownloadError | None:
    """Why the network or the image of a demo cannot be had; what else may be wrong the demo itself reports."""
    try:
        demo = DEMOS.load(name)
        path, model = obtainable(MODELS.find(demo.model), MODELS.load(demo.model))
        pull(model, folder=path.parent, patience=HASTE)
        fetch(demo.image, folder=DEMOS.find(name).parent, patience=HASTE)
    except DownloadError as error:
        return error
    except EdgedeployError:
        return None
    return None


def play(name: str, *options: str) -> int:
    """Run a demo as a user does; its exit code."""
    sys.stdout.flush()
    return subprocess.run([sys.executable, "-m", "edgedeploy", "demo", name, *options], check=False).returncode


def main() -> int:
    """Say which demo it is and why, and run it here and on a virtual board."""
    found = obstacle(FIRST)
    if found:
        print(f"{FIRST} cannot be shown: {str(found).splitlines()[0]}")
        print(f"This is the demo {BUNDLED} instead, whose network and image come with edgedeploy.\n")
    else:
        print(f"This is the demo {FIRST}: its network and its image are at hand.\n")
    name = BUNDLED if found else FIRST
    code = play(name, "--board", "local", *sys.argv[1:])
    try:
        require_means()
        for board in BOARDS:
            emulation_of(load_board(board))
    except VirtualBoardError as error:
        print(f"\nThere can be no virtual boards here: {error}")
        return code
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


if __name__ == "__main__":
    sys.exit(main())
