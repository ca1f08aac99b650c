"""The logs of Tengine's example programs, line for line, so that a run here can be compared with one there.

The formats are those of `tm_classification`, `tm_retinaface`, `tm_landmark` and `tm_yolo*` (OAID/Tengine,
branch tengine-lite); the line with Tengine's version names edgedeploy and TVM instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from edgedeploy import __version__
from edgedeploy.demo.pipeline import Outcome
from edgedeploy.demo.spec import LogFormat
from edgedeploy.vision.results import Detection

RULE = "-" * 38


def log_lines(log: LogFormat, outcome: Outcome, *, model_file: Path, image_file: Path) -> list[str]:
    """The lines of `outcome` in the format `log`, without line ends."""
    lines = {"classification": _classification, "retinaface": _retinaface, "landmark": _landmark, "yolo": _yolo}[log]
    return [version_line(), *lines(outcome, model_file, image_file)]


def version_line() -> str:
    """The line that names edgedeploy and TVM."""
    # A post-release repackages the same version of TVM.
    tvm = metadata.version("apache-tvm").partition(".post")[0]
    return f"edgedeploy {__version__}, Apache TVM {tvm}"


def time_line(log: LogFormat, outcome: Outcome) -> str:
    """The line with the times of the inferences."""
    return (_landmark_times if log == "landmark" else _repeat)(outcome)


def result_lines(log: LogFormat, detections: Sequence[Detection]) -> list[str]:
    """The lines of results alone.

    tm_landmark prints none, it only draws its points; here they are in one line for each face, in whole pixels.
    """
    return {"classification": _classes, "retinaface": _faces, "landmark": _points, "yolo": _objects}[log](detections)


def _classification(outcome: Outcome, model_file: Path, image_file: Path) -> Iterator[str]:
    height, width = outcome.frame.network
    scale, mean = outcome.model_input.scale, outcome.model_input.mean
    yield ""
    yield f"model file : {model_file}"
    yield f"image file : {image_file}"
    scales, means = " ".join(f"{value:.3f}" for value in scale), " ".join(f"{value:.1f}" for value in mean)
    yield f"img_h, img_w, scale[{len(scale)}], mean[{len(mean)}] : {height} {width} , {scales}, {means}"
    yield _repeat(outcome)
    yield RULE
    yield from _classes(outcome.detections)
    yield RULE


def _retinaface(outcome: Outcome, model_file: Path, image_file: Path) -> Iterator[str]:
    height, width = outcome.frame.picture
    yield f"img_h, img_w : {height}, {width}"
    yield _repeat(outcome)
    yield RULE
    yield from _faces(outcome.detections)


def _landmark(outcome: Outcome, model_file: Path, image_file: Path) -> Iterator[str]:
    yield _landmark_times(outcome)


def _yolo(outcome: Outcome, model_file: Path, image_file: Path) -> Iterator[str]:
    yield _repeat(outcome)
    yield RULE
    yield from _objects(outcome.detections)


def _classes(detections: Sequence[Detection]) -> list[str]:
    return [f"{detection.score:f}, {detection.class_id}" for detection in detections]


def _faces(detections: Sequence[Detection]) -> list[str]:
    lines = [f"detected face num: {len(detections)}"]
    for detection in detections:
        x1, y1, x2, y2 = _box(detection)
        lines.append(f"BOX {detection.score:.2f}:( {x1:g} , {y1:g} ),( {x2 - x1:g} , {y2 - y1:g} )")
    return lines


def _points(detections: Sequence[Detection]) -> list[str]:
    return [
        f"{len(detection.points)} points: " + " ".join(f"{x:.0f},{y:.0f}" for x, y in detection.points)
        for detection in detections
    ]


def _objects(detections: Sequence[Detection]) -> list[str]:
    lines = []
    for detection in detections:
        # Tengine counts classes from 1: 0 is the background.
        percent = 100 * (detection.score or 0)
        box = ", ".join(f"{value:4.0f}" for value in _box(detection))
        lines.append(f"{detection.class_id + 1:2d}: {percent:3.0f}%, [{box}], {detection.label}")
    return lines


def _landmark_times(outcome: Outcome) -> str:
    timing = outcome.timing
    return (
        f"Repeat [{len(timing.runs_ms)}] min {timing.min_ms:.3f} ms, max {timing.max_ms:.3f} ms, "
        f"avg {timing.mean_ms:.3f} ms"
    )


def _repeat(outcome: Outcome) -> str:
    timing = outcome.timing
    return (
        f"Repeat {len(timing.runs_ms)} times, thread {outcome.threads}, avg time {timing.mean_ms:.2f} ms, "
        f"max_time {timing.max_ms:.2f} ms, min_time {timing.min_ms:.2f} ms"
    )


def _box(detection: Detection) -> tuple[float, float, float, float]:
    if detection.box is None:
        raise TypeError(f"{detection.label}: a log of boxes needs a decoder that gives boxes")
    return detection.box
