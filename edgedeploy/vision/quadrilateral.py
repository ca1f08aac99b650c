"""Parts of an image that are no upright boxes: any four corners, brought to an upright image and back."""

from __future__ import annotations

from typing import Literal

import cv2
import numpy as np

Interpolation = Literal["linear", "cubic"]
Border = Literal["replicate", "zero"]

_INTERPOLATION = {"linear": cv2.INTER_LINEAR, "cubic": cv2.INTER_CUBIC}
_BORDER = {"replicate": cv2.BORDER_REPLICATE, "zero": cv2.BORDER_CONSTANT}


def warp_quadrilateral(
    image: np.ndarray,
    corners: np.ndarray,
    size: tuple[int, int],
    *,
    interpolation: Interpolation = "linear",
    border: Border = "replicate",
) -> np.ndarray:
    """The part of `image` between four corners as an upright image.

    The corners go to (0, 0), (width, 0), (width, height) and (0, height), as MediaPipe's ImageToTensorCalculator and
    PaddleOCR's get_rotate_crop_image have it: pixel (0, 0) of the result is the image at the first corner.

    Args:
        image: uint8, height x width x channels.
        corners: 4 x 2, x and y in pixels of the image, clockwise from the top left of what becomes upright.
        size: width and height of the result in pixels.
        interpolation: between the pixels of the image.
        border: what lies outside of the image: its nearest pixel, or zero.

    Returns:
        uint8, size[1] x size[0] x channels.
    """
    return cv2.warpPerspective(
        image,
        _to_upright(corners, size),
        size,
        flags=_INTERPOLATION[interpolation],
        borderMode=_BORDER[border],
    )


def from_upright(points: np.ndarray, corners: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Where points of the result of `warp_quadrilateral` lie in the image.

    Args:
        points: ... x 2, x and y in pixels of the result.
        corners: as there.
        size: as there.

    Returns:
        float64, ... x 2, x and y in pixels of the image.
    """
    flat = np.asarray(points, np.float64).reshape(-1, 1, 2)
    if not flat.size:
        return flat.reshape(np.shape(points))
    return cv2.perspectiveTransform(flat, np.linalg.inv(_to_upright(corners, size))).reshape(np.shape(points))


def _to_upright(corners: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The projection of the image onto the result, 3 x 3, float64."""
    width, height = size
    upright = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    return cv2.getPerspectiveTransform(np.asarray(corners, np.float32), upright)
