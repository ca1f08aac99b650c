"""Sounds: WAV files compared with what SciPy reads, and detections made of scores."""

import struct
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support.sounds import write_wav

from edgedeploy.audio import sources
from edgedeploy.audio.program import Detector
from edgedeploy.audio.sources import read_wav
from edgedeploy.audio.spec import Detecting
from edgedeploy.errors import InputError

RANDOM = np.random.default_rng(0)


def read(path: Path, rate: int = 16_000) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int16), *read_wav(path, rate)])


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_pcm_of_all_widths_is_what_scipy_reads(tmp_path: Path, width: int, channels: int) -> None:
    wavfile = pytest.importorskip("scipy.io.wavfile")
    content = RANDOM.integers(0, 256, 40_000 * width * channels, np.uint8).tobytes()
    with wave.open(str(tmp_path / "x.wav"), "wb") as writer:
        writer.setparams((channels, width, 16_000, 0, "NONE", ""))
        writer.writeframes(content)
    _, theirs = wavfile.read(tmp_path / "x.wav")  # 24 bits come as the upper ones of 32
    unit = {1: 1 / 256, 2: 1, 3: 65536, 4: 65536}[width]
    theirs = (theirs.astype(np.float64).reshape(40_000, channels) - (128 if width == 1 else 0)) / unit
    found = read(tmp_path / "x.wav")
    assert (found.dtype, found.shape) == (np.int16, (40_000,))
    assert np.abs(found - theirs.mean(axis=1).clip(-32768, 32767)).max() <= 0.5


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000])
def test_another_rate_is_converted_as_one_piece(tmp_path: Path, rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    signal = pytest.importorskip("scipy.signal")
    monkeypatch.setattr(sources, "_SAMPLES", 4_096)
    samples = RANDOM.integers(-20_000, 20_000, 50_001).astype(np.int16)
    found = read(write_wav(tmp_path / "x.wav", samples, rate))
    whole = signal.resample_poly(samples.astype(np.float64), 16_000, rate)
    assert found.shape == whole.shape
    assert np.abs(found - whole.clip(-32768, 32767)).max() <= 0.5 + 1e-6


def test_without_scipy_another_rate_is_refused_with_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "find_spec", lambda name: None)
    path = write_wav(tmp_path / "x.wav", np.zeros(100), 44_100)
    with pytest.raises(InputError, match="44,100 samples per second, the network takes 16,000") as caught:
        read_wav(path, 16_000)
    assert caught.value.hints[0] == "pip install 'edgedeploy[audio]'"


def header(*, form: int = 1, channels: int = 1, rate: int = 16_000, bits: int = 16, data: int = 8) -> bytes:
    block = max(0, min(65535, channels * bits // 8))
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, form, channels, rate, min(rate * block, 2**32 - 1), block, bits)
    return struct.pack("<4sI4s", b"RIFF", min(36 + data, 2**32 - 1), b"WAVE") + fmt + struct.pack("<4sI", b"data", data)


NO_WAV = {
    "empty": b"",
    "only a mark": b"RIFF",
    "another format": b"\x89PNG and so on, which is no sound at all",
    "cut in the header": header()[:20],
    "no data": header()[:36],
    "floating point": header(form=3, bits=32),
    "MP3": header(form=85),
    "no channel": header(channels=0),
    "65,535 channels": header(channels=65_535),
    "no rate": header(rate=0),
    "an absurd rate": header(rate=2**32 - 1),
    "no bits": header(bits=0),
    "64 bits": header(bits=64),
}


@pytest.mark.parametrize("content", NO_WAV.values(), ids=NO_WAV)
def test_what_is_no_wav_file_of_pcm_is_refused_before_it_is_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.wav"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot read .*x\.wav as a WAV file") as caught:
        read_wav(path, 16_000)
    assert "pcm_s16le" in caught.value.hints[0]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.wav as a WAV file: No such file"):
        read_wav(tmp_path / "none.wav", 16_000)


@pytest.mark.parametrize("stated", [0xFFFFFFFF, 0x7FFFFFFF, 100])
def test_a_file_that_is_shorter_than_it_says_is_read_to_its_end(tmp_path: Path, stated: int) -> None:
    path = tmp_path / "x.wav"
    path.write_bytes(header(data=stated) + struct.pack("<4h", 1, 2, 3, 4) + b"\5")
    assert read(path).tolist() == [1, 2, 3, 4]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, 43), st.integers(0, 255)), min_size=1, max_size=4),
    length=st.integers(0, 60),
)
def test_any_header_gives_samples_or_a_message(tmp_path: Path, changes: list[tuple[int, int]], length: int) -> None:
    content = bytearray(header(data=16) + bytes(range(16)))
    for place, value in changes:
        content[place] = value
    path = tmp_path / "x.wav"
    path.write_bytes(content[:length] if length < 44 else content)
    try:
        found = read(path)
    except InputError:
        return
    assert found.dtype == np.int16
    # What is converted from 1,000 samples per second has sixteen times as many.
    assert len(found) <= 16 * 16


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python's wave module knows WAVE_FORMAT_EXTENSIBLE from 3.12 on")
def test_the_extensible_header_of_24_bits_is_read(tmp_path: Path) -> None:
    guid = bytes.fromhex("0100000000001000800000aa00389b71")
    fmt = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 16_000, 48_000, 3, 24, 22, 24, 4) + guid
    content = b"WAVEfmt " + struct.pack("<I", len(fmt)) + fmt + b"data" + struct.pack("<I", 6) + b"\0\1\0\0\0\xff"
    (tmp_path / "x.wav").write_bytes(b"RIFF" + struct.pack("<I", len(content)) + content)
    assert read(tmp_path / "x.wav").tolist() == [1, -256]


# From scores to detections, with frames of 100 samples of which there are 1,000 in a second.

FRAME, RATE = 100, 1_000


def detected(scores: list[float], *, missing: int = 0, **how: float) -> list[tuple[str, int, float]]:
    """What a sound of these scores tells; its last frame lacks `missing` samples."""
    detector = Detector(Detecting(label="x", **how), RATE, FRAME)
    events = [event for index, score in enumerate(scores) for event in detector.add(index * FRAME, score)]
    events += detector.finish(len(scores) * FRAME - missing)
    return [(event.kind, event.sample, event.score) for event in events]


@pytest.mark.parametrize(
    ("scores", "how", "events"),
    [
        ([0.1, 0.4, 0.1], {}, []),
        ([0.1, 0.5, 0.9, 0.1], {}, [("begin", 100, 0.5), ("end", 300, 0.9)]),
        ([0.9, 0.4, 0.9, 0.1], {}, [("begin", 0, 0.9), ("end", 100, 0.9), ("begin", 200, 0.9), ("end", 300, 0.9)]),
        ([0.1, 0.9, 0.4, 0.9, 0.1], {"release": 0.3}, [("begin", 100, 0.9), ("end", 400, 0.9)]),
        ([0.1, 0.9, 0.1, 0.9, 0.1, 0.1, 0.1], {"gap_s": 0.2}, [("begin", 100, 0.9), ("end", 400, 0.9)]),
        ([0.9, 0.9, 0.1, 0.1], {"shortest_s": 0.2}, []),
        ([0.9, 0.9, 0.9, 0.1], {"shortest_s": 0.2}, [("begin", 0, 0.9), ("end", 300, 0.9)]),
        ([0.1, 0.9, 0.1], {"gap_s": 0.1, "margin_s": 0.03}, [("begin", 70, 0.9), ("end", 230, 0.9)]),
        ([0.9, 0.9], {"gap_s": 0.1, "margin_s": 0.03}, [("begin", 0, 0.9), ("end", 200, 0.9)]),
    ],
    ids=[
        "nothing reaches the threshold", "it begins and ends", "it ends with the first lower score",
        "it goes on above its release", "a gap that is too short ends nothing", "what is too short is nothing",
        "what is long enough begins where it began", "a margin lies around it", "a margin ends with the sound",
    ],
)  # fmt: skip
def test_scores_tell_where_something_begins_and_ends(
    scores: list[float], how: dict[str, float], events: list[tuple[str, int, float]]
) -> None:
    # The end of a gap is known a frame later: what follows it here is silence.
    assert detected([*scores, *([0.0] if "gap_s" in how and scores[-1] < 0.5 else [])], **how) == events


def test_a_sound_that_ends_within_a_frame_ends_a_detection_there() -> None:
    assert detected([0.1, 0.9], missing=30) == [("begin", 100, 0.9), ("end", 170, 0.9)]


def test_a_detection_is_told_with_the_frame_that_makes_it_sure() -> None:
    detector = Detector(Detecting(label="x", shortest_s=0.15), RATE, FRAME)
    assert [len(detector.add(index * FRAME, 0.9)) for index in range(4)] == [0, 1, 0, 0]


def test_another_threshold_moves_the_release_with_it() -> None:
    how = Detecting(label="x", threshold=0.5, release=0.35).with_threshold(0.8)
    assert (how.threshold, how.release) == (0.8, pytest.approx(0.65))
    assert Detecting(label="x", threshold=0.5, release=0.35).with_threshold(0.1).release == 0


@pytest.mark.parametrize("how", [{"threshold": 0.3, "release": 0.4}, {"gap_s": 0.1, "margin_s": 0.06}, {"gap_s": -1}])
def test_parameters_that_contradict_each_other_are_refused(how: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Detecting(label="x", **how)
