"""Programs that are to end, by their process numbers."""

from __future__ import annotations

import time
from pathlib import Path

from support.patience import generous


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def assert_ends(pid: int) -> None:
    deadline = time.monotonic() + generous(5)
    while runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
