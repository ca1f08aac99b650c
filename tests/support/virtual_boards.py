"""Profiles of boards, what firmware says, and virtual boards as fixtures: real sshd, real files, no hardware."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import platformdirs
import pytest
import yaml
from conftest import Command, run_command

from edgedeploy.base.catalog import builtin_folder
from edgedeploy.errors import VirtualBoardError
from edgedeploy.remote.address import address_of
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.facts import BASE
from edgedeploy.target.board import Board, load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.virtual.board import VirtualBoard, up
from support.commands import executable

# Looked up before tests get folders of their own: root file systems take long to make and never change.
ROOT_FILE_SYSTEMS = Path(platformdirs.user_cache_dir("edgedeploy")) / "rootfs"

END_ALL = """
import sys
from edgedeploy.virtual.board import down, running

sys.stdin.read()
for virtual in running():
    down(virtual)
"""

Start = Callable[..., VirtualBoard]


@pytest.fixture(scope="session")
def _needs_virtual_boards(_own_user_folders: None) -> Iterator[None]:
    """Skip where virtual boards cannot be had, and leave none behind."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("virtual boards need root on Linux")
    if shutil.which("mmdebstrap") is None:
        pytest.skip("virtual boards need mmdebstrap, which is not installed")
    mounting = ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    refused = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if refused.returncode != 0:
        pytest.skip(f"virtual boards need mounts in a namespace: {refused.stderr.strip()}")
    ROOT_FILE_SYSTEMS.mkdir(parents=True, exist_ok=True)
    own = Path(platformdirs.user_cache_dir("edgedeploy"))
    own.mkdir(parents=True, exist_ok=True)
    (own / "rootfs").symlink_to(ROOT_FILE_SYSTEMS)
    # Its input ends when the tests do, be it that they are killed.
    with subprocess.Popen([sys.executable, "-c", END_ALL], stdin=subprocess.PIPE, start_new_session=True):
        yield


@pytest.fixture(scope="session")
def start(_needs_virtual_boards: None) -> Start:
    """Starts a virtual board, as `virtual.board.up`; skips where its packages cannot be had."""

    def start_or_skip(board: str, **options: object) -> VirtualBoard:
        try:
            return up(resolve(board), **options)  # type: ignore[arg-type]
        except VirtualBoardError as error:
            if "qemu" in str(error) or "mmdebstrap" in str(error):
                pytest.skip(f"no virtual {board}: {error}")
            raise

    return start_or_skip


@pytest.fixture
def own(start: Start) -> VirtualBoard:
    """One of this machine's architecture, for tests that leave nothing on it."""
    return start("local", name="own")


def said(virtual: VirtualBoard, script: str) -> str:
    """What a script prints there."""
    with Connection(address_of(virtual)) as connection:
        return connection.run(script).text


def emptied(virtual: VirtualBoard) -> VirtualBoard:
    """A virtual board without the releases that other tests pushed to it."""
    said(virtual, f"rm -rf {BASE}")
    return virtual


def root_of(virtual: VirtualBoard) -> Path:
    """The root file system of a virtual board, as its own root sees it."""
    pid = virtual.process.pid
    [first] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return Path(f"/proc/{first}/root")


@pytest.fixture
def board_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, start: Start
) -> Command:
    """The command line in an empty folder, with the session's user folders, where the virtual boards are."""
    monkeypatch.chdir(tmp_path)
    return run_command(monkeypatch, capsys)


@contextmanager
def rpicam(board: VirtualBoard, image: np.ndarray, size: tuple[int, int]) -> Iterator[np.ndarray]:
    """Within the block the board's camera shows an image, of a width and height; that as OpenCV sees it."""
    planes = cv2.cvtColor(cv2.resize(image, size, interpolation=cv2.INTER_CUBIC), cv2.COLOR_BGR2YUV_I420)
    root = root_of(board)
    (root / "opt").mkdir(exist_ok=True)
    (root / "opt" / "frame").write_bytes(planes.tobytes())
    program = executable(root / "usr" / "bin" / "rpicam-vid", "while cat /opt/frame; do sleep 0.05; done")
    try:
        yield cv2.cvtColor(planes, cv2.COLOR_YUV2BGR_I420)
    finally:
        program.unlink()


def write_profile(folder: Path, base: str, **fields: object) -> str:
    """A profile, `mine`, that differs from another in some fields; None takes one away. Gives its path."""
    stated = yaml.safe_load((builtin_folder() / "boards" / f"{base}.yaml").read_text()) | fields
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in stated.items() if value is not None}))
    return str(path)


def x86(cpu: str, bits: int) -> Board:
    """A board with a processor that LLVM knows by a name, and vectors of so many bits."""
    registers = 32 if bits == 512 else 16
    fields: dict[str, Any] = {"triple": "x86_64-unknown-linux-gnu", "cpu": cpu, "features": []}
    return Board.model_validate(
        {**load_board("nuc-opencl").model_dump(), **fields, "vector": {"bits": bits, "registers": registers}}
    )


# Of a Raspberry Pi 5 that does little, in both forms that its firmware has; the supply and the battery have no current.
RAILS = """\
   3V3_SYS_A current(1)=0.10000000A
   VDD_CORE_A current(7)=1.50000000A
   3V3_SYS_V volt(9)=3.30000000V
   VDD_CORE_V volt(15)=0.80000000V
   EXT5V_V volt(24)=5.14000000V
   BATT_V volt(25)=0.00683760V
"""
EARLIER = "3V3_SYS_A=0.1A\nVDD_CORE_A=1.5A\n3V3_SYS_V=3.3V\nVDD_CORE_V=0.8V\nEXT5V_V=5.14V\n"


def vcgencmd(folder: Path, said: str = RAILS) -> None:
    """Put the firmware's program into a folder, which says this of the power chip, and nothing of all else."""
    executable(folder / "vcgencmd", f'[ "$*" = pmic_read_adc ] && cat <<"END"\n{said}END')
