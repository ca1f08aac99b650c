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
        tie: if above zero, scores are rounded to multiples of it, and of equal ones the larger box comes first: which
            of two boxes survives then does not depend on the last bits of decoded images.
        classes: n class numbers, if boxes suppress only those of their own class.
        most: the most boxes to keep.

    Returns:
        The indices of the kept boxes, best score first.
    """
    groups = clusters(boxes, scores, iou_threshold, tie, classes, most)
    return np.array([group[0] for group in groups], dtype=np.intp)


def clusters(
    boxes: np.ndarray,
    scores: np.ndarray,
    iou_threshold: float,
    tie: float = 0.0,
    classes: np.ndarray | None = None,
    most: int | None = None,
) -> list[np.ndarray]:
    """The indices of each box that `suppress` keeps, each followed by those that it suppresses, best score first."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = np.lexsort((-areas, -np.round(scores / tie))) if tie else np.argsort(-scores, kind="stable")
    groups: list[np.ndarray] = []
    while order.size and len(groups) != most:
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


def suppress_turned(
    boxes: np.ndarray, scores: np.ndarray, overlap_threshold: float, classes: np.ndarray | None = None
) -> np.ndarray:
    """Non-maximum suppression of turned boxes, as Ultralytics does it.

    A box is kept if none with a better score, itself kept or not, overlaps it by more than `overlap_threshold` (Fast
    NMS: Bolya et al., 2019, arXiv:1904.02689). The overlap of two boxes is that of the normal distributions with their
    centres and covariances: one minus the Hellinger distance (Llerena et al., 2021, arXiv:2106.06072).

    Args:
        boxes: n x 5, x, y, width, height and the angle in radians.
        scores: n.
        overlap_threshold: the largest overlap, from 0 to 1, that a kept box may have.
        classes: n class numbers, if boxes suppress only those of their own class.

    Returns:
        The indices of the kept boxes, best score first.
    """
    order = np.argsort(-scores, kind="stable")
    stays = np.ones(len(order), bool)
    groups = [np.arange(len(order))]
    if classes is not None:
        groups = [np.flatnonzero(classes[order] == each) for each in np.unique(classes)]
    for group in groups:
        members = boxes[order[group]].astype(np.float64)
        for place in range(1, len(group)):
            stays[group[place]] = not (_overlaps(members[place], members[:place]) > overlap_threshold).any()
    return order[stays]


def _overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The overlaps of a turned box (5) with others (n x 5); see `suppress_turned`."""
    tiny = 1e-7  # of the reference: it bounds what is divided by
    (a, b, c), (others_a, others_b, others_c) = _covariance(box), _covariance(others)
    sum_a, sum_b, sum_c = a + others_a, b + others_b, c + others_c
    across, down = (others[:, :2] - box[:2]).T
    determinant = sum_a * sum_b - sum_c**2
    # Of two normal distributions: the Bhattacharyya distance.
    means = (sum_a * down**2 + sum_b * across**2 - 2 * sum_c * across * down) / (determinant + tiny) / 4
    each = np.maximum(a * b - c**2, 0) * np.maximum(others_a * others_b - others_c**2, 0)
    spreads = np.log(determinant / (4 * np.sqrt(each) + tiny) + tiny) / 2
    distance = np.clip(means + spreads, tiny, 100.0)
    return 1 - np.sqrt(1 - np.exp(-distance) + tiny)


def _covariance(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of uniform distributions over turned boxes (..., 5): the variances along x and y, and the covariance."""
    width, height = boxes[..., 2] ** 2 / 12, boxes[..., 3] ** 2 / 12
    cosine, sine = np.cos(boxes[..., 4]), np.sin(boxes[..., 4])
    return (
        width * cosine**2 + height * sine**2,
        width * sine**2 + height * cosine**2,
        (width - height) * cosine * sine,
    )
