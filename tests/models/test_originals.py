"""Demos against the original packages: faces, hands and people on images and on films of them, and sounds.

No original is a dependency of edgedeploy, and each is run by a Python of its own, if this one does not have it: that of
MediaPipe 0.10.14, which needs an older numpy, is named by the variable MEDIAPIPE_PYTHON, and that of openwakeword 0.4.0
and silero-vad with torch by EDGEDEPLOY_ORIGINALS.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from conftest import Command
from support import originals
from support.commands import output_of, printed, put, python_with
from support.recordings import moving, write_wav

from edgedeploy.audio.sources import read_wav
from edgedeploy.audio.spec import SOUND_DEMOS
from edgedeploy.demo.program import DemoSession, Program
from edgedeploy.errors import DownloadError
from edgedeploy.runtime.opening import Place
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.image import read_image
from edgedeploy.vision.results import Detection
from edgedeploy.vision.source import Shot
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
