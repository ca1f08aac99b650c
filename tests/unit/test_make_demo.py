"""Which demo `make demo` shows."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from edgedeploy.errors import DownloadError

SCRIPT = Path(__file__).parents[2] / "scripts" / "demo.py"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on a machine without copies of files, whose pip knows an empty folder only."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("EDGEDEPLOY_MODELS", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    found = importlib.util.spec_from_file_location("make_demo", SCRIPT)
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_first_demo_whose_files_can_be_had_is_shown(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "obstacle", lambda name: DownloadError("no network") if name == "retinaface" else None)
    assert script.choose(("retinaface", "of-another-version", "wake-word", "digits")) == "wake-word"
    assert capsys.readouterr().out.splitlines()[:2] == [
        "retinaface cannot be shown: no network",
        "This is the demo wake-word: its files are at hand.",
    ]


def test_without_files_and_package_index_it_is_the_one_that_comes_with_edgedeploy(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.choose(("wake-word", "digits")) == "digits"
    said = capsys.readouterr().out
    assert "wake-word cannot be shown: cannot get melspectrogram.onnx: the wheel openwakeword 0.4.0 cannot be" in said
    assert "This is the demo digits, whose files come with edgedeploy." in said


def test_the_last_resort_needs_no_file_from_elsewhere(script: ModuleType) -> None:
    assert script.obstacle(script.PREFERRED[-1]) is None
