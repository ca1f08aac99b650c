"""Fixtures that several tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import properties
from support.agents import KEPT, keep_agents

from edgedeploy.cli import main

pytest_plugins = [
    "support.agent_servers",
    "support.virtual_boards",
    "support.board_releases",
    "support.cpus",
    "support.demo_runs",
    "support.fuzzing",
    "support.opencl_devices",
    "support.programs",
    "support.services",
    "support.shells",
    "support.ssh_servers",
]

ROOT = Path(__file__).resolve().parent.parent

# Development material beside the checkout, of which nothing is part of the product.
SHARED = Path(os.environ.get("EDGEDEPLOY_SHARED", ROOT.parent / "shared"))

USER_FOLDERS = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")


def pytest_configure(config: pytest.Config) -> None:
    """Where slow tests are left out, so is half of the examples of properties."""
    if "not slow" in config.getoption("markexpr"):
        properties.share = 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of boards and of whole networks all need code."""
    for item in items:
        if item.path.parent.name != "unit":
            item.add_marker("compiles")


@pytest.fixture(scope="session", autouse=True)
def _no_code_in_fast_tests(pytestconfig: pytest.Config) -> Iterator[None]:
    """Where tests that compile are left out, one that lacks the marker fails."""
    with pytest.MonkeyPatch.context() as patch:
        if "not compiles" in pytestconfig.getoption("markexpr"):
            from edgedeploy.compile.backends.cpu import codegen

            # No subclass of Exception, which edgedeploy would take for an error of LLVM's.
            reason = "mark this test with `compiles`: it generates code"
            patch.setattr(codegen, "write_object", lambda *arguments: pytest.fail(reason))
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_user_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither read nor write the cache and the configuration of the user who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in USER_FOLDERS:
            patch.setenv(variable, str(tmp_path_factory.mktemp("user")))
        keep_agents(Path(os.environ["XDG_CACHE_HOME"]))
        # zig compiles its C++ library for each triple once, for minutes.
        patch.setenv("ZIG_GLOBAL_CACHE_DIR", str(KEPT / "zig"))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of development material."""
    if not SHARED.is_dir():
        pytest.skip(f"there is no folder {SHARED}; set EDGEDEPLOY_SHARED to where the development material lies")
    return SHARED


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """The command line in an empty folder, with empty user folders: its exit code, output and messages."""
    for variable in USER_FOLDERS:
        monkeypatch.setenv(variable, str(tmp_path / "user"))
    keep_agents(tmp_path / "user")
    monkeypatch.delenv("EDGEDEPLOY_MODELS", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return run_command(monkeypatch, capsys)


def run_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """What the fixture `command` gives, in whatever folders there are."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgedeploy", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        code = ended.value.code
        return code if isinstance(code, int) else 0, printed.out, printed.err

    return run
