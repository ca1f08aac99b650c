"""Non-maximum suppression: of boxes that show the same thing, keep the one with the best score."""

from __future__ import annotations

import numpy as np


def suppress(
    boxes: np.ndarray,
    scores: np.ndarray,
    iou_threshold: float,
    tie: float = 0.0,
    classes: np.ndarray | None = None,
    most: int | None = None,
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
        most: how many boxes are kept at most.

    Returns:
        The indices of the kept boxes, best score first.
    """
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = np.lexsort((-areas, -np.round(scores / tie))) if tie else np.argsort(-scores, kind="stable")
    kept = []
    while order.size and len(kept) != most:
        best, order = order[0], order[1:]
        kept.append(best)
        sides = np.minimum(boxes[best, 2:], boxes[order, 2:]) - np.maximum(boxes[best, :2], boxes[order, :2])
        intersections = np.prod(np.maximum(sides, 0), axis=1)
        unions = areas[best] + areas[order] - intersections
        # Multiplied out, so that two empty boxes do not divide by zero.
        stays = intersections <= iou_threshold * unions
        if classes is not None:
            stays |= classes[order] != classes[best]
        order = order[stays]
    return np.array(kept, dtype=np.intp)
