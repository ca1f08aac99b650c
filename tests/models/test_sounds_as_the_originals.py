"""The demos on sounds, compared with the original packages on the same files.

The packages (openwakeword 0.4.0, silero-vad with torch) are not dependencies of edgedeploy: the environment variable
EDGEDEPLOY_ORIGINALS names a Python that has them, in an environment of its own.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Command
from support import originals
from support.commands import output_of, printed, put, python_with
from support.recordings import write_wav

from edgedeploy.audio.sources import read_wav
from edgedeploy.audio.spec import SOUND_DEMOS
from edgedeploy.errors import DownloadError
from edgedeploy.zoo.store import fetch

pytestmark = [pytest.mark.slow, pytest.mark.compiles]


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
