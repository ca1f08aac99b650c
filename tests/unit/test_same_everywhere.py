"""What tests see of this machine is the same on every one: the programs of a bare Debian, and one level of CPU."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from support import programs
from support.commands import need, printed
from support.cpus import LEVELS, NATIVE, USUAL, lacking

from edgedeploy.target.board import load_board

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="no dpkg says which programs Debian has")

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


@needs_dpkg
def test_a_program_of_no_listed_package_is_hidden(outer: str) -> None:
    found = programs.permitted(outer)
    assert "of-nobody" not in found
    assert found["sh"].resolve() == Path("/bin/sh").resolve()


@needs_dpkg
def test_tests_run_with_that_path(outer: str, tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(INNER)
    environment = {**os.environ, "PATH": outer, "PYTHONPATH": str(ROOT / "tests")}
    environment.pop(programs.OUTER)
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "support.programs"]
    printed(*command, "test_inner.py", cwd=tmp_path, env=environment)


def test_what_a_package_of_many_machines_needs_is_no_program_for_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """As procps, which a machine with cmake has, and a bare one has not."""
    packages = {"needed": "", "wanted": "needed (>= 1)", "alone": "hidden:any | none", "hidden": ""}
    lines = [f"{name}\t{name}, \tno optional\t{needs}, \n" for name, needs in packages.items()]
    monkeypatch.setattr(programs, "_said", lambda *command: "".join(lines))
    assert programs.installed(["wanted"], ["alone"]) == ["alone", "needed", "wanted"]


@needs_dpkg
def test_a_test_that_needs_a_hidden_program_fails(outer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(programs.OUTER, outer)
    with pytest.raises(pytest.fail.Exception, match="list its package"):
        need("of-nobody", "nothing")


def test_local_is_the_level_of_cpu_that_was_asked_for(pytestconfig: pytest.Config) -> None:
    level = pytestconfig.getoption("cpu")
    if level == NATIVE or lacking(level):
        pytest.skip("networks are compiled for this machine's own CPU")
    assert load_board("local").cpu == load_board("local-opencl").cpu == level


def test_levels_that_a_machine_lacks_are_named_with_their_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("edgedeploy.target.hosts._cpuinfo", lambda: {"flags": "sse2 avx2 fma bmi1 bmi2 f16c abm movbe"})
    assert [level for level in LEVELS if lacking(level) is None] == ["x86-64", USUAL]
    assert lacking("cascadelake") == "this machine has no avx512_vnni, avx512vl, which code for cascadelake needs"
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert lacking(USUAL) == "code for x86-64-v3 does not run on aarch64"


def test_each_level_in_turn_is_local(each_cpu: str) -> None:
    found = load_board("local")
    assert each_cpu in (NATIVE, found.cpu)
    assert each_cpu == NATIVE or found.vector.bits == {"x86-64": 128, "x86-64-v3": 256}.get(each_cpu, 512)
