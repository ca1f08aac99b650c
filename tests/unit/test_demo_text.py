"""The demo `ocr`: three networks in a row, which are built for the sizes that images need."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgedeploy.demo import program
from edgedeploy.demo.program import Program, Result
from edgedeploy.errors import ConfigurationError
from edgedeploy.frontends.format import ImportOptions
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.runtime.opening import Opened, Place
from edgedeploy.runtime.timing import Timing
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.draw import draw
from edgedeploy.vision.source import Shot

# Two lines: the first one narrow, the second too wide for the narrowest network and upside down.
IMAGE = np.full((736, 736, 3), 200, np.uint8)
IMAGE[100:140, 100:250] = 60
IMAGE[300:320, 60:600] = 20
# What RapidOCR makes of their crops' sides, 190 x 64 and 570 x 50: int(48 * 570 / 50).
WIDTH = 547
CHARACTERS = "a\nb"


class Network:
    """Regions are what is darker than 100; lines are upside down if they are darker than 40; they read `ab`."""

    def __init__(self, name: str, shape: list[int]) -> None:
        self.name, self.threads, self.seen = name, 1, 0
        height, width = shape[2:]
        outputs = {"det": [1, 1, height, width], "cls": [1, 2], "rec": [1, width // 8, 4]}
        self.inputs = [TensorSpec(name="x", shape=shape, dtype="float32")]
        self.lengths: list[int] = []
        self.outputs = [TensorSpec(name="out", shape=outputs[name[-3:]], dtype="float32")]

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        values = tensors["x"][0, 0]
        assert values.shape == tuple(self.inputs[0].shape[2:])
        self.seen += 1
        if "x.length" in tensors:
            self.lengths += tensors["x.length"].tolist()
            assert not values[:, self.lengths[-1] :].any()
        output = np.zeros(self.outputs[0].shape, np.float32)
        if self.name.endswith("det"):
            output[0, 0] = values < (100 - 127.5) / 127.5
        elif self.name.endswith("cls"):
            output[0, int(values.min() < (40 - 127.5) / 127.5)] = 1
        else:
            output[0, [0, 1], [1, 2]] = 0.75
            output[0, 2:, 0] = 1
        return {"out": output}

    def measure(self, tensors: Tensors, *, repeat: int = 1, number: int = 1, warmup: int = 0) -> Timing:
        return Timing((2.0,) * repeat)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Network]:
    """Stands in for building and opening; the networks in the order in which they were asked for."""
    asked: list[Network] = []

    def prepare(
        model: str, board: Any, *, input_shapes: dict[str, list[int]], options: ImportOptions, **_: Any
    ) -> SimpleNamespace:
        network = Network(model, input_shapes.get("x", [1, 3, 48, 192]))
        if options.lengths:
            assert options.lengths == {"x": 3}
            network.inputs.append(TensorSpec(name="x.length", shape=[1], dtype="int64"))
        asked.append(network)
        about = {"heads": [], "weights": "file", "metadata": {"character": CHARACTERS}}
        manifest = SimpleNamespace(inputs=network.inputs, results=network.outputs, **about)
        return SimpleNamespace(source=SimpleNamespace(file=Path(model)), package_path=network, manifest=manifest)

    monkeypatch.setattr(program, "prepare", prepare)
    monkeypatch.setattr(program, "find_source", lambda model, **_: SimpleNamespace(file=Path(model)))
    monkeypatch.setattr(
        program, "opening", lambda *_: nullcontext(lambda packages: [Opened(each) for each in packages])
    )
    return asked


@pytest.fixture
def shown(built: list[Network]) -> Result:
    with Program.of("ocr").opened(Place(resolve("local"))) as session:
        return session.infer(Shot(0, Path("page.png"), IMAGE))


def test_each_network_is_built_once_for_each_size_that_is_needed(built: list[Network], shown: Result) -> None:
    sizes = [(network.name[-3:], network.inputs[0].shape[2:], network.seen) for network in built]
    assert sizes == [("cls", [48, 192], 2), ("det", [736, 736], 1), ("rec", [48, 640], 2)]
    with Program.of("ocr").opened(Place(resolve("local"))) as session:
        for index in range(3):
            session.infer(Shot(index, Path("page.png"), IMAGE))
    assert len(built) == 6


def test_lines_of_a_batch_are_as_wide_as_the_widest_of_them(built: list[Network], shown: Result) -> None:
    assert built[-1].lengths == [WIDTH, WIDTH]
    assert not built[0].lengths
    assert not built[1].lengths


def test_a_line_has_the_place_of_its_region_whichever_way_up_it_is(shown: Result) -> None:
    regions = shown.outcome.detections
    assert len(regions) == 2
    for region, direction in zip(regions, shown.outcome.then, strict=True):
        [line] = direction.then[0].detections
        assert (line.label, line.score) == ("ab", 0.75)
        assert (line.box, line.corners) == (region.box, region.corners)
    assert [each.detections[0].label for each in shown.outcome.then] == ["0", "180"]


def test_only_text_is_printed_and_drawn(shown: Result) -> None:
    lines = [line for line in shown.log() if line.startswith("0.750, [")]
    assert len(lines) == 2
    assert all(line.endswith("], ab") for line in lines)
    assert shown.log()[-2:] == [
        "Repeat 2 times, ppocr-v2-cls, avg time 2.00 ms, max_time 2.00 ms, min_time 2.00 ms",
        "Repeat 2 times, ppocr-v4-rec, avg time 2.00 ms, max_time 2.00 ms, min_time 2.00 ms",
    ]
    assert shown.frame_log("frame 0")[1:] == lines
    assert [each.label for each in shown.outcome.all_detections] == ["ab", "ab"]
    assert np.array_equal(shown.drawn(), draw(IMAGE, shown.outcome.all_detections))


def test_json_has_what_each_network_found_in_what_the_one_before_it_found(shown: Result) -> None:
    results = shown.as_dict()["results"]
    assert [each["label"] for each in results] == ["text", "text"]
    assert [each["then"][0]["label"] for each in results] == ["0", "180"]
    assert [each["then"][0]["then"][0]["label"] for each in results] == ["ab", "ab"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("    log: text\n", ""), "log is needed where no other network follows; use text"),
        (("    log: text\n", "    log: yolo\n"), "log 'yolo' cannot print a text-line; use text"),
        (("kind: turn", "kind: quadrilateral"), "crop"),
        (("kind: quadrilateral", "kind: hexagon"), "hexagon"),
        (("kind: scaled", "kind: guessed"), "guessed"),
        (("      class_id: 1\n      threshold: 0.9\n", ""), "class_id"),
    ],
)
def test_what_makes_no_sense_is_refused(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    from edgedeploy.demo.spec import DEMOS

    text = DEMOS.find("ocr").read_text()
    assert change[0] in text
    own = tmp_path / "own.yaml"
    own.write_text(text.replace(*change))
    with pytest.raises(ConfigurationError, match=message):
        DEMOS.load(str(own))
