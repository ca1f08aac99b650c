"""Frames of cameras as images, and images as a camera would have given them, by OpenCV."""

from __future__ import annotations

import cv2
import numpy as np

from edgedeploy.camera.format import Camera
from edgedeploy.errors import InputError

_TO_BGR = {
    "yuv420": cv2.COLOR_YUV2BGR_I420,
    "nv12": cv2.COLOR_YUV2BGR_NV12,
    "yuyv": cv2.COLOR_YUV2BGR_YUY2,
    "rgb": cv2.COLOR_RGB2BGR,
    "gray": cv2.COLOR_GRAY2BGR,
}
_OF_BGR = {
    "yuv420": cv2.COLOR_BGR2YUV_I420,
    "nv12": cv2.COLOR_BGR2YUV_I420,
    "yuyv": cv2.COLOR_BGR2YUV_YUY2,
    "rgb": cv2.COLOR_BGR2RGB,
    "gray": cv2.COLOR_BGR2GRAY,
}


def image_of(frame: np.ndarray, camera: Camera) -> np.ndarray:
    """A camera's frame as an image: uint8, height x width x 3, B G R."""
    return frame if camera.pixels == "bgr" else cv2.cvtColor(frame, _TO_BGR[camera.pixels])


def frame_of(image: np.ndarray, camera: Camera) -> np.ndarray:
    """An image (uint8, height x width x 3, B G R) as a camera would have given it."""
    if image.shape != (*camera.size, 3):
        raise InputError(
            f"the image has {image.shape[1]}x{image.shape[0]} pixels",
            why=f"the package was built for a camera's frames of {camera.width}x{camera.height}",
            hints=["give an image of that size, or a package built without --camera, which takes images of any"],
        )
    if camera.pixels == "bgr":
        return image
    frame = cv2.cvtColor(image, _OF_BGR[camera.pixels])
    if camera.pixels == "nv12":  # U and V side by side instead of one after the other
        frame[camera.height :] = frame[camera.height :].reshape(2, -1).T.reshape(-1, camera.width)
    return frame
