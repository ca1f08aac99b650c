"""What packages are kept under: another key wherever another package could come out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from networks import tiny

from edgedeploy import build
from edgedeploy.board import load_board
from edgedeploy.source import Source, find_source


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of edgedeploy's own files, which keys are taken of."""
    folder = tmp_path / "edgedeploy"
    shutil.copytree(Path(build.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(build, "__file__", str(folder / "build.py"))
    yield folder
    build._compiler_fingerprint.cache_clear()


@pytest.fixture
def network(tmp_path: Path) -> Source:
    return find_source(str(tiny(tmp_path / "net.onnx")))


def key(network: Source) -> str:
    build._compiler_fingerprint.cache_clear()
    return build.build_key(network, load_board("local"))


@pytest.mark.parametrize(
    "name",
    [
        "build.py",
        "compile/schedules/matmul.py",
        "frontends/onnx.py",
        "runtime/native/thread_pool.c",
        "runtime/native/tvm.h",
        "toolchain.py",
    ],
)
def test_changed_code_makes_another_key(sources: Path, network: Source, name: str) -> None:
    before = key(network)
    assert key(network) == before
    with (sources / name).open("a") as stream:
        stream.write("\n")
    assert key(network) != before


def test_how_a_release_is_looked_after_leaves_the_key(network: Source) -> None:
    board = load_board("local")
    checked = board.model_copy(update={"health_check": "true", "health_check_s": 5})
    assert build.build_key(network, checked) == build.build_key(network, board)


def test_what_makes_no_package_leaves_the_key(sources: Path, network: Source) -> None:
    before = key(network)
    (sources / "cli" / "run.py").write_text("")
    assert key(network) == before
