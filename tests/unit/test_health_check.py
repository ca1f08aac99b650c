"""A health check's command: what it is told, how it ends, and what it may be, in the shells that boards have."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from edgedeploy.errors import InputError
from edgedeploy.release.health import CHECK, HealthCheck
from edgedeploy.target.board import load_board


def checked(shell: list[str], folder: Path, command: str, limit_s: int = 30) -> subprocess.CompletedProcess[str]:
    """A check, run as boards run it, but here."""
    arguments = [*shell, "-c", CHECK, "sh", str(folder), str(limit_s), "digits", "ID", command]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=300, check=False)


def test_a_check_knows_what_it_checks_and_its_code_counts(shell: list[str], tmp_path: Path) -> None:
    done = checked(shell, tmp_path, 'pwd; echo "$EDGEDEPLOY_MODEL $EDGEDEPLOY_RELEASE $0"; echo why >&2; cat; exit 7')
    assert (done.returncode, done.stdout) == (7, f"{tmp_path}\ndigits ID sh\nwhy\n")
    assert checked(shell, tmp_path, "true").returncode == 0


@pytest.mark.slow
def test_a_check_that_takes_too_long_is_ended_with_its_children(shell: list[str], tmp_path: Path) -> None:
    command = "trap '' TERM; echo began; (sleep 654; echo late) & sleep 654"
    started = time.monotonic()
    done = checked(shell, tmp_path, command, limit_s=1)
    # The output's end came, so all that held it has ended.
    assert time.monotonic() - started < 200
    assert (done.returncode, done.stdout) == (124, "began\n")


def test_the_command_line_goes_before_the_profile() -> None:
    board = load_board("local").model_copy(update={"health_check": "profile", "health_check_s": 5})
    assert HealthCheck.chosen(board, None, None) == HealthCheck("profile", 5)
    assert HealthCheck.chosen(board, "line", 7) == HealthCheck("line", 7)
    assert HealthCheck.chosen(board, "", None) is None
    assert HealthCheck.chosen(load_board("local"), None, None) is None
    with pytest.raises(InputError, match="health_check="):
        HealthCheck.chosen(board, " ", None)
