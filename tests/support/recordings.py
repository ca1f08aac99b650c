"""Videos and sounds for tests, and networks that listen to sounds."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import onnx.parser
import yaml
from scipy.io import wavfile

FOURCC = {".avi": "MJPG", ".mp4": "mp4v", ".mkv": "mp4v"}


def write_film(path: Path, images: Sequence[np.ndarray], rate: float = 25) -> Path:
    height, width = images[0].shape[:2]
    kind = cv2.VideoWriter.fourcc(*FOURCC[path.suffix])
    writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, kind, rate, (width, height))
    assert writer.isOpened()
    for image in images:
        writer.write(image)
    writer.release()
    return path


def read_film(path: Path) -> list[np.ndarray]:
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    assert capture.isOpened()
    images = []
    while (read := capture.read())[0]:
        images.append(read[1])
    return images


def moving(image: np.ndarray, count: int, size: tuple[int, int], step: int = 1) -> list[np.ndarray]:
    """Crops of height x width, each `step` pixels to the right of the one before."""
    return [image[: size[0], index * step : index * step + size[1]] for index in range(count)]


# The loudest sample of a window, or what was heard before, which fades by half.
ECHO = """
<ir_version: 8, opset_import: ["" : 13]>
echo (float[1, 6] sound, float[1, 1] before) => (float[1, 1] score, float[1, 1] after) {
    half = Constant <value = float {0.5}> ()
    size = Abs (sound)
    loudest = ReduceMax <axes = [1], keepdims = 1> (size)
    faded = Mul (before, half)
    score = Max (loudest, faded)
    after = Identity (score)
}
"""

# Each two samples are a row of their mean and their difference.
PAIRS = """
<ir_version: 8, opset_import: ["" : 13]>
pairs (float[1, 6] sound) => (float[1, 3, 2] rows) {
    shape = Constant <value = int64[3] {1, 3, 2}> ()
    mixing = Constant <value = float[2, 2] {0.5, 1.0, 0.5, -1.0}> ()
    pairs = Reshape (sound, shape)
    rows = MatMul (pairs, mixing)
}
"""

# The sum of four rows.
SUM = """
<ir_version: 8, opset_import: ["" : 13]>
sum (float[1, 4, 2] rows) => (float[1, 1] score) {
    line = Flatten (rows)
    score = ReduceSum <keepdims = 1> (line)
}
"""


def write_networks(folder: Path) -> None:
    for text in (ECHO, PAIRS, SUM):
        model = onnx.parser.parse_model(text)
        onnx.save(model, folder / f"{model.graph.name}.onnx")


def write_wav(path: Path, samples: np.ndarray, rate: int = 16_000) -> Path:
    wavfile.write(path, rate, np.asarray(samples).astype("<i2"))
    return path


def write_demo(folder: Path, **fields: object) -> None:
    """A demo `loud` in `demos/audio`, of the network `echo`."""
    (folder / "demos" / "audio").mkdir(parents=True, exist_ok=True)
    content = {
        "description": "what is loud",
        "sound": {"name": "loud.wav", "sha256": "0" * 64, "size": 1},
        "frame": 4,
        "stages": [{"model": "echo.onnx", "window": 6, "states": {"before": "after"}}],
        "detect": {"label": "noise", "threshold": 0.5},
    }
    (folder / "demos" / "audio" / "loud.yaml").write_text(yaml.safe_dump({**content, **fields}))
