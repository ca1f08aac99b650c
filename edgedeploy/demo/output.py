"""What a demo writes besides its log: drawn images, and a summary of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import cv2
import numpy as np

from edgedeploy.base.files import is_file
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.demo.pipeline import Outcome, Parts
from edgedeploy.errors import InputError, OutputError
from edgedeploy.vision.image import check_place, check_writable, write_image
from edgedeploy.vision.source import Shot, Source
from edgedeploy.vision.video import video_file

Save = Callable[[Shot, np.ndarray], None]


@contextmanager
def saving(target: Path | None, source: Source, progress: Progress = SILENT) -> Iterator[Save]:
    """Save drawn images: call the result with each image of `source` and its drawing.

    `target` is an image's file for an image, a folder for a folder, and a video's file for a video or a camera; None
    saves nothing.
    """
    if target is None:
        yield lambda shot, drawn: None
    elif source.kind == "image":
        check_writable(target)
        yield lambda shot, drawn: write_image(target, drawn)
    else:
        _check_apart(target, source)
        if source.kind == "folder":
            if is_file(target):
                raise OutputError(
                    f"cannot write {target}",
                    why="images of a folder are saved into a folder, and this is a file",
                    hints=["name a folder; it is created if it is missing"],
                )
            check_place(target / "image.png")
            yield lambda shot, drawn: write_image(target / _name(shot.file), drawn)
        else:
            with video_file(target, source.rate or 0.0, live=source.kind == "camera") as write:
                yield lambda shot, drawn: write(drawn)
    if target is not None:
        progress.note(f"the results are drawn in {target}")


def _name(file: Path) -> str:
    """The name of an image to write: as PNG if OpenCV cannot write the format of the source."""
    return file.name if cv2.haveImageWriter(f"x{file.suffix.lower()}") else f"{file.name}.png"


def _check_apart(target: Path, source: Source) -> None:
    with suppress(OSError):
        if target.samefile(source.path):
            hints = ["name another folder or file to save to"]
            raise InputError(f"--save {target} would overwrite what is shown", hints=hints)


class Summary:
    """Counts images and their times, from its creation until the last is done: read, drawn and saved."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self._parts = Parts()
        self.frames = 0
        self.seconds = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count one image that is done."""
        self._parts += outcome.all_parts
        self.frames += 1
        self.seconds = perf_counter() - self._started

    @property
    def fps(self) -> float:
        """Images per second, over the whole time."""
        return self.frames / self.seconds if self.seconds else 0.0

    @property
    def mean(self) -> Parts:
        """The mean times of the parts."""
        return self._parts.per(max(1, self.frames))

    def line(self) -> str:
        """The summary in one line for people."""
        return f"{self.frames} frames in {self.seconds:.2f} s, {self.fps:.2f} FPS; mean of each: {self.mean.line()}"

    def as_dict(self) -> dict[str, Any]:
        """The summary as `--json` prints it."""
        return {"frames": self.frames, "seconds": self.seconds, "fps": self.fps, **self.mean.as_dict()}
