"""Non-maximum suppression exactly as in onnxruntime and LiteRT, unlike `vision.detector.suppress` of demos.

The same boxes count as empty, the same comparisons are strict, and equal scores have the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from edgedeploy.model.tail.operators import Operator, number

# The intersections over unions of boxes (y1, x1, y2, x2 along the first axis), whose other axes broadcast.
_Overlaps = Callable[[np.ndarray, np.ndarray], np.ndarray]

# How many boxes are compared with all later ones at a time: numpy takes longer for a call than for a hundred boxes.
_BLOCK = 128

_Options = Mapping[str, Any]  # of TFLite_Detection_PostProcess, by LiteRT's names
_Found = tuple[np.ndarray, np.ndarray, np.ndarray]  # the values of one detection's outputs


def _non_max_suppression(
    boxes: Any, scores: Any, most: Any = None, largest: Any = None, least: Any = None, *, center_point_box: int = 0
) -> np.ndarray:
    """Indices of batch, class and box; onnxruntime's non_max_suppression.cc."""
    count = 0 if most is None else int(number(most))
    iou = np.float32(0 if largest is None else number(largest))
    found = []
    for batch in range(scores.shape[0] if count > 0 else 0):
        corners = _corners(boxes[batch], center_point_box)
        for label in range(scores.shape[1]):
            row = scores[batch, label]
            places = np.arange(row.size) if least is None else np.flatnonzero(row > number(least))
            kept = _greedy(corners, places[np.argsort(-row[places], kind="stable")], count, iou, _iou_of_positive)
            found.append(np.stack([np.full_like(kept, batch), np.full_like(kept, label), kept], axis=1))
    return np.concatenate([np.zeros((0, 3), np.int64), *found])


def _corners(boxes: np.ndarray, by_centre: int) -> np.ndarray:
    """Boxes of two opposite corners, or of centre and size (x first), as rows of y1, x1, y2, x2."""
    if by_centre:
        half = boxes[:, 2:] / np.float32(2)
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)[:, [1, 0, 3, 2]].T
    first, second = boxes[:, :2].T, boxes[:, 2:].T
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)])


def _greedy(corners: np.ndarray, order: np.ndarray, count: int, iou: np.float32, overlaps: _Overlaps) -> np.ndarray:
    """The best box, then the best of those that it leaves, and so on: at most `count` of those in `order`."""
    ranks = np.empty(corners.shape[1], np.int64)
    ranks[order] = np.arange(order.size)
    groups = _apart(corners, order) if iou >= 0 else [order]
    kept = [_greedy_among(corners, group, count, iou, overlaps) for group in groups]
    return order[np.sort(ranks[np.concatenate(kept)])[:count]] if kept else np.zeros(0, np.int64)


def _apart(corners: np.ndarray, order: np.ndarray) -> list[np.ndarray]:
    """The boxes in `order` as groups, each in that order, between which there is a gap along one axis.

    PyTorch's exporter suppresses within classes by moving the boxes of each class to a place of its own.
    """
    labels = max(
        (_divided(corners[[axis, axis + 2]][:, order]) for axis in (0, 1)), key=lambda each: each.max(initial=0)
    )
    together = np.argsort(labels, kind="stable")
    return [order[group] for group in np.split(together, np.flatnonzero(np.diff(labels[together])) + 1) if group.size]


def _divided(ends: np.ndarray) -> np.ndarray:
    """A number for each interval (2 x n), the same for those that are joined by others."""
    first, last = ends.min(axis=0), ends.max(axis=0)
    places = np.argsort(first, kind="stable")
    reach = np.maximum.accumulate(last[places])
    labels = np.zeros(places.size, np.int64)
    labels[places[1:]] = np.cumsum(first[places][1:] > reach[:-1])
    return labels


def _greedy_among(
    corners: np.ndarray, order: np.ndarray, count: int, iou: np.float32, overlaps: _Overlaps
) -> np.ndarray:
    """As `_greedy`, each box compared with all later ones that are left."""
    kept = np.zeros(0, np.int64)
    while order.size and kept.size < count:
        block, order = order[:_BLOCK], order[_BLOCK:]
        boxes = corners[:, block, None]
        among = overlaps(boxes, corners[:, None, block]) > iou
        stays = np.ones(block.size, bool)
        for place, suppressed in enumerate(among):
            if stays[place]:
                stays[place + 1 :] &= ~suppressed[place + 1 :]
        kept = np.concatenate([kept, block[stays]])
        order = order[~(overlaps(boxes[:, stays], corners[:, None, order]) > iou).any(axis=0)]
    return kept[:count]


def _areas(corners: np.ndarray) -> np.ndarray:
    return np.asarray((corners[2] - corners[0]) * (corners[3] - corners[1]))


def _sides(first: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Height and width of intersections, below zero where boxes do not intersect."""
    return np.asarray(np.minimum(first[2:], others[2:]) - np.maximum(first[:2], others[:2]))


def _iou_of_positive(first: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Zero where an intersection, an area or a union is not above zero."""
    sides, areas, area = _sides(first, others), _areas(others), _areas(first)
    intersections = np.where((sides[0] > 0) & (sides[1] > 0), sides[0] * sides[1], 0)
    unions = area + areas - intersections
    sound = (intersections > 0) & (areas > 0) & (area > 0) & (unions > 0)
    return np.where(sound, intersections / unions, 0)


def _detection_post_process(encodings: Any, predictions: Any, anchors: Any, **options: Any) -> list[np.ndarray]:
    """TFLite_Detection_PostProcess (detection_postprocess.cc): boxes, classes and scores, with zeros behind the last of
    them, and their number."""
    boxes, scores = _decoded(encodings[0], anchors, options), predictions[0]
    # Where there is a background, it is class 0 of the predictions and has no number.
    scores = scores[:, scores.shape[1] - options["num_classes"] :]
    found, count = (_by_class if options.get("use_regular_nms") else _by_best_class)(boxes, scores, options)
    slots = int(options["max_detections"] * options["max_classes_per_detection"])
    return [*(_padded(each, slots) for each in found), np.array([count], np.float32)]


def _decoded(encodings: np.ndarray, anchors: np.ndarray, options: _Options) -> np.ndarray:
    """Offsets from anchors, both y, x, h, w, as corners y1, x1, y2, x2; computed in float64 and rounded once."""
    scales = np.array([options[f"{name}_scale"] for name in "yxhw"], np.float32).astype(np.float64)
    offsets, places = encodings[:, :4].astype(np.float64) / scales, anchors.astype(np.float64)
    centres = (offsets[:, :2] * places[:, 2:] + places[:, :2]).astype(np.float32)
    halves = (0.5 * np.exp(offsets[:, 2:]) * places[:, 2:]).astype(np.float32)
    return np.concatenate([centres - halves, centres + halves], axis=1)


def _iou(first: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Zero where an area is not above zero."""
    height, width = np.maximum(_sides(first, others), 0)
    intersections = height * width
    areas, area = _areas(others), _areas(first)
    return np.where((areas > 0) & (area > 0), intersections / (area + areas - intersections), 0)


def _kept(boxes: np.ndarray, scores: np.ndarray, most: int, options: _Options) -> np.ndarray:
    """The boxes that stay of those whose scores reach the threshold."""
    places = np.flatnonzero(scores >= np.float32(options["nms_score_threshold"]))
    order = places[np.argsort(-scores[places], kind="stable")]
    return _greedy(boxes.T, order, most, np.float32(options["nms_iou_threshold"]), _iou)


def _by_best_class(boxes: np.ndarray, scores: np.ndarray, options: _Options) -> tuple[_Found, int]:
    """Boxes suppress each other by their best scores; each is given with its best classes."""
    each = min(options["max_classes_per_detection"], scores.shape[1])
    kept = _kept(boxes, scores.max(axis=1), options["max_detections"], options)
    classes = np.argsort(-scores[kept], axis=1, kind="stable")[:, :each]
    found = np.repeat(boxes[kept], each, axis=0), classes.reshape(-1)
    return (*found, np.take_along_axis(scores[kept], classes, 1).reshape(-1)), kept.size


def _by_class(boxes: np.ndarray, scores: np.ndarray, options: _Options) -> tuple[_Found, int]:
    """Boxes suppress those of their own class; the best of all classes are given."""
    per_class = [
        _kept(boxes, scores[:, label], options["detections_per_class"], options) for label in range(scores.shape[1])
    ]
    places = np.concatenate(per_class)
    classes = np.repeat(np.arange(len(per_class)), [kept.size for kept in per_class])
    order = np.argsort(-scores[places, classes], kind="stable")[: options["max_detections"]]
    places, classes = places[order], classes[order]
    return (boxes[places], classes, scores[places, classes]), order.size


def _padded(values: np.ndarray, count: int) -> np.ndarray:
    """A batch of one, with zeros up to `count`."""
    padded = np.zeros((1, count, *values.shape[1:]), np.float32)
    padded[0, : len(values)] = values[:count]
    return padded


OPERATORS: dict[str, Operator] = {
    "NonMaxSuppression": _non_max_suppression,
    "TFLite_Detection_PostProcess": _detection_post_process,
}
