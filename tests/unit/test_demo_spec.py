from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgedeploy.demo.spec import DEMOS
from edgedeploy.errors import ConfigurationError
from edgedeploy.vision.decoders import detector
from edgedeploy.zoo.entry import MODELS

DIGITS = """\
description: a handwritten digit
model: digits
image: {name: digit.png, sha256: "%s", size: 1, bundled: true}
decoder: {kind: classification}
log: classification
""" % ("0" * 64)


def load(folder: Path, text: str) -> Any:
    path = folder / "own.yaml"
    path.write_text(text)
    return DEMOS.load(str(path))


@pytest.mark.parametrize("name", DEMOS.names())
def test_demos_name_networks_and_images_that_can_be_had(name: str) -> None:
    demo = DEMOS.load(name)
    assert MODELS.load(demo.model)
    beside = [DEMOS.find(name).parent, MODELS.find(demo.model).parent]
    assert demo.image.has_download or any((folder / demo.image.name).is_file() for folder in beside)


def test_a_demo_is_data(tmp_path: Path) -> None:
    load(tmp_path, DIGITS)


def test_a_renamed_field_is_still_read_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    detector._warn_of_old_name.cache_clear()
    decoder = "{kind: retinaface, threshold: 0.5, %s: 0.25}"
    for name in ("overlap", "overlap", "iou_threshold"):
        text = DIGITS.replace("{kind: classification}", decoder % name).replace(
            "log: classification", "log: retinaface"
        )
        assert load(tmp_path, text).decoder.iou_threshold == 0.25
    assert [record.message for record in caplog.records] == [
        "the field `overlap` is called `iou_threshold` now; the old name will go"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("kind: classification", "kind: guessing"), "decoder"),
        (("{kind: classification}", "{kind: classification, top: 0}"), r"decoder.*top"),
        (("{kind: classification}", "{kind: yolo, threshold: 0.5, heads: []}"), r"decoder.*heads"),
        (("log: classification", "log: yolo"), "log 'yolo' cannot print a classification; use classification"),
        (("model: digits", "modell: digits"), "modell"),
    ],
)
def test_faults_name_file_and_field(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(tmp_path, DIGITS.replace(*change))
    assert "own.yaml:" in caught.value.what
