"""Frames of cameras: conversion from and to images by OpenCV, and how a frame becomes a network's input."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import cv2
import numpy as np

from edgedeploy.documents import Record
from edgedeploy.errors import InputError
from edgedeploy.package.usage import Camera, Fit
from edgedeploy.tensors import Steps
from edgedeploy.vision.geometry import BORDER
from edgedeploy.vision.resampling import Resampling, resampling

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
    """An image (uint8, height x width x 3, B G R) as a camera's frame."""
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


class Preparation(Record):
    """How a frame becomes a network's input, with the same levels as in `vision.preprocess`.

    Attributes:
        fit: how frames are brought to the input's size by `vision.resampling`.
        size: height and width of the input.
        layout, colour, mean, scale: as in `ModelInput`.
        dtype: of the input.
        steps: scale and zero point of a quantised input.
    """

    camera: Camera
    fit: Fit
    size: tuple[int, int]
    layout: Literal["NCHW", "NHWC"]
    colour: Literal["RGB", "BGR", "GRAY"]
    mean: list[float]
    scale: list[float]
    dtype: str
    steps: Steps | None = None

    @property
    def channels(self) -> int:
        """Of the input."""
        return len(self.mean)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the input."""
        height, width = self.size
        return (1, self.channels, height, width) if self.layout == "NCHW" else (1, height, width, self.channels)

    @property
    def border(self) -> int:
        """The level of all channels around the image."""
        return BORDER.get(self.fit, 0)

    @cached_property
    def resampling(self) -> Resampling:
        """How frames are brought to the input's size."""
        return resampling(self.camera.size, self.size, self.fit)

    @cached_property
    def values(self) -> np.ndarray:
        """The input's value for each level in each channel: channels x 256, of the input's type."""
        mean, scale = (np.array(each, np.float32)[:, None] for each in (self.mean, self.scale))
        values = (np.arange(256, dtype=np.float32) - mean) * scale
        if self.steps is not None:
            return self.steps.integers(values, self.dtype)
        if np.issubdtype(np.dtype(self.dtype), np.integer):
            limits = np.iinfo(self.dtype)
            values = np.clip(np.rint(values), limits.min, limits.max)
        return values.astype(self.dtype)

    def tensor(self, frame: np.ndarray) -> np.ndarray:
        """The network's input for a frame, by OpenCV's conversions and numpy."""
        levels = self.resampling.of(image_of(frame, self.camera), self.border)
        if self.colour == "RGB":
            levels = levels[..., ::-1]
        elif self.colour == "GRAY":
            levels = cv2.cvtColor(levels, cv2.COLOR_BGR2GRAY)[..., None]
        values = np.stack([self.values[channel][levels[..., channel]] for channel in range(self.channels)])
        return np.ascontiguousarray(values if self.layout == "NCHW" else np.moveaxis(values, 0, -1))[None]
