"""The logs of Tengine's example programs, line for line, so that a run here can be compared with one there.

The formats are those of `tm_classification`, `tm_retinaface`, `tm_landmark`, `tm_yolofastest` (`yolo` here),
`tm_yolov3` (also of `tm_yolov3_tiny`, `tm_yolov4_tiny` and `tm_yolox`), `tm_nanodet_m` and `tm_efficientdet`
(OAID/Tengine, branch tengine-lite); the line with Tengine's version names edgedeploy and TVM instead. `text`, `objects`
and `points`, landmarks with a score and a class, are not Tengine's.

Only the style `tengine` is exact. In the style `named`, classes have their names and landmarks their points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Literal

from edgedeploy.demo.pipeline import Outcome
from edgedeploy.demo.spec import LogFormat
from edgedeploy.version import __version__
from edgedeploy.vision.results import Detection

RULE = "-" * 38

LogStyle = Literal["tengine", "named"]

_OF_POINTS = ("landmark", "points")


def log_lines(outcome: Outcome, image_file: Path, style: LogStyle = "named") -> list[str]:
    """The lines of `outcome`, without line ends."""
    log = outcome.network.stage.log
    lines = [version_line()]
    if log in ("classification", "efficientdet"):
        lines += _files_and_input(outcome, image_file)
    if log == "retinaface":
        height, width = outcome.frame.image
        lines.append(f"img_h, img_w : {height}, {width}")
    lines.append(time_line(outcome))
    if log is None:
        return lines
    if log not in _OF_POINTS:
        lines += [RULE, *result_lines(outcome, style)]
    elif style == "named":
        lines += result_lines(outcome, style)
    if log == "classification":
        lines.append(RULE)
    return lines


def version_line() -> str:
    """The line that names edgedeploy, and TVM where it is installed."""
    try:
        # A post-release repackages the same version of TVM.
        tvm = metadata.version("apache-tvm").partition(".post")[0]
    except metadata.PackageNotFoundError:
        return f"edgedeploy {__version__}"
    return f"edgedeploy {__version__}, Apache TVM {tvm}"


def time_line(outcome: Outcome) -> str:
    """The line with the times of the inferences."""
    timing, threads = outcome.timing, outcome.network.runner.threads
    if outcome.network.stage.log in _OF_POINTS:
        return (
            f"Repeat [{len(timing.runs_ms)}] min {timing.min_ms:.3f} ms, max {timing.max_ms:.3f} ms, "
            f"avg {timing.mean_ms:.3f} ms"
        )
    return _times(len(timing.runs_ms), f"thread {threads}", timing.mean_ms, timing.max_ms, timing.min_ms)


def _times(count: int, what: str, mean: float, most: float, least: float) -> str:
    return f"Repeat {count} times, {what}, avg time {mean:.2f} ms, max_time {most:.2f} ms, min_time {least:.2f} ms"


def result_lines(outcome: Outcome, style: LogStyle = "named") -> list[str]:
    """The lines of results alone.

    tm_landmark prints none, it only draws its points; here they are in one line for each face, in whole pixels.
    """
    log, detections = outcome.network.stage.log, outcome.detections
    if log is None:
        return []
    shown = (_NAMED if style == "named" else {}).get(log, _RESULTS[log])
    lines = [f"{_COUNTS[log]}: {len(detections)}"] if log in _COUNTS else []
    for detection in detections:
        lines.append(shown(detection))
        if log == "objects" and detection.points:
            lines.append(_landmark(detection))
    return lines


def following_lines(outcome: Outcome, *, times: bool, style: LogStyle = "named") -> list[str]:
    """The lines of the next networks' results, if `times` with the times of each inference.

    Networks that run for each line of a text have their times in one line.
    """
    lines: list[str] = []
    together: dict[str, list[float]] = {}
    for each in outcome.following():
        log = each.network.stage.log
        if log is None or log == "text":
            together.setdefault(each.network.model, []).append(each.timing.mean_ms)
        elif times:
            lines.append(time_line(each))
        lines += result_lines(each, style)
    for model, taken in together.items() if times else ():
        lines.append(_times(len(taken), model, sum(taken) / len(taken), max(taken), min(taken)))
    return lines


def _classification(detection: Detection, *, named: bool = False) -> str:
    name = f", {detection.label}" if named and detection.label != str(detection.class_id) else ""
    return f"{detection.score:f}, {detection.class_id}{name}"


def _retinaface(detection: Detection) -> str:
    x1, y1, x2, y2 = _box(detection)
    return f"BOX {detection.score:.2f}:( {x1:g} , {y1:g} ),( {x2 - x1:g} , {y2 - y1:g} )"


def _landmark(detection: Detection) -> str:
    return f"{len(detection.points)} points: " + " ".join(f"{x:.0f},{y:.0f}" for x, y in detection.points)


def _scored_points(detection: Detection) -> str:
    return f"{detection.label} {_percent(detection):.0f}%, {_landmark(detection)}"


def _boxed(detection: Detection, coordinate: str, percent: str, first: int = 0) -> str:
    # `d` is for corners that are truncated to whole numbers.
    values = map(int, _box(detection)) if coordinate.endswith("d") else _box(detection)
    box = ", ".join(format(value, coordinate) for value in values)
    return f"{detection.class_id + first:2d}: {_percent(detection):{percent}}%, [{box}], {detection.label}"


def _yolo(detection: Detection, *, named: bool = False) -> str:
    # Tengine counts classes from 1: 0 is the background.
    line = _boxed(detection, "4.0f", "3.0f", first=1)
    return line.partition(": ")[2] if named else line


def _text(detection: Detection) -> str:
    places = " ".join(f"{x:.0f},{y:.0f}" for x, y in detection.outline or ())
    return f"{detection.score or 0:.3f}, [{places}], {detection.label}"


def _object(detection: Detection) -> str:
    """Everything that a result has, but its points."""
    parts = [f"{detection.class_id:2d}:"]
    if detection.score is not None:
        parts.append(f"{_percent(detection):3.0f}%,")
    places = [each for corner in detection.corners or () for each in corner] or detection.box
    if places:
        parts.append(f"[{', '.join(f'{value:4.0f}' for value in places)}],")
    if detection.mask:
        parts.append(f"{detection.mask.area} pixels,")
    if detection.surface:
        surface = detection.surface
        parts.append(f"{surface.minimum:g} to {surface.maximum:g}, median {surface.median:g},")
    return " ".join([*parts, detection.label])


# What the line before the results calls their number.
_COUNTS: dict[LogFormat, str] = {
    "retinaface": "detected face num",
    "yolov3": "detection num",
    "nanodet": "detection num",
    "objects": "detection num",
}
_RESULTS: dict[LogFormat, Callable[[Detection], str]] = {
    "classification": _classification,
    "retinaface": _retinaface,
    "landmark": _landmark,
    "points": _scored_points,
    "yolo": _yolo,
    "yolov3": partial(_boxed, coordinate="4.0f", percent="3.0f"),
    "nanodet": partial(_boxed, coordinate="7.3f", percent="3.3f"),
    "efficientdet": partial(_boxed, coordinate="4d", percent="3.0f"),
    "objects": _object,
    "text": _text,
}
_NAMED: dict[LogFormat, Callable[[Detection], str]] = {
    "classification": partial(_classification, named=True),
    "yolo": partial(_yolo, named=True),
}


def _files_and_input(outcome: Outcome, image_file: Path) -> Iterator[str]:
    height, width = outcome.frame.network
    scale, mean = outcome.network.input.scale, outcome.network.input.mean
    yield ""
    yield f"model file : {outcome.network.file}"
    yield f"image file : {image_file}"
    scales, means = " ".join(f"{value:.3f}" for value in scale), " ".join(f"{value:.1f}" for value in mean)
    yield f"img_h, img_w, scale[{len(scale)}], mean[{len(mean)}] : {height} {width} , {scales}, {means}"


def _percent(detection: Detection) -> float:
    return 100 * (detection.score or 0)


def _box(detection: Detection) -> tuple[float, float, float, float]:
    if detection.box is None:
        raise TypeError(f"{detection.label}: a log of boxes needs a decoder that gives boxes")
    return detection.box
