"""A camera for a virtual board: a program in the place of a Raspberry Pi's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import cv2
import numpy as np

from edgedeploy.virtual.board import VirtualBoard
from support.virtual_boards import root_of

# The same image again and again.
_CAMERA = """#!/bin/sh
echo $$ >/tmp/rpicam-vid.pid
while cat /opt/frame; do sleep 0.05; done
"""


@contextmanager
def rpicam(board: VirtualBoard, image: np.ndarray, size: tuple[int, int]) -> Iterator[np.ndarray]:
    """Within the block the board's camera shows an image, of a width and height; that as OpenCV sees it."""
    planes = cv2.cvtColor(cv2.resize(image, size, interpolation=cv2.INTER_CUBIC), cv2.COLOR_BGR2YUV_I420)
    root = root_of(board)
    (root / "opt").mkdir(exist_ok=True)
    (root / "opt" / "frame").write_bytes(planes.tobytes())
    program = root / "usr" / "bin" / "rpicam-vid"
    program.write_text(_CAMERA)
    program.chmod(0o755)
    try:
        yield cv2.cvtColor(planes, cv2.COLOR_YUV2BGR_I420)
    finally:
        program.unlink()
