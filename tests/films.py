"""Videos for tests, written with OpenCV, and read back with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

FOURCC = {".avi": "MJPG", ".mp4": "mp4v", ".mkv": "mp4v"}


def write_film(path: Path, pictures: Sequence[np.ndarray], rate: float = 25) -> Path:
    """A video of these pictures."""
    height, width = pictures[0].shape[:2]
    writer = cv2.VideoWriter(
        str(path), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*FOURCC[path.suffix]), rate, (width, height)
    )
    assert writer.isOpened()
    for picture in pictures:
        writer.write(picture)
    writer.release()
    return path


def read_film(path: Path) -> list[np.ndarray]:
    """All pictures of a video."""
    capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    assert capture.isOpened()
    pictures = []
    while True:
        done, picture = capture.read()
        if not done:
            return pictures
        pictures.append(picture)


def moving(picture: np.ndarray, count: int, size: tuple[int, int], step: int = 1) -> list[np.ndarray]:
    """Crops of height x width, each `step` pixels to the right of the one before."""
    return [picture[: size[0], index * step : index * step + size[1]] for index in range(count)]
