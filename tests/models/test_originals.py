"""Demos against the original packages: faces, hands and people on images and on films of them, sounds, and text.

No original is a dependency of edgedeploy, and each is run by a Python of its own, if this one does not have it: that of
MediaPipe 0.10.14, which needs an older numpy, is named by the variable MEDIAPIPE_PYTHON, and that of openwakeword 0.4.0
and silero-vad with torch by EDGEDEPLOY_ORIGINALS.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from conftest import ROOT, SHARED, Command
from support import originals
from support.agreement import OnnxruntimeRunner
from support.commands import output_of, printed, put, python_with
from support.recordings import moving, write_wav

from edgedeploy.audio.sources import read_wav
from edgedeploy.audio.spec import SOUND_DEMOS
from edgedeploy.demo.pipeline import Network, SizedNetwork, infer_with
from edgedeploy.demo.program import DemoSession, Program
from edgedeploy.errors import DownloadError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.runtime.opening import Place
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.decoders.text import TextRegions
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.image import read_image
from edgedeploy.vision.results import Detection
from edgedeploy.vision.source import Shot
from edgedeploy.zoo.source import find_source
from edgedeploy.zoo.store import fetch

pytestmark = pytest.mark.slow

Points = Callable[[str, Sequence[Path], bool], list[list[dict[str, Any]]]]
Open = Callable[[str], DemoSession]

# What each demo sees in each image of the development material, by MediaPipe's own count.
SEEN = {
    ("face-mesh", "grace_hopper.jpg"): 1,
    ("face-mesh", "face5.jpg"): 4,
    ("face-mesh-attention", "grace_hopper.jpg"): 1,
    ("face-mesh-attention", "face5.jpg"): 3,
    ("hands", "face5.jpg"): 4,
    ("hands", "mtcnn_face4.jpg"): 3,
    ("pose", "grace_hopper.jpg"): 1,
    ("pose", "person.jpg"): 1,
    ("pose", "ssd_horse.jpg"): 1,
    ("hands", "dog.jpg"): 0,
}


@pytest.fixture(scope="module")
def points() -> Points:
    python = python_with("MEDIAPIPE_PYTHON", "mediapipe")

    def run(demo: str, files: Sequence[Path], film: bool) -> list[list[dict[str, Any]]]:
        command = [python, originals.__file__, "mediapipe", demo, str(int(film)), *map(str, files)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def opened(shared: Path) -> Iterator[Open]:
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        folders = [os.environ.get("EDGEDEPLOY_MODELS", ""), str(shared / "models"), str(shared / "images")]
        patch.setenv("EDGEDEPLOY_MODELS", ":".join(filter(None, folders)))

        @cache
        def show(name: str) -> DemoSession:
            try:
                return stack.enter_context(Program.of(name).opened(Place(resolve("local")), threads=1))
            except DownloadError as error:
                pytest.skip(f"no package index is in reach: {error}")

        yield show


def assert_same(found: Sequence[Detection], wanted: Sequence[dict[str, Any]]) -> None:
    """Each of MediaPipe's results is ours, within a pixel."""
    for each in wanted:
        expected = np.array(each["points"])
        ours = min(found, key=lambda result: float(np.abs(np.array(result.points) - expected[:, :2]).max()))
        assert len(ours.points) == len(expected)
        assert np.abs(np.array(ours.points) - expected[:, :2]).max() < 1
        # Depths are of the size of the whole: people's reach beyond the image.
        assert np.abs(np.array(ours.depths) - expected[:, 2]).max() < max(1, 0.005 * np.ptp(expected[:, :2]))
        if each["label"]:
            assert ours.label == each["label"]
        if ours.point_scores:
            np.testing.assert_allclose(ours.point_scores, each["visibility"], atol=0.005)


@pytest.mark.parametrize(("demo", "image"), SEEN)
def test_points_are_those_of_mediapipe(points: Points, opened: Open, shared: Path, demo: str, image: str) -> None:
    file = shared / "images" / image
    [wanted] = points(demo, [file], False)
    assert len(wanted) == SEEN[demo, image]
    outcome = opened(demo).infer(Shot(0, file, read_image(file)), repeat=0).outcome
    found = [detection for then in outcome.then for detection in then.detections]
    # MediaPipe looks for one person only.
    assert len(found) == len(wanted) or (demo == "pose" and len(found) > 1)
    assert_same(found, wanted)


@pytest.mark.parametrize(("demo", "image", "least"), [("face-mesh", "grace_hopper.jpg", 1), ("hands", "face5.jpg", 2)])
def test_a_film_is_followed_as_mediapipe_does(
    points: Points, opened: Open, shared: Path, tmp_path: Path, demo: str, image: str, least: int
) -> None:
    whole = read_image(shared / "images" / image)
    files = []
    for index, crop in enumerate(moving(whole, 6, (whole.shape[0], whole.shape[1] - 20), step=4)):
        files.append(tmp_path / f"{index}.png")
        cv2.imwrite(str(files[-1]), crop)
    session = opened(demo)
    tracker = session.tracker()
    for index, (file, wanted) in enumerate(zip(files, points(demo, files, True), strict=True)):
        outcome = session.infer(Shot(index, file, read_image(file)), repeat=0, tracker=tracker).outcome
        found = [detection for then in outcome.then for detection in then.detections]
        assert len(found) == len(wanted) >= least
        assert_same(found, wanted)
        assert all(each.tracked for each in outcome.detections) == (index > 0)


# The demos on sounds, compared with the original packages on the same files.


def original(package: str, *arguments: str) -> dict[str, Any]:
    return json.loads(printed(python_with("EDGEDEPLOY_ORIGINALS", package), originals.__file__, *arguments))


def speech() -> Path:
    """The sound of the demo voice-activity: half a minute of a conversation."""
    try:
        return fetch(SOUND_DEMOS.load("voice-activity").sound, folder=SOUND_DEMOS.find("voice-activity").parent)
    except DownloadError as error:
        pytest.skip(str(error))


def spoken_wake_word() -> Path:
    return SOUND_DEMOS.find("wake-word").parent / "wake-word.wav"


def heard(command: Command, *arguments: str) -> tuple[np.ndarray, list[tuple[str, int]]]:
    """The scores and the events of a demo; events in samples."""
    out = output_of(command, "demo", *arguments, "--board", "local", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    scores = [each["score"] for each in found if set(each) == {"time", "score"}]
    return np.array(scores), [(each["event"], round(each["time"] * 16_000)) for each in found if "event" in each]


@pytest.mark.parametrize("network", ["alexa", "hey_mycroft", "hey_jarvis"])
@pytest.mark.parametrize("sound", [spoken_wake_word, speech])
def test_wake_words_have_the_scores_of_openwakeword(command: Command, network: str, sound: Any) -> None:
    theirs = np.array(original("openwakeword", "wake-word", str(sound()), network)["scores"])
    model = f"openwakeword-{network.replace('_', '-')}"
    ours, events = heard(command, "wake-word", "--model", model, "--wav", str(sound()))
    # openWakeWord leaves out the last frame, the end of the silence after the file.
    assert len(ours) == len(theirs) + 1
    np.testing.assert_allclose(ours[: len(theirs)], theirs, atol=1e-3)
    spoken = network == "alexa" and sound is spoken_wake_word
    assert (theirs.max() > 0.9, [kind for kind, _ in events]) == (spoken, ["begin", "end"] if spoken else [])


def test_a_sound_that_begins_at_once_has_the_scores_of_openwakeword(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The windows then hold what stands before the beginning: no silence is heard first.
    samples = np.concatenate(list(read_wav(spoken_wake_word(), 16_000)))[20_000:40_000]
    sound = write_wav(tmp_path / "begins.wav", samples)
    theirs = np.array(original("openwakeword", "wake-word-at-once", str(sound), "alexa")["scores"])
    text = SOUND_DEMOS.find("wake-word").read_text().replace("silence_s: 1", "silence_s: 0")
    put(tmp_path / "demos" / "audio" / "at-once.yaml", text)
    monkeypatch.chdir(tmp_path)
    ours, _ = heard(command, "at-once", "--wav", str(sound))
    np.testing.assert_allclose(ours[: len(theirs)], theirs, atol=1e-3)
    assert theirs.max() > 0.9


@pytest.mark.parametrize("sound", [spoken_wake_word, speech])
def test_voice_activity_has_the_probabilities_and_the_speech_of_silero_vad(command: Command, sound: Any) -> None:
    theirs = original("silero_vad", "voice-activity", str(sound()))
    ours, events = heard(command, "voice-activity", "--wav", str(sound()))
    np.testing.assert_allclose(ours, theirs["scores"], atol=1e-3)
    assert events == [
        (kind, each[name]) for each in theirs["speech"] for kind, name in (("begin", "start"), ("end", "end"))
    ]
    assert events


SIGN = ROOT / "demos" / "ocr.png"


@pytest.fixture(scope="module")
def rapidocr() -> Any:
    """RapidOCR's module; the zoo finds the networks in its package."""
    module = pytest.importorskip("rapidocr_onnxruntime", reason="needs rapidocr-onnxruntime to compare with")
    with pytest.MonkeyPatch.context() as patch:
        folders = [str(Path(module.__file__).parent / "models"), os.environ.get("EDGEDEPLOY_MODELS", "")]
        patch.setenv("EDGEDEPLOY_MODELS", ":".join(filter(None, folders)))
        yield module


@pytest.fixture(scope="module")
def networks(rapidocr: Any) -> list[Network | SizedNetwork]:
    """The demo's networks on onnxruntime, in any size, and told how much of a line's width counts."""

    def network(part: Any) -> Network | SizedNetwork:
        source = find_source(part.model)
        stage = part.stage
        labels = part.labels or source.metadata().get("character", "").splitlines()
        content, name = source.file.read_bytes(), part.entry.input.name
        lengths = part.lengths(name) if part.sized_input(AS_THE_FILE_SAYS) else {}

        @cache
        def of_size(size: tuple[int, int]) -> Network:
            shapes = {name: part.entry.input.shape_of(size)}
            options = ImportOptions(lengths=lengths)
            built = (
                source.format.convert(source.files, shapes, options).model.SerializeToString() if lengths else content
            )
            runner = OnnxruntimeRunner(built, 1, shapes)
            return Network(stage, part.model, part.entry.input, labels, [], source.file, runner)

        if stage.fit.one_size:
            return of_size(part.entry.input.size)
        return SizedNetwork(stage, part.model, source.file, part.entry.input.size, of_size)

    return [network(part) for part in Program.of("ocr").parts]


@pytest.fixture(scope="module")
def engine(rapidocr: Any) -> Any:
    return rapidocr.RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)


def sign() -> np.ndarray:
    return cv2.imread(str(SIGN))


def turned(angle: float) -> np.ndarray:
    image = sign()
    height, width = image.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), angle, 0.8)
    return cv2.warpAffine(image, turn, (width, height), borderValue=(200, 210, 220))


def lines() -> np.ndarray:
    """Lines of several sizes and slopes, some upside down."""
    canvas = np.full((900, 1200, 3), 240, np.uint8)
    texts = ["Invoice 2024-117", "Total: 1,299.00", "thank you for your order", "ISO 9001", "Net weight 250 g"]
    for index, text in enumerate(texts):
        layer = np.zeros(canvas.shape[:2], np.uint8)
        cv2.putText(layer, text, (200, 450), cv2.FONT_HERSHEY_SIMPLEX, 1 + 0.3 * index, 255, 2, cv2.LINE_AA)
        turn = cv2.getRotationMatrix2D((500, 450), [0, 6, 180, -9, 3][index], 1)
        turn[1, 2] += 150 * index - 300
        layer = cv2.warpAffine(layer, turn, layer.shape[::-1])
        canvas[layer > 0] = (canvas[layer > 0] * (1 - layer[layer > 0][:, None] / 255)).astype(np.uint8)
    return canvas


def scanned(name: str) -> np.ndarray:
    folder = pytest.importorskip("skimage.data", reason="needs scikit-image for its images").__path__[0]
    return cv2.imread(str(Path(folder) / name))


def shared(name: str) -> np.ndarray:
    path = SHARED / "images" / name
    if not path.is_file():
        pytest.skip(f"needs {path}")
    return cv2.imread(str(path))


IMAGES = {
    "sign": sign,
    "sign on its side": lambda: np.ascontiguousarray(np.rot90(sign())),
    "sign upside down": lambda: np.ascontiguousarray(np.rot90(sign(), 2)),
    "sign turned by 15 degrees": lambda: turned(15),
    "sign turned by -33 degrees": lambda: turned(-33),
    "large sign": lambda: cv2.resize(sign(), (2600, 1950)),
    "small sign": lambda: cv2.resize(sign(), (213, 160)),
    "strip": lambda: sign()[0:60],
    "low strip": lambda: cv2.resize(sign()[10:74, 0:520], (210, 26)),
    "lines": lines,
    "no text": lambda: np.full((120, 160, 3), 128, np.uint8),
    "scikit-image's page": lambda: scanned("page.png"),
    "scikit-image's text": lambda: scanned("text.png"),
    "bike": lambda: shared("bike.jpg"),
    "face5": lambda: shared("face5.jpg"),
}


def corners(results: list[Detection]) -> list[list[list[float]]]:
    return [[list(corner) for corner in result.corners or ()] for result in results]


@pytest.mark.parametrize("name", IMAGES)
def test_text_scores_and_corners_are_rapidocrs(name: str, networks: list[Network | SizedNetwork], engine: Any) -> None:
    image = IMAGES[name]()
    wanted = engine(image)[0] or []
    found = infer_with(image, networks, repeat=0, page=Program.of("ocr").demo.page).all_detections
    assert [each.label for each in found] == [text for _, text, _ in wanted]
    assert np.array(corners(found)) == pytest.approx(np.array([place for place, *_ in wanted]), abs=1e-3)
    assert [each.score for each in found] == pytest.approx([score for *_, score in wanted], abs=1e-3)
    assert bool(found) == (name != "no text")


def test_regions_of_any_map_are_rapidocrs(rapidocr: Any, engine: Any) -> None:
    values = np.random.default_rng(0)
    post = engine.text_det.postprocess_op
    regions = TextRegions(kind="text-regions")
    count = 0
    for _ in range(60):
        network, image = (int(x) * 32 for x in values.integers(5, 30, 2)), (int(x) for x in values.integers(60, 900, 2))
        (rows, columns), size = tuple(network), tuple(image)
        probabilities = np.zeros((rows, columns), np.float32)
        for _ in range(12):
            centre, sides = values.uniform(0, (columns, rows)), values.uniform(2, (200, 40))
            angle = float(values.choice([0, 90, values.uniform(0, 180)]))
            corners_of = cv2.boxPoints((tuple(map(float, centre)), tuple(map(float, sides)), angle))
            cv2.fillPoly(probabilities, [corners_of.astype(np.int32)], float(values.uniform(0.25, 1)))
        probabilities += values.normal(0, 0.03, probabilities.shape).astype(np.float32)
        boxes, _ = post(probabilities[None, None], size)
        wanted = rapidocr.RapidOCR.sorted_boxes(engine.text_det.filter_tag_det_res(boxes, size))
        frame = Frame(size, (rows, columns), (columns / size[1], rows / size[0]))
        found = regions.decode({"map": probabilities[None, None]}, frame, [])
        assert corners(found) == [box.tolist() for box in wanted]
        count += len(found)
    assert count > 100


@pytest.mark.compiles
def test_compiled_networks_of_a_few_widths_read_the_same(rapidocr: Any) -> None:
    command = [sys.executable, "-m", "edgedeploy", "demo", "ocr", "--image", str(SIGN), "--json"]
    output = subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout
    found = [
        text for region in json.loads(output)["results"] for direction in region["then"] for text in direction["then"]
    ]
    wanted = rapidocr.RapidOCR()(sign())[0]
    assert [each["corners"] for each in found] == [np.array(place, float).tolist() for place, *_ in wanted]
    assert [each["label"] for each in found] == [text for _, text, _ in wanted]
    assert [each["score"] for each in found] == pytest.approx([score for *_, score in wanted], abs=1e-3)
