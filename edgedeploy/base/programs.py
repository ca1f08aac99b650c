"""Other programs on this machine: call them, wait for them, end them; and shell scripts for boards."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any


def capture(
    command: Sequence[str], *, timeout_s: float | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program and capture its output as text, with any exit code; without `input`, it reads nothing.

    `options` are those of `subprocess.run`. Raises OSError if it cannot be started, and `subprocess.TimeoutExpired`.
    """
    if "input" not in options:
        options["stdin"] = subprocess.DEVNULL
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False, **options
    )


def script(package: str, name: str) -> str:
    """A POSIX shell script in a package, without its lines of comments."""
    text = (resources.files(package) / name).read_text(encoding="utf-8")
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def end_child(process: subprocess.Popen[Any], grace_s: float = 10) -> None:
    """Close a child's input, and wait for its end; kill it if that takes longer than `grace_s`."""
    with contextlib.suppress(OSError):  # it has ended
        if process.stdin:
            process.stdin.close()
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until(condition: Callable[[], bool], limit_s: float, pause_s: float = 0.01) -> bool:
    """Wait until a condition holds, for at most `limit_s`, and return whether it does."""
    deadline = time.monotonic() + limit_s
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(pause_s)
    return holds
