"""Whatever is wrong with what a demo is given, it ends with an error that says so, before anything is built."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
from conftest import Command
from support.networks import tiny

IMAGES = ["depth", "face-mesh", "hands", "ocr", "pose", "segmentation", "yolo"]
SOUNDS = ["voice-activity", "wake-word"]
DEMOS = [*IMAGES, *SOUNDS]


def given(demo: str) -> str:
    return "--wav" if demo in SOUNDS else "--image"


def refused(command: Command, *arguments: object) -> str:
    """What is said; it is a typed error, and nothing was built."""
    code, out, err = command("demo", *arguments, "--board", "local")
    assert code in range(4, 30), err
    assert out == ""
    assert "error: " in err
    assert "Traceback" not in err
    assert "building" not in err
    return err


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return tiny(tmp_path / "net.onnx")


def needed(demo: str, network: Path) -> list[object]:
    """These have no network of their own."""
    return ["--model", network] if demo in ("depth", "segmentation", "yolo") else []


@pytest.mark.parametrize("demo", DEMOS)
def test_a_file_that_is_not_there(demo: str, command: Command, network: Path) -> None:
    err = refused(command, demo, *needed(demo, network), given(demo), "absent.bin")
    assert "absent.bin" in err
    assert "there is no" in err or "No such file" in err


@pytest.mark.parametrize("demo", DEMOS)
def test_a_file_of_another_kind(demo: str, command: Command, network: Path) -> None:
    Path("text.png").write_text("no image and no sound\n" * 100)
    assert "text.png" in refused(command, demo, *needed(demo, network), given(demo), "text.png")


@pytest.mark.parametrize("demo", DEMOS)
@pytest.mark.parametrize("name", ["absent.onnx", "./absent", "no-such-network"])
def test_a_network_that_is_not_there(demo: str, name: str, command: Command) -> None:
    err = refused(command, demo, "--model", name)
    assert ("unknown model" if name == "no-such-network" else f"there is no file {name}") in err


@pytest.mark.parametrize("demo", IMAGES)
def test_a_network_that_is_cut_off(demo: str, command: Command, network: Path) -> None:
    content = network.read_bytes()
    Path("cut.onnx").write_bytes(content[: len(content) // 2])
    assert "cut.onnx" in refused(command, demo, "--model", "cut.onnx", "--image", image())


@pytest.mark.parametrize("demo", SOUNDS)
def test_a_sound_whose_header_is_cut_off(demo: str, command: Command) -> None:
    with wave.open("whole.wav", "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", "not compressed"))
        sound.writeframes(np.zeros(100, np.int16).tobytes())
    Path("cut.wav").write_bytes(Path("whole.wav").read_bytes()[:20])
    assert "cut.wav" in refused(command, demo, "--wav", "cut.wav")


def image() -> Path:
    import cv2

    cv2.imwrite("image.png", np.zeros((32, 32, 3), np.uint8))
    return Path("image.png")
