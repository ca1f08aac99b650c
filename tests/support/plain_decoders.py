"""Decoders once more, one place after another in Python's own numbers, written from the published formulas.

Each function gives the places that reach the threshold, in the order in which the network has them; `reported` does
what is common to all afterwards.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection

Outputs = Mapping[str, np.ndarray]


@dataclass
class Place:
    score: float
    class_id: int
    box: list[float]
    points: list[tuple[float, float]] = field(default_factory=list)


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def box_around(x: float, y: float, width: float, height: float) -> list[float]:
    return [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


def best_of(values: Sequence[float]) -> tuple[int, float]:
    best = max(range(len(values)), key=lambda index: values[index])  # the first of those that are equal
    return best, values[best]


def yolo(
    output: np.ndarray,
    anchors: Sequence[tuple[float, float]],
    network: tuple[int, int],
    threshold: float,
    *,
    region: bool = False,
    tengine: bool = False,
    scale_x_y: float = 1.0,
) -> Iterator[Place]:
    """Darknet's layers [yolo] and [region]; anchors in pixels."""
    _, channels, rows, columns = output.shape
    values = channels // len(anchors)
    for number, row, column in np.ndindex(len(anchors), rows, columns):
        width, height = anchors[number]
        x, y, w, h, objectness, *classes = output[0, number * values :, row, column][:values].tolist()
        class_id, logit = best_of(classes)
        if region:
            score = sigmoid(objectness) * math.exp(logit) / sum(math.exp(each) for each in classes)
        elif tengine:
            score = 1 / (1 + math.exp(-objectness) * (1 + math.exp(-logit)))
        else:
            score = sigmoid(objectness) * sigmoid(logit)
        if score < threshold:
            continue
        across = column + scale_x_y * sigmoid(x) - (scale_x_y - 1) / 2
        down = row + scale_x_y * sigmoid(y) - (scale_x_y - 1) / 2
        centre = across / columns * network[1], down / rows * network[0]
        yield Place(score, class_id, box_around(*centre, width * math.exp(w), height * math.exp(h)))


def retinaface(outputs: Outputs, threshold: float) -> Iterator[Place]:
    """InsightFace's mnet.25, with its anchors of one ratio and two scales at each stride."""
    for stride, sides in ((32, (512, 256)), (16, (128, 64)), (8, (32, 16))):
        parts = ("cls_prob_reshape", "bbox_pred", "landmark_pred")
        scores, boxes, landmarks = (outputs[f"face_rpn_{part}_stride{stride}"][0] for part in parts)
        for number, row, column in np.ndindex(2, *boxes.shape[1:]):
            score, side = float(scores[2 + number, row, column]), sides[number]
            if score < threshold:
                continue
            # The anchor's corners, as InsightFace has them: its last pixel belongs to it.
            left, top = column * stride + 7.5 - (side - 1) / 2, row * stride + 7.5 - (side - 1) / 2
            right, bottom = left + side - 1, top + side - 1
            width, height = right - left + 1, bottom - top + 1
            x, y = left + (width - 1) / 2 + 0.5, top + (height - 1) / 2 + 0.5
            dx, dy, dw, dh = boxes[4 * number : 4 * number + 4, row, column].tolist()
            box = box_around(x + dx * width, y + dy * height, math.exp(dw) * width, math.exp(dh) * height)
            points = landmarks[10 * number : 10 * number + 10, row, column].reshape(5, 2).tolist()
            spots = [(x + px * (side + 1), y + py * (side + 1)) for px, py in points]
            yield Place(score, 0, [box[0], box[1], box[2] + 1, box[3] + 1], spots)


def priors(
    network: tuple[int, int], levels: Sequence[tuple[int, Sequence[tuple[float, float]]]], even: bool
) -> Iterator[tuple[float, float, float, float]]:
    for stride, sizes in levels:
        rows, columns = math.ceil(network[0] / stride), math.ceil(network[1] / stride)
        across, down = (network[1] / columns, network[0] / rows) if even else (stride, stride)
        for row, column in np.ndindex(rows, columns):
            for width, height in sizes:
                yield (column + 0.5) * across, (row + 0.5) * down, width, height


def ssd(
    scores: np.ndarray,
    boxes: np.ndarray,
    points: np.ndarray | None,
    boxes_of_priors: Iterator[tuple[float, float, float, float]],
    threshold: float,
    variances: tuple[float, float] = (0.1, 0.2),
) -> Iterator[Place]:
    """SSD's boxes, and the landmarks of RetinaFace's PyTorch version."""
    for index, (x, y, width, height) in enumerate(boxes_of_priors):
        class_id, score = best_of(scores[0, index, 1:].tolist())
        if score < threshold:
            continue
        dx, dy, dw, dh = boxes[0, index].tolist()
        centre = x + dx * variances[0] * width, y + dy * variances[0] * height
        box = box_around(*centre, width * math.exp(dw * variances[1]), height * math.exp(dh * variances[1]))
        spots = [] if points is None else points[0, index].reshape(-1, 2).tolist()
        spots = [(x + px * variances[0] * width, y + py * variances[0] * height) for px, py in spots]
        yield Place(score, class_id, box, spots)
    assert index + 1 == boxes.shape[1]


def yunet(outputs: Outputs, network: tuple[int, int], threshold: float) -> Iterator[Place]:
    """OpenCV's FaceDetectorYN."""
    for stride in (8, 16, 32):
        cells = np.ndindex(network[0] // stride, network[1] // stride)
        for index, (row, column) in enumerate(cells):
            parts = [min(max(float(outputs[f"{what}_{stride}"][0, index, 0]), 0.0), 1.0) for what in ("cls", "obj")]
            score = math.sqrt(parts[0] * parts[1])
            if score < threshold:
                continue
            x, y, w, h = outputs[f"bbox_{stride}"][0, index].tolist()
            box = box_around((column + x) * stride, (row + y) * stride, math.exp(w) * stride, math.exp(h) * stride)
            points = outputs[f"kps_{stride}"][0, index].reshape(5, 2).tolist()
            yield Place(score, 0, box, [((column + px) * stride, (row + py) * stride) for px, py in points])


def yolox(output: np.ndarray, network: tuple[int, int], threshold: float) -> Iterator[Place]:
    """YOLOX's demo for onnxruntime."""
    places = iter(output[0].tolist())
    for stride in (8, 16, 32):
        for row, column in np.ndindex(network[0] // stride, network[1] // stride):
            x, y, w, h, objectness, *classes = next(places)
            class_id, best = best_of(classes)
            if objectness * best < threshold:
                continue
            size = math.exp(w) * stride, math.exp(h) * stride
            yield Place(objectness * best, class_id, box_around((x + column) * stride, (y + row) * stride, *size))
    assert next(places, None) is None


def nanodet(
    scores: np.ndarray, distances: np.ndarray, grids: Sequence[tuple[int, int, int]], threshold: float, offset: float
) -> Iterator[Place]:
    """ncnn's example for NanoDet; `grids` has stride, rows and columns of each level."""
    places = zip(scores[0].tolist(), distances[0].reshape(scores.shape[1], 4, -1).tolist(), strict=True)
    for stride, rows, columns in grids:
        for row, column in np.ndindex(rows, columns):
            classes, parts = next(places)
            class_id, score = best_of(classes)
            sides = []
            for values in parts:
                powers = [math.exp(each) for each in values]
                sides.append(stride * sum(bin_ * power for bin_, power in enumerate(powers)) / sum(powers))
            if score < threshold:
                continue
            x, y = (column + offset) * stride, (row + offset) * stride
            yield Place(score, class_id, [x - sides[0], y - sides[1], x + sides[2], y + sides[3]])
    assert next(places, None) is None


def efficientdet(scores: np.ndarray, boxes: np.ndarray, network: tuple[int, int], threshold: float) -> Iterator[Place]:
    """google/automl's anchors and box coder; `scores` are logits."""
    places = zip(scores[0].tolist(), boxes[0].tolist(), strict=True)
    for level in (3, 4, 5, 6, 7):
        stride = 2**level
        cells = math.ceil(network[0] / stride), math.ceil(network[1] / stride)
        for row, column, octave, ratio in np.ndindex(*cells, 3, 3):
            size = 4 * stride * 2 ** (octave / 3)
            width, height = (size * each for each in ((1.0, 1.0), (1.4, 0.7), (0.7, 1.4))[ratio])
            logits, (ty, tx, th, tw) = next(places)
            class_id, logit = best_of(logits)
            if sigmoid(logit) < threshold:
                continue
            x, y = (column + 0.5) * stride + tx * width, (row + 0.5) * stride + ty * height
            yield Place(sigmoid(logit), class_id, box_around(x, y, width * math.exp(tw), height * math.exp(th)))
    assert next(places, None) is None


def overlap_of(one: Sequence[float], other: Sequence[float]) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return width * height / (areas[0] + areas[1] - width * height)


def kept(places: Iterable[Place], overlap: float, class_aware: bool = False) -> list[Place]:
    """Those that no better one suppresses."""
    found: list[Place] = []
    for place in sorted(places, key=lambda each: -each.score):
        rivals = [each for each in found if not class_aware or each.class_id == place.class_id]
        if all(overlap_of(each.box, place.box) <= overlap for each in rivals):
            found.append(place)
    return found


def assert_reported(found: Sequence[Detection], expected: Sequence[Place], frame: Frame, *, clip: bool = True) -> None:
    """The results are these places, in pixels of the image, the best first."""
    width, height = frame.image[1] - 1, frame.image[0] - 1
    places = []
    for place in expected:
        box = [value / frame.scale[index % 2] for index, value in enumerate(place.box)]
        if clip:
            box = [min(max(value, 0), (width, height)[index % 2]) for index, value in enumerate(box)]
            if box[0] >= box[2] or box[1] >= box[3]:
                continue
        points = [(x / frame.scale[0], y / frame.scale[1]) for x, y in place.points]
        places.append(Place(place.score, place.class_id, box, points))
    assert [each.class_id for each in found] == [each.class_id for each in places]
    for detection, place in zip(found, places, strict=True):
        assert detection.score == pytest.approx(place.score, abs=1e-5)
        assert detection.box == pytest.approx(place.box, abs=0.01)
        assert np.allclose(detection.points, place.points, atol=0.01)
