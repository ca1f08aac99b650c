"""The Python of the README, on a real image of faces."""

import shutil
from pathlib import Path

import pytest
from conftest import ROOT
from support.pages import run, snippets


def test_the_snippet_of_the_readme_finds_faces(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDGEDEPLOY_MODELS", f"{shared / 'models'}:{shared / 'images'}")
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(shared / "images" / "mtcnn_face4.jpg", tmp_path / "party.jpg")
    page = ROOT / "README.md"
    parts = snippets(page)
    assert parts
    run(page, parts, {})
    assert len(capsys.readouterr().out.splitlines()) == 4
