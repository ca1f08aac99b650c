"""The demo of `make demo`: the best network whose files are available, else the digits that come with edgedeploy.

It runs on this machine and, where there can be such, on virtual Raspberry Pis of 64 and of 32 bits.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from edgedeploy.audio.spec import SOUND_DEMOS
from edgedeploy.base.attempts import attempted, first_failure
from edgedeploy.base.interruption import INTERRUPTED
from edgedeploy.cli.console import ConsoleProgress, print_outcomes
from edgedeploy.demo.spec import DEMOS
from edgedeploy.errors import DownloadError, EdgedeployError, NotInstalledError, VirtualBoardError
from edgedeploy.target.board import load_board
from edgedeploy.virtual.board import down, find
from edgedeploy.virtual.emulation import emulation_of, require_means
from edgedeploy.zoo.download import Patience
from edgedeploy.zoo.entry import MODELS
from edgedeploy.zoo.store import fetch, obtainable, pull

# In order of preference: the first available demo that does not fail is shown. The last one comes with edgedeploy.
PREFERRED = ("retinaface", "face-mesh", "ocr", "pose", "hands", "wake-word", "digits")
BOARDS = ("rpi4", "rpi-armhf")

SCRIPTS = Path(__file__).resolve().parent
PICTURE = SCRIPTS.parent / "build" / "demo.png"

# One short attempt: somebody waits, and there is something else to show.
HASTE = Patience(connect=4, read=10, attempts=1)


class DemoError(EdgedeployError):
    """A demo ended with an exit code that is not 0."""

    def __init__(self, code: int) -> None:
        super().__init__(f"it ended with exit code {code}")
        self.exit_code = code
        self.unavailable = code in (DownloadError.exit_code, NotInstalledError.exit_code)


def pull_files(name: str) -> None:
    """Have the files of a demo here.

    Raises:
        DownloadError: one cannot be had.
    """
    progress = ConsoleProgress()
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


def show(name: str) -> None:
    """Show a demo on this machine.

    Raises:
        EdgedeployError: it cannot be had, or fails.
        KeyboardInterrupt: Ctrl-C ended it.
    """
    pull_files(name)
    print(f"This is the demo {name}: its files are available.\n", flush=True)
    PICTURE.parent.mkdir(exist_ok=True)
    drawn = [] if name in SOUND_DEMOS.names() else ["--save", os.path.relpath(PICTURE)]
    require(play(name, "--board", "local", *drawn, *sys.argv[1:]))


def show_on_board(name: str, board: str) -> None:
    """Show a demo on a virtual board, which is stopped afterwards if it did not run before; raises as `show`."""
    print(f"\nThe same on a virtual {board}; the times are those of an emulator:\n", flush=True)
    found_running = find(board)
    try:
        require(play(name, "--board", board, "--virtual", *sys.argv[1:]))
    finally:
        started = find(board)
        if started and started != found_running:
            down(started)


def require(code: int) -> None:
    """Raise the error that an exit code of a demo means, if it is not 0."""
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code == VirtualBoardError.exit_code:
        raise VirtualBoardError("a virtual board does not start, as the error says")
    if code:
        raise DemoError(code)


def on_boards(name: str) -> dict[str, object]:
    """The same demo on virtual boards, after Debian's packages for them are there; what became of each."""
    print("\nThe same on virtual Raspberry Pis comes now; Ctrl-C leaves it out.", flush=True)
    subprocess.run([SCRIPTS / "system_packages.sh", "virtual-boards"], check=False)
    outcomes: dict[str, object] = {}
    try:
        require_means()
        for board in BOARDS:
            emulation_of(load_board(board))
        for board in BOARDS:
            outcome = attempted(partial(show_on_board, name, board))
            if isinstance(outcome, VirtualBoardError):
                raise outcome
            outcomes[f"{name} on {board}"] = outcome
    except VirtualBoardError as error:
        print(f"\nThere can be no virtual boards here: {error.cause}")
    return outcomes


def main(preferred: Sequence[str] = PREFERRED) -> int:
    """Show the first demo that is available, here and on virtual boards; the exit code."""
    known = {*DEMOS.names(), *SOUND_DEMOS.names()}
    outcomes: dict[str, object] = {}
    try:
        for name in preferred:
            if name in known:
                outcomes[name] = outcome = attempted(partial(show, name))
                if outcome is None:
                    break
                print(f"{name} cannot be shown: {outcome.cause}\n", flush=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    if None in outcomes.values():
        try:
            outcomes |= on_boards(name)
        except KeyboardInterrupt:
            print("\nThe virtual boards are left out.")
    if any(outcomes.values()):
        print_outcomes(outcomes, lambda _: "shown", what="demo")
    failure = first_failure(outcomes.values())
    return failure.exit_code if failure else 0


if __name__ == "__main__":
    with own_interruptions():
        code = main()
    sys.exit(code)
