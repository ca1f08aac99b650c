"""The CPU that networks are compiled for when tests say `local`: the same on every x86-64 machine.

What the tests' process reads as this machine's facts is one of `LEVELS`, whatever else the machine can do; processes
that tests start see the machine itself. Machines that lack the usual level, such as those of ARM, are as they are.
"""

import platform
import shutil
from typing import Any

import pytest
from mca import PROGRAM

from edgedeploy.errors import UnsupportedError
from edgedeploy.predicting.tools import Means
from edgedeploy.target import board
from edgedeploy.target.board import Board, load_board
from edgedeploy.target.hosts import host_facts, host_features, missing_features
from edgedeploy.target.triples import architecture_of
from support.agents import command_of

# LLVM's names: plain x86-64, AVX2, AVX-512, AVX512-VNNI.
LEVELS = ("x86-64", "x86-64-v3", "x86-64-v4", "cascadelake")
USUAL = "x86-64-v3"
NATIVE = "native"


def pytest_addoption(parser: pytest.Parser) -> None:
    text = f"compile for this CPU of x86-64 where tests say `local`, or for `{NATIVE}` (default: {USUAL})"
    parser.addoption("--cpu", choices=[*LEVELS, NATIVE], default=USUAL, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Replace what `native` in a profile stands for, before test modules read profiles."""
    level = config.getoption("cpu")
    if level == NATIVE or (level == USUAL and lacking(level)):
        return
    if lacking(level):
        raise pytest.UsageError(f"--cpu {level}: {lacking(level)}")
    board.host_facts = lambda: facts_of(level)  # type: ignore[attr-defined]


def facts_of(level: str) -> dict[str, Any]:
    """This machine's facts if its CPU were of that level, with two cores and caches as many have."""
    vector = architecture_of("x86_64").vector_of(level)
    return {
        **host_facts(),
        "cpu": level,
        "cores": 2,
        "vector": vector.model_dump(),
        "cache": {"l1_kib": 32, "l2_kib": 512},
    }


def lacking(cpu: str) -> str | None:
    """Why this machine cannot run code for a CPU of x86-64, by the features that it lacks; None if it can."""
    if platform.machine() != "x86_64":
        return f"code for {cpu} does not run on {platform.machine()}"
    missing = missing_features(cpu, host_features())
    return f"this machine has no {', '.join(sorted(missing))}, which code for {cpu} needs" if missing else None


def need_cpu(of: Board) -> None:
    """Skip the test where this machine cannot run code for a board of x86; that of others is emulated."""
    if of.is_x86 and (reason := lacking(of.cpu)):
        pytest.skip(reason)


@pytest.fixture
def own_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """`local` is this machine as it is: for tests that start processes which say `local` too."""
    monkeypatch.setattr(board, "host_facts", host_facts)


@pytest.fixture(params=LEVELS)
def each_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each level in turn is `local`, as far as this machine has it; its own on other machines than x86-64."""
    level: str = request.param
    if platform.machine() != "x86_64" and level == LEVELS[0]:
        return NATIVE
    if reason := lacking(level):
        pytest.skip(reason)
    monkeypatch.setattr(board, "host_facts", lambda: facts_of(level))
    return level


needs_mca = pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=f"{PROGRAM} is not installed: apt install llvm-19")


def require_predictions(board: str) -> str:
    """The board's name, its agent built; skips the test where nothing can be predicted for it."""
    try:
        Means.of(board, load_board(board))
    except UnsupportedError as error:
        pytest.skip(str(error))
    command_of(board)
    return board
