"""Demos run with weights from public files; where the zoo has none, with random ones."""

import json
import re
from pathlib import Path

import pytest
from conftest import Command
from support.commands import output_of

from edgedeploy.demo.spec import DEMOS, all_demos
from edgedeploy.zoo.entry import MODELS, load_labels

WITHOUT = sorted(set(all_demos("random")) - set(all_demos()))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_they_are_those_of_the_architectures_and_of_darknets_configurations() -> None:
    assert WITHOUT == ["efficientdet", "nanodet", "yolov2-tiny", "yolov3", "yolov3-tiny", "yolox"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("shared_zoo")
@pytest.mark.parametrize("name", WITHOUT)
def test_it_shows_random_results_and_says_so(command: Command, name: str) -> None:
    demo = ("demo", name, "--weights", "random")
    shown = json.loads(output_of(command, *demo, "--json"))
    assert shown["weights"] == "random"
    labels = load_labels(MODELS.load(DEMOS.load(name).model).labels or "")
    for result in shown["results"]:
        assert result["label"] == labels[result["class_id"]]
        x1, y1, x2, y2 = result["box"]
        assert 0 <= x1 < x2
        assert 0 <= y1 < y2
    assert shown["results"]
    *lines, last = output_of(command, *demo).splitlines()
    assert last == "weights : random, seeded: what it sees means nothing"
    number = r" *\d+(\.\d+)?"
    line = rf"[ \d]\d:{number}%, \[{number}, {number}, {number}, {number}\], .+"
    assert len([each for each in lines if re.fullmatch(line, each)]) == len(shown["results"])


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
