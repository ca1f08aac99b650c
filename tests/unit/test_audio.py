"""Sounds: WAV files as SciPy reads them, detections made of scores, and demos with networks on onnxruntime."""

import json
import os
import struct
import sys
import wave
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import Command, run_command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support.agreement import OnnxruntimeRunner
from support.commands import executable, output_of, put, refusal
from support.recordings import write_demo, write_networks, write_wav

from edgedeploy.audio import program, sources
from edgedeploy.audio.program import Cascade, Detector
from edgedeploy.audio.sources import read_wav
from edgedeploy.audio.spec import SOUND_DEMOS, Detecting, SoundDemo
from edgedeploy.errors import ConfigurationError, InputError
from edgedeploy.runtime.opening import Opened
from edgedeploy.zoo.entry import MODELS

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
    path = put(tmp_path / "x.wav", content)
    with pytest.raises(InputError, match=r"cannot read .*x\.wav as a WAV file") as caught:
        read_wav(path, 16_000)
    assert "pcm_s16le" in caught.value.hints[0]


@pytest.mark.parametrize("stated", [0xFFFFFFFF, 0x7FFFFFFF, 100])
def test_a_file_that_is_shorter_than_it_says_is_read_to_its_end(tmp_path: Path, stated: int) -> None:
    path = put(tmp_path / "x.wav", header(data=stated) + struct.pack("<4h", 1, 2, 3, 4) + b"\5")
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
    path = put(tmp_path / "x.wav", content[:length] if length < 44 else content)
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


# Demos, with small networks on onnxruntime in the place of compiled ones.

# Full scale is 1: a quarter of it, then silence.
QUARTER = 8192


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """The command line in a folder with the networks and the demo `loud`; packages are the networks' files."""
    write_networks(tmp_path)
    write_demo(tmp_path)

    def prepare(model: str, board: Any, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(package_path=tmp_path / model, manifest=SimpleNamespace(weights="file"))

    def opened(packages: list[Path]) -> list[Opened]:
        return [Opened(OnnxruntimeRunner(package)) for package in packages]

    monkeypatch.setattr(program, "prepare", prepare)
    monkeypatch.setattr(program, "opening", lambda *_: nullcontext(opened))
    monkeypatch.chdir(tmp_path)
    return run_command(monkeypatch, capsys)


def demo(**fields: Any) -> SoundDemo:
    """A demo whose first network makes rows of pairs of samples, and whose second adds up four of them."""
    stages = [
        {"model": "pairs.onnx", "window": 6} | fields.pop("first", {}),
        {"model": "sum.onnx", "window": 4} | fields.pop("second", {}),
    ]
    sound = {"name": "x.wav", "sha256": "0" * 64, "size": 1}
    content = {"description": "d", "sound": sound, "frame": 4, "stages": stages, "detect": {"label": "x"}}
    return SoundDemo.model_validate({**content, "full_scale": 32768, **fields})


def cascade(folder: Path, demo: SoundDemo) -> Cascade:
    write_networks(folder)
    return Cascade(demo, [OnnxruntimeRunner(folder / stage.model) for stage in demo.stages])


SAMPLES = np.arange(1, 13, dtype=np.int16)
PAIRS = [(1.5, -1), (3.5, -1), (5.5, -1), (7.5, -1), (9.5, -1), (11.5, -1)]


def test_each_network_is_shown_the_latest_rows_of_the_one_before(tmp_path: Path) -> None:
    # The first network's window of 6 samples begins 2 before the frame: rows overlap as its windows do.
    listening = cascade(tmp_path, demo())
    found = [listening.score(frame) for frame in SAMPLES.reshape(3, 4)]
    rows: list[tuple[float, float]] = [(0, 0)] * 4
    expected = []
    for new in ([(0, 0), *PAIRS[:2]], PAIRS[1:4], PAIRS[3:6]):
        rows = [*rows, *new][-4:]
        expected.append(np.sum(rows))
    assert found == expected


@pytest.mark.parametrize(
    ("fields", "score"),
    [
        # Two samples of the window are missing: one of three rows.
        ({"first": {"samples_per_row": 2}, "second": {"before": 10.0}}, 2 * (10 + 10) + np.sum(PAIRS[:2])),
        ({"first": {"scale": 2.0, "offset": 100.0}}, 2 * np.sum(PAIRS[:2]) + 6 * 100),
        (
            {"first": {"offset": 100.0, "samples_per_row": 2}, "second": {"before": "silence"}},
            np.sum(PAIRS[:2]) + 8 * 100,
        ),
    ],
    ids=["rows from before the beginning are left out", "values are scaled and moved", "a window begins with silence"],
)
def test_what_is_between_networks_can_be_changed(tmp_path: Path, fields: dict[str, Any], score: float) -> None:
    assert cascade(tmp_path, demo(**fields)).score(SAMPLES[:4]) == score


def test_the_first_scores_can_count_as_nothing(tmp_path: Path) -> None:
    listening = cascade(tmp_path, demo(warm_up=2))
    assert [listening.score(frame) > 0 for frame in SAMPLES.reshape(3, 4)] == [False, False, True]


@pytest.mark.parametrize(
    ("error", "fields", "said"),
    [
        (ValidationError, {"frame": 7}, "window is shorter than a frame"),
        (ValidationError, {"first": {"before": "silence"}}, "the others alone silence"),
        (ValidationError, {"second": {"samples_per_row": 2}}, "first network alone has samples_per_row"),
        (ValidationError, {"stages": []}, "at least 1"),
        (InputError, {"second": {"window": 3}}, "are not 3 rows"),
        (InputError, {"second": {"window": 8}}, "it takes rows of 1 values, pairs.onnx gives rows of 2"),
        (InputError, {"second": {"model": "echo.onnx"}}, "it needs one input besides its state, not sound, before"),
        (InputError, {"stages": [{"model": "pairs.onnx", "window": 6}]}, "its output 'rows' is 1x3x2, not one score"),
        (InputError, {"stages": [{"model": "echo.onnx", "window": 6, "states": {"before": "x"}}]}, "no output 'x'"),
    ],
)
def test_demos_that_cannot_be_and_networks_that_do_not_suit_them_are_refused(
    tmp_path: Path, error: type[Exception], fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(error, match=said):
        cascade(tmp_path, demo(**fields))


@pytest.mark.parametrize("name", SOUND_DEMOS.names())
def test_demos_name_networks_and_sounds_that_can_be_had(name: str) -> None:
    found = SOUND_DEMOS.load(name)
    assert all(MODELS.load(stage.model).files[0].has_download for stage in found.stages)
    assert found.sound.has_download or (SOUND_DEMOS.find(name).parent / found.sound.name).is_file()


def test_a_wav_file_gives_a_score_for_each_frame_and_what_is_detected(listen: Command, tmp_path: Path) -> None:
    # Half of full scale in the second frame, which fades by half from frame to frame; the last frame is not whole.
    wav = write_wav(tmp_path / "x.wav", np.array([0, 0, 0, 0, 0, 16_384, 0, 0, 0, 0, 0, 0, 0, 0]))
    code, out, err = listen("demo", "loud", "--wav", str(wav))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[1:5] == ["model : echo.onnx", f"sound : {wav}", "", "0.000 0.0000"]
    assert lines[5:7] == ["0.000 0.5000", "0.000 0.5000 noise begin"]
    assert lines[7:10] == ["0.001 0.2500", "0.001 0.5000 noise end", "0.001 0.1250"]
    assert lines[-1].startswith("1 x noise in 0.00 s of sound (4 frames), heard in ")


def test_json_has_an_object_for_each_score_and_event_and_a_summary(listen: Command, tmp_path: Path) -> None:
    wav = write_wav(tmp_path / "x.wav", np.array([QUARTER] * 8))
    out = output_of(listen, "demo", "loud", "--wav", wav, "--json", "--threshold", "0.25")
    *found, last = map(json.loads, out.splitlines())
    assert found == [
        {"time": 0.0, "score": 0.25},
        {"event": "begin", "label": "noise", "time": 0.0, "score": 0.25},
        {"time": 0.00025, "score": 0.25},
        {"event": "end", "label": "noise", "time": 0.0005, "score": 0.25},
    ]
    summary = last["summary"]
    assert [summary[key] for key in ("task", "models", "frames", "detections", "interrupted")] == [
        "loud", ["echo.onnx"], 2, 1, False,
    ]  # fmt: skip


def test_silence_around_a_file_is_heard_before_its_time(listen: Command, tmp_path: Path) -> None:
    write_demo(tmp_path, silence_s=0.001)
    wav = write_wav(tmp_path / "x.wav", np.array([QUARTER] * 4))
    _, out, _ = listen("demo", "loud", "--wav", str(wav), "--json")
    times = [json.loads(line).get("time") for line in out.splitlines()]
    assert times[:-1] == [-0.001, -0.00075, -0.0005, -0.00025, 0.0, 0.00025, 0.0005, 0.00075, 0.001]


def test_a_recorder_reads_the_microphone(listen: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = put(tmp_path / "raw", np.array([QUARTER] * 400, "<i2").tobytes())
    recorder(tmp_path, monkeypatch, "arecord", f'echo "$@" > {tmp_path}/asked; cat {raw}; exec sleep 60')
    out = output_of(listen, "demo", "loud", "--microphone", "--frames", "20", "--json")
    *found, last = map(json.loads, out.splitlines())
    assert [each["score"] for each in found] == [0.25] * 20
    assert last["summary"]["sound"] == "microphone"
    assert (tmp_path / "asked").read_text() == "-q -t raw -f S16_LE -c 1 -r 16000\n"


def test_a_recorder_that_fails_says_why(listen: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder(tmp_path, monkeypatch, "parec", "echo Connection refused >&2; exit 1")
    code, out, err = listen("demo", "loud", "--microphone")
    assert (code, "0 x noise" in out) == (InputError.exit_code, False)
    assert "parec records nothing more: Connection refused" in " ".join(err.split())


def test_without_a_recorder_a_hint_names_one(listen: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    err = refusal(listen, InputError.exit_code, "demo", "loud", "--microphone")
    assert "neither arecord nor parec is installed" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["loud", "--image", "x.png"], "--image is for demos on images"),
        (["loud", "--save", "x.png"], "--save is for demos on images"),
        (["loud", "--wav", "x.wav", "--microphone"], "--wav does not go with --microphone"),
        (["digits", "--wav", "x.wav"], "are for demos on sounds"),
        (["digits", "--threshold", "0.3"], "are for demos on sounds"),
        (["loud", "--wav", "none.wav"], "cannot read none.wav as a WAV file: No such file"),
    ],
)
def test_options_of_the_other_kind_of_demo_are_refused(listen: Command, arguments: list[str], said: str) -> None:
    assert said in refusal(listen, InputError.exit_code, "demo", *arguments)


def test_the_list_has_demos_on_sounds(listen: Command) -> None:
    _, out, _ = listen("demo", "--json")
    assert {"loud", "wake-word", "voice-activity"} <= {each["name"] for each in json.loads(out)}


def test_a_demo_file_with_a_fault_is_named(listen: Command, tmp_path: Path) -> None:
    write_demo(tmp_path, frame=0)
    assert "frame" in refusal(listen, ConfigurationError.exit_code, "demo", "loud")


def recorder(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    executable(folder / "bin" / name, f"PATH={os.environ['PATH']}\n{script}")
    monkeypatch.setenv("PATH", str(folder / "bin"))
