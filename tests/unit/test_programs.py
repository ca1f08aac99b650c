"""Tests find the programs that a bare Debian machine would have, and no others that this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from support import programs
from support.commands import need

pytestmark = pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="no dpkg says which programs Debian has")

INNER = """
import shutil

def test_programs():
    assert shutil.which("sh") and shutil.which("git")
    assert shutil.which("of-nobody") is None
"""


@pytest.fixture
def outer(tmp_path: Path) -> str:
    """A PATH whose first folder has a program that no package brings, and a `sh` of its own."""
    for name in ("of-nobody", "sh"):
        shutil.copy(str(shutil.which("true")), tmp_path / name)
    return f"{tmp_path}{os.pathsep}{os.environ['PATH']}"


def test_a_program_of_no_listed_package_is_hidden(outer: str) -> None:
    found = programs.permitted(outer)
    assert "of-nobody" not in found
    assert found["sh"].resolve() == Path("/bin/sh").resolve()


def test_tests_run_with_that_path(outer: str, tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(INNER)
    environment = {**os.environ, "PATH": outer, "PYTHONPATH": str(ROOT / "tests")}
    environment.pop(programs.OUTER)
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "support.programs"]
    done = subprocess.run([*command, "test_inner.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_what_a_package_of_many_machines_needs_is_no_program_for_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """As procps, which a machine with cmake has, and a bare one has not."""
    packages = {"needed": "", "wanted": "needed (>= 1)", "alone": "hidden:any | none", "hidden": ""}
    lines = [f"{name}\t{name}, \tno optional\t{needs}, \n" for name, needs in packages.items()]
    monkeypatch.setattr(programs, "_said", lambda *command: "".join(lines))
    assert programs.installed(["wanted"], ["alone"]) == ["alone", "needed", "wanted"]


def test_a_test_that_needs_a_hidden_program_fails_instead_of_being_skipped(
    outer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(programs.OUTER, outer)
    with pytest.raises(pytest.fail.Exception, match="list its package"):
        need("of-nobody", "nothing")
