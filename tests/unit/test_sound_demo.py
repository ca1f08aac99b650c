"""Demos on sounds, with small networks on onnxruntime in the place of compiled ones."""

import json
import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import Command, run_command
from support.commands import executable, output_of, refusal
from support.onnxruntime_runner import OnnxruntimeRunner
from support.sounds import write_demo, write_networks, write_wav

from edgedeploy.audio import program
from edgedeploy.audio.program import Cascade
from edgedeploy.audio.spec import SOUND_DEMOS, SoundDemo
from edgedeploy.errors import ConfigurationError, InputError
from edgedeploy.runtime.opening import Opened
from edgedeploy.zoo.entry import MODELS

# Full scale is 1: a quarter of it, then silence.
QUARTER = 8192


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """The command line in a folder with the networks and the demo `loud`; packages are the networks' files."""
    write_networks(tmp_path)
    write_demo(tmp_path)

    def prepare(model: str, board: Any, **options: Any) -> SimpleNamespace:
        return SimpleNamespace(package_path=tmp_path / model, manifest=SimpleNamespace(weights="file"))

    def opened(packages: list[Path], *rest: Any) -> Any:
        return nullcontext([Opened(OnnxruntimeRunner(package)) for package in packages])

    monkeypatch.setattr(program, "prepare", prepare)
    monkeypatch.setattr(program, "opened_together", opened)
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
    ("fields", "said"),
    [
        ({"second": {"window": 3}}, "are not 3 rows"),
        ({"second": {"window": 8}}, "it takes rows of 1 values, pairs.onnx gives rows of 2"),
        ({"second": {"model": "echo.onnx", "window": 3}}, "it needs one input besides its state, not sound, before"),
        ({"stages": [{"model": "pairs.onnx", "window": 6}]}, "its output 'rows' is 1x3x2, not one score"),
        ({"stages": [{"model": "echo.onnx", "window": 6, "states": {"before": "beyond"}}]}, "no output 'beyond'"),
    ],
)
def test_networks_that_do_not_suit_a_demo_are_refused(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        cascade(tmp_path, demo(**fields))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"frame": 7}, "window is shorter than a frame"),
        ({"first": {"before": "silence"}}, "the others alone silence"),
        ({"second": {"samples_per_row": 2}}, "first network alone has samples_per_row"),
        ({"stages": []}, "at least 1"),
    ],
)
def test_a_demo_that_cannot_be_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        demo(**fields)


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
    raw = tmp_path / "raw"
    raw.write_bytes(np.array([QUARTER] * 400, "<i2").tobytes())
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
        (["loud", "--wav", "none.wav"], "cannot read none.wav as a WAV file"),
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
