"""Fixtures that several tests share."""

import os
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.caches import KEPT, OTHERS, cool, is_patched, remove_stale, share_caches
from xdist.scheduler import LoadScopeScheduling

from edgedeploy.cli import main
from edgedeploy.cli.global_options import GlobalOptions, set_global_options

pytest_plugins = [
    "support.programs",
    "support.commands",
    "support.agents",
    "support.virtual_boards",
    "support.wheels",
    "support.compiled",
    "support.cpus",
    "support.demo_runs",
    "support.fuzzing",
    "support.library_programs",
    "support.opencl_devices",
    "support.services",
]

ROOT = Path(__file__).resolve().parent.parent

# Development material beside the checkout, of which nothing is part of the product.
SHARED = Path(os.environ.get("EDGEDEPLOY_SHARED", ROOT.parent / "shared"))

USER_FOLDERS = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")


def pytest_configure(config: pytest.Config) -> None:
    """Where slow tests are left out, so are seven of eight examples of properties."""
    if "not slow" in config.getoption("markexpr"):
        from support import fuzzing

        fuzzing.share = 8
    if not hasattr(config, "workerinput"):
        remove_stale()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of boards and of whole networks all need code; rows that are not quick are slow."""
    for item in items:
        if item.path.parent.name != "unit":
            item.add_marker("compiles")
        row = item.callspec.id if hasattr(item, "callspec") else ""
        if (quick := item.get_closest_marker("quick")) and not any(fnmatchcase(row, each) for each in quick.args):
            item.add_marker("slow")
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        for generator in _generators(module):
            _BEGINNINGS.setdefault(generator, generator.bit_generator.state)


# The state of each generator of random numbers that a test module has, as it was before the first test.
_BEGINNINGS: dict[np.random.Generator, Any] = {}


def _generators(module: ModuleType) -> list[np.random.Generator]:
    return [value for value in vars(module).values() if isinstance(value, np.random.Generator)]


@pytest.fixture(autouse=True)
def _same_random_numbers_in_any_order(request: pytest.FixtureRequest) -> None:
    """A test draws the same numbers, whichever tests ran before it in the same process."""
    for generator in _generators(request.module):
        generator.bit_generator.state = _BEGINNINGS[generator]


def _without_code(config: pytest.Config) -> bool:
    """Whether tests that generate code are left out."""
    return "not compiles" in config.getoption("markexpr")


@pytest.fixture(scope="session", autouse=True)
def _no_code_in_fast_tests(pytestconfig: pytest.Config) -> Iterator[None]:
    """Where tests that compile are left out, one that lacks the marker fails."""
    with pytest.MonkeyPatch.context() as patch:
        if _without_code(pytestconfig):
            from edgedeploy.compile.backends.cpu import codegen

            # No subclass of Exception, which edgedeploy would take for an error of LLVM's.
            reason = "mark this test with `compiles`: it generates code"
            patch.setattr(codegen, "write_object", lambda *arguments: pytest.fail(reason))
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_user_folders(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[None]:
    """Tests neither read nor write the cache and the configuration of the user who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in USER_FOLDERS:
            patch.setenv(variable, str(tmp_path_factory.mktemp("user")))
        share_caches(Path(os.environ["XDG_CACHE_HOME"]), cold=_without_code(pytestconfig))
        for variable, name in OTHERS.items():
            patch.setenv(variable, str(KEPT / name))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of development material."""
    if not SHARED.is_dir():
        pytest.skip(f"there is no folder {SHARED}; set EDGEDEPLOY_SHARED to where the development material lies")
    return SHARED


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `seen`, with digits of training, and `new`, with those that were held out."""
    from support.quantised_networks import write_digits

    folder = tmp_path_factory.mktemp("digits")
    write_digits(folder / "seen", 60, held_out=False)
    write_digits(folder / "new", held_out=True)
    return folder


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, request: pytest.FixtureRequest
) -> Command:
    """The command line in an empty folder, with empty user folders: its exit code, output and messages.

    Packages that tests built before from the same are found, unless the test has the marker `cold_cache` or patches
    what may build them.
    """
    for variable in USER_FOLDERS:
        monkeypatch.setenv(variable, str(tmp_path / "user"))
    cold = request.node.get_closest_marker("cold_cache") is not None or _without_code(request.config)
    share_caches(tmp_path / "user", cold=cold)
    if "shared_zoo" not in request.fixturenames:  # which may be set up before
        monkeypatch.delenv("EDGEDEPLOY_MODELS", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run = run_command(monkeypatch, capsys)

    def run_unless_patched(*arguments: object) -> tuple[int, str, str]:
        if is_patched(monkeypatch):
            cool(tmp_path / "user")
        return run(*arguments)

    return run_unless_patched


def run_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in whatever folders there are: its exit code, output and messages."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgedeploy", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        set_global_options(GlobalOptions())  # which stay in the process, for tests without a command line
        printed = capsys.readouterr()
        code = ended.value.code
        return code if isinstance(code, int) else 0, printed.out, printed.err

    return run


class _ByFileOrFunction(LoadScopeScheduling):  # type: ignore[misc]
    """Tests of boards and of whole networks go to a processor by file, all others by function.

    Those of a file share boards and networks. They come first, so that short ones fill the end.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return nodeid.partition("[")[0] if "/unit/" in path else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    config.option.loadscopereorder = False
    return _ByFileOrFunction(config, log)
