"""Demos whose own network was converted run from the public files that it was converted from."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Command

from edgedeploy.demo.spec import DEMOS
from edgedeploy.zoo.entry import MODELS

# Each demo, and a line that it prints.
DEMO_LINES = {
    "classification": ", 281",
    "retinaface": "detected face num: 4",
    "landmark": "Repeat [1]",
    "yolo-fastest": "car",
    "yolo-lite": "dog",
}


@pytest.mark.quick("retinaface", "landmark")  # faces, of one file, and points, of another
@pytest.mark.parametrize("demo", DEMO_LINES)
def test_a_demo_runs_from_public_files_alone(
    demo: str, shared: Path, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry = MODELS.load(DEMOS.load(demo).model)
    assert entry.same_as
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    for file in MODELS.load(entry.same_as).files:
        assert file.url
        [copy] = (shared / "models").rglob(file.name)
        (mirror / file.name).symlink_to(copy)
    monkeypatch.setenv("EDGEDEPLOY_MODELS", f"{mirror}:{shared / 'images'}")
    code, out, err = command("demo", demo)
    assert code == 0, err
    assert f"taking {entry.same_as}, of the same weights" in err
    assert DEMO_LINES[demo] in out
