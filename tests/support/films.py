"""Videos for tests, written with OpenCV, and read back with it."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

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
