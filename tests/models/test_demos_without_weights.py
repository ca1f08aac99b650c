"""The demos whose networks have no weights in the zoo, from end to end with random ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import Command

from edgedeploy.demo.spec import DEMOS, all_demos
from edgedeploy.zoo.entry import MODELS, load_labels

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

WITHOUT = sorted(set(all_demos("random")) - set(all_demos()))


@pytest.fixture
def demo(command: Command, shared: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("EDGEDEPLOY_MODELS", f"{shared / 'models'}:{shared / 'images'}")
    return lambda *arguments: command("demo", *arguments, "--weights", "random")


def test_they_are_those_of_the_architectures_and_of_darknets_configurations() -> None:
    assert WITHOUT == ["efficientdet", "nanodet", "yolov2-tiny", "yolov3", "yolov3-tiny", "yolox"]


@pytest.mark.parametrize("name", WITHOUT)
def test_it_shows_random_results_and_says_so(demo: Command, name: str) -> None:
    code, out, err = demo(name, "--json")
    assert code == 0, err
    shown = json.loads(out)
    assert shown["weights"] == "random"
    labels = load_labels(MODELS.load(DEMOS.load(name).model).labels or "")
    for result in shown["results"]:
        assert result["label"] == labels[result["class_id"]]
        x1, y1, x2, y2 = result["box"]
        assert 0 <= x1 < x2
        assert 0 <= y1 < y2
    assert shown["results"]
    code, out, _ = demo(name)
    assert code == 0
    *lines, last = out.splitlines()
    assert last == "weights : random, seeded: what it sees means nothing"
    number = r" *\d+(\.\d+)?"
    line = rf"[ \d]\d:{number}%, \[{number}, {number}, {number}, {number}\], .+"
    assert len([each for each in lines if re.fullmatch(line, each)]) == len(shown["results"])
