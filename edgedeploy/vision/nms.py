"""Non-maximum suppression: of boxes that show the same thing, keep the one with the best score."""

from __future__ import annotations

import numpy as np


def suppress(
    boxes: np.ndarray, scores: np.ndarray, iou_threshold: float, tie: float = 0.0, classes: np.ndarray | None = None
) -> np.ndarray:
    """Greedy non-maximum suppression, over all classes together or within each class.

    The box with the best score is kept, those whose intersection over union with it exceeds `iou_threshold` are
    dropped, and so on with what is left. Among equal scores the earlier box comes first, unless `tie` is given.

    Args:
        boxes: n x 4, x1, y1, x2, y2; the area of a box is (x2 - x1) (y2 - y1).
        scores: n.
        iou_threshold: the largest intersection over union that two kept boxes may have.
        tie: if above zero, scores count in steps of this size, and of equal ones the larger box comes first:
            which of two boxes survives then does not hang on the last bits of the image's decoder.
        classes: n class numbers, if a box is to drop those of its own class only.

    Returns:
        The indices of the kept boxes, best score first.
    """
    return np.array([group[0] for group in clusters(boxes, scores, iou_threshold, tie, classes)], dtype=np.intp)


def clusters(
    boxes: np.ndarray, scores: np.ndarray, iou_threshold: float, tie: float = 0.0, classes: np.ndarray | None = None
) -> list[np.ndarray]:
    """The boxes that `suppress` keeps, each with those that it drops.

    Returns:
        The indices of each kept box and of its dropped ones, each best score first.
    """
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = np.lexsort((-areas, -np.round(scores / tie))) if tie else np.argsort(-scores, kind="stable")
    groups = []
    while order.size:
        best, rest = order[0], order[1:]
        sides = np.minimum(boxes[best, 2:], boxes[rest, 2:]) - np.maximum(boxes[best, :2], boxes[rest, :2])
        intersections = np.prod(np.maximum(sides, 0), axis=1)
        unions = areas[best] + areas[rest] - intersections
        # Multiplied out, so that two empty boxes do not divide by zero.
        stays = intersections <= iou_threshold * unions
        if classes is not None:
            stays |= classes[rest] != classes[best]
        groups.append(np.concatenate([order[:1], rest[~stays]]))
        order = rest[stays]
    return groups
