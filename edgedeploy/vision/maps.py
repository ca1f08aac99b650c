"""Values that a network gives for a grid over its input, as values of the image's pixels."""

from __future__ import annotations

import cv2
import numpy as np

from edgedeploy.vision.decoder import not_of_this_kind
from edgedeploy.vision.preprocess import Frame


def on_image(values: np.ndarray, frame: Frame, *, nearest: bool = False) -> np.ndarray:
    """A map over a network's input as one over the image's pixels, without what lies beside the image.

    Where the borders of the image do not fall between the map's cells, the map is enlarged first, no more than is
    needed for that and at most to the network's input, as Ultralytics does it with masks.

    Args:
        values: float32 or uint8, rows x columns of any size, which together cover the network's input.
        frame: how the image lies in it; all of it must be seen.
        nearest: whether a pixel gets the nearest value, not one between its neighbours: for numbers of classes.

    Returns:
        In the same dtype, height x width of the image.
    """
    if not values.size:
        raise not_of_this_kind("it gives a map without cells")
    how = cv2.INTER_NEAREST if nearest else cv2.INTER_LINEAR
    values, (top, bottom, left, right) = _with_whole_borders(values, frame, how)
    height, width = frame.image
    inside = np.ascontiguousarray(values[top:bottom, left:right])
    return inside if inside.shape == (height, width) else cv2.resize(inside, (width, height), interpolation=how)


def _with_whole_borders(values: np.ndarray, frame: Frame, how: int) -> tuple[np.ndarray, list[int]]:
    """The map, perhaps enlarged, and the first and the last row and column of the image in it."""
    network = np.array(frame.network)
    start = np.array(frame.offset[::-1])
    borders = np.stack([start, start + np.array(frame.image) * frame.scale[::-1]], axis=1)  # rows, columns
    for factor in (1, 2, 4):
        size = factor * np.array(values.shape)
        exact = borders * (size / network)[:, None]
        whole = np.rint(exact).astype(int)
        if np.abs(exact - whole).max() < 1e-3 or (size >= network).all():
            break
    else:
        size, whole = network, np.rint(borders).astype(int)
    first = np.clip(whole[:, 0], 0, size - 1)
    last = np.clip(whole[:, 1], first + 1, size)
    if tuple(size) != values.shape:
        values = cv2.resize(values, (int(size[1]), int(size[0])), interpolation=how)
    return values, [int(first[0]), int(last[0]), int(first[1]), int(last[1])]
