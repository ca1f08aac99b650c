"""Frames of cameras: conversion from and to images, and how a frame becomes a network's input, in integers.

Levels are exactly those of `vision.preprocess.place` for `stretch` (Tengine's examples), `fill` and `letterbox`
(OpenCV's INTER_LINEAR). For `pad` (OpenCV's INTER_AREA) and `cover` (Pillow's BILINEAR) `place` sums up in float and
this module in fixed point: a level next to a half may be rounded to the other side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import cv2
import numpy as np

from edgedeploy.base.documents import Record
from edgedeploy.errors import InputError, UnsupportedError
from edgedeploy.model.tensors import Steps
from edgedeploy.package.usage import Camera, Fit
from edgedeploy.vision.geometry import BORDER, Frame, framed

# Bits of the fraction of weights.
_LINEAR_BITS = 11  # Tengine's and OpenCV's
_AREA_BITS = 14
_PILLOW_BITS = 22

# From the numbers of pixels before and after, the first of the two pixels around each value, and both weights.
Places = Callable[[int, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Axis:
    """One axis of a resized image: each value is a sum of some of the image's, times integers.

    With s = sum((level[pixels[i, k]] * weights[i, k]) >> each), value i is (s + bias) >> shift; `even` adds the last
    bit of s >> shift to that sum, so that halves go to even numbers. No sum exceeds an int32.
    """

    pixels: np.ndarray  # int32, values x terms
    weights: np.ndarray  # int32, values x terms, not negative
    each: int = 0
    bias: int = 0
    shift: int = 0
    even: bool = False

    def of(self, values: np.ndarray, axis: int) -> np.ndarray:
        """Integers resampled along one of their axes, int32."""
        moved = np.moveaxis(values, axis, -1).astype(np.int32)
        terms = zip(self.pixels.T, self.weights.T, strict=True)
        total = sum((moved[..., pixels] * weights >> self.each for pixels, weights in terms), np.int32(0))
        if self.even:
            total = total + (total >> self.shift & 1)
        return np.moveaxis(total + self.bias >> self.shift, -1, axis)

    def cut(self, first: int, count: int) -> Axis:
        """`count` of the values."""
        part = slice(first, first + count)
        return replace(self, pixels=self.pixels[part], weights=self.weights[part])


class Resampling(NamedTuple):
    """How an image becomes a part of a network's input, from (left, top) on: first along x, then along y."""

    columns: Axis
    rows: Axis
    left: int
    top: int
    frame: Frame

    def of(self, image: np.ndarray, border: int) -> np.ndarray:
        """An image, height x width x channels, in the network's input with a border; uint8."""
        canvas = np.full((*self.frame.network, image.shape[2]), border, np.uint8)
        seen = self.rows.of(self.columns.of(image, 1), 0)
        canvas[self.top : self.top + seen.shape[0], self.left : self.left + seen.shape[1]] = seen
        return canvas


def resampling(image: tuple[int, int], size: tuple[int, int], fit: Fit) -> Resampling:
    """How an image of a height and width is brought to `size`; see `vision.preprocess.place` about `fit`."""
    if fit == "contain":
        raise UnsupportedError(
            f"no code is generated that fits images by {fit!r}",
            why="it is generated for stretch, fill, pad, letterbox and cover",
            hints=["build the package without --camera"],
        )
    frame = framed(image, size, fit)
    rows, columns = (
        _of_itself(before) if frame.inner == image else axis
        for before, axis in zip(image, _axes(image, frame.inner, fit), strict=True)
    )
    left, top = map(int, frame.offset)
    columns = columns.cut(max(-left, 0), size[1])
    rows = rows.cut(max(-top, 0), size[0])
    return Resampling(columns, rows, max(left, 0), max(top, 0), frame)


def _axes(image: tuple[int, int], inner: tuple[int, int], fit: Fit) -> tuple[Axis, Axis]:
    (height, width), (rows, columns) = image, inner
    if fit == "stretch":
        return (
            _between(height, rows, _tengine, shift=_LINEAR_BITS),
            _between(width, columns, _tengine, each=_LINEAR_BITS),
        )
    if fit == "cover":
        return _triangles(height, rows), _triangles(width, columns)
    halved = image == (2 * rows, 2 * columns)
    if fit == "pad" or halved:  # OpenCV's bilinear interpolation to half the size is also the mean of four
        # Between the axes a level has 8 bits of a fraction.
        return _areas(height, rows, shift=_AREA_BITS + 8, up=halved), _areas(width, columns, _AREA_BITS - 8, up=True)
    return _between(height, rows, _opencv, each=16, bias=2, shift=2), _between(width, columns, _opencv, shift=4)


def _of_itself(count: int) -> Axis:
    return Axis(np.arange(count, dtype=np.int32)[:, None], np.ones((count, 1), np.int32))


def _between(before: int, after: int, places: Places, each: int = 0, bias: int = 0, shift: int = 0) -> Axis:
    """Values between a pixel and the next one."""
    first, weights = places(before, after)
    pixels = np.clip(np.stack([first, first + 1], axis=1), 0, before - 1)
    return Axis(pixels.astype(np.int32), weights, each, bias, shift)


def _tengine(before: int, after: int) -> tuple[np.ndarray, np.ndarray]:
    """As `resize` describes it: weights are rounded down."""
    place = (np.arange(after, dtype=np.float32) + np.float32(0.5)) * (np.float32(before) / np.float32(after))
    fraction, first = np.modf(np.clip(place - np.float32(0.5), 0, before - 1))
    weights = np.stack([1 - fraction, fraction], axis=1) * np.float32(1 << _LINEAR_BITS)
    return first.astype(np.int32), weights.astype(np.int32)


def _opencv(before: int, after: int) -> tuple[np.ndarray, np.ndarray]:
    """As OpenCV's INTER_LINEAR: places in float32, weights rounded."""
    place = ((np.arange(after) + 0.5) * (before / after) - 0.5).astype(np.float32)
    first = np.floor(place)
    weights = np.stack([1 - (place - first), place - first], axis=1) * np.float32(1 << _LINEAR_BITS)
    return first.astype(np.int32), np.rint(weights).astype(np.int32)


def _areas(before: int, after: int, shift: int, *, up: bool) -> Axis:
    """Means of pixels, each weighted by the part of it that is inside; halves are rounded up, or to even."""
    step = before / after
    begin, pixel = np.arange(after)[:, None] * step, np.arange(before)
    weights = np.clip(np.minimum(begin + step, pixel + 1) - np.maximum(begin, pixel), 0, 1)
    weights[weights < 1e-3] = 0  # rounding errors of the next pixel; OpenCV drops the same
    return _weighted(weights, _AREA_BITS, shift, even=not up)


def _triangles(before: int, after: int) -> Axis:
    """Pillow's bilinear filter."""
    if before == after:
        return _of_itself(before)
    return _weighted(triangle_weights(before, after), _PILLOW_BITS, _PILLOW_BITS, even=True)


def triangle_weights(before: int, after: int) -> np.ndarray:
    """Weights of Pillow's bilinear filter, after x before: a triangle as wide as the larger of both pixels."""
    step = before / after
    centres, reach = (np.arange(after) + 0.5) * step, max(step, 1.0)
    return np.maximum(1 - np.abs(np.arange(before) + 0.5 - centres[:, None]) / reach, 0)


def _weighted(weights: np.ndarray, bits: int, shift: int, *, even: bool) -> Axis:
    """Sums of neighbouring pixels with weights, values x pixels, in fixed point; the weights of each value sum to 1."""
    whole = np.rint(weights / weights.sum(axis=1, keepdims=True) * (1 << bits)).astype(np.int32)
    whole[np.arange(len(whole)), whole.argmax(axis=1)] += (1 << bits) - whole.sum(axis=1, dtype=np.int32)
    first = (whole > 0).argmax(axis=1)
    last = whole.shape[1] - 1 - (whole[:, ::-1] > 0).argmax(axis=1)
    pixels = first[:, None] + np.arange((last - first).max() + 1)
    within = np.minimum(pixels, whole.shape[1] - 1)
    taken = np.where(pixels == within, np.take_along_axis(whole, within, axis=1), 0)
    half = 1 << shift - 1
    return Axis(within.astype(np.int32), taken.astype(np.int32), 0, half - even, shift, even)


def resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Stretch an image (uint8, height x width x channels) like Tengine's examples: bilinear, in 11-bit fixed point.

    Along each axis, with s = source / target in float32, output i is at p = (i + 0.5) s - 0.5 of the source; the
    pixels k = floor(p) and k + 1 get the weights trunc(2048 (1 - (p - k))) and trunc(2048 (p - k)). Each product is
    shifted right by 11 bits: first along x, one product at a time, then the sum of both rows along y. Rounding down
    at each step makes an image darker by about one level in 255, which published results depend on
    (`tengine_resize_f32` in Tengine's examples/common). Positions outside the source are clamped to its border;
    Tengine extrapolates there, which matters only for images that grow.
    """
    if image.shape[:2] == (height, width):
        return image
    rows, columns = _axes(image.shape[:2], (height, width), "stretch")
    # Only the rows that are read: few for a large image.
    both = [columns.of(image[rows.pixels[:, k]], 1) * rows.weights[:, k, None, None] for k in (0, 1)]
    return (both[0] + both[1] >> _LINEAR_BITS).astype(np.uint8)


# Conversions to B G R and back.
_COLOURS = {
    "yuv420": (cv2.COLOR_YUV2BGR_I420, cv2.COLOR_BGR2YUV_I420),
    "nv12": (cv2.COLOR_YUV2BGR_NV12, cv2.COLOR_BGR2YUV_I420),
    "yuyv": (cv2.COLOR_YUV2BGR_YUY2, cv2.COLOR_BGR2YUV_YUY2),
    "rgb": (cv2.COLOR_RGB2BGR, cv2.COLOR_BGR2RGB),
    "gray": (cv2.COLOR_GRAY2BGR, cv2.COLOR_BGR2GRAY),
}


def image_of(frame: np.ndarray, camera: Camera) -> np.ndarray:
    """A camera's frame as an image: uint8, height x width x 3, B G R."""
    return frame if camera.pixels == "bgr" else cv2.cvtColor(frame, _COLOURS[camera.pixels][0])


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
    frame = cv2.cvtColor(image, _COLOURS[camera.pixels][1])
    if camera.pixels == "nv12":  # U and V side by side instead of one after the other
        frame[camera.height :] = frame[camera.height :].reshape(2, -1).T.reshape(-1, camera.width)
    return frame


def normalised(levels: np.ndarray, mean: np.ndarray, scale: np.ndarray, dtype: str, steps: Steps | None) -> np.ndarray:
    """`(level - mean) * scale`, computed in float32, as `dtype`: integers are rounded and clamped to its range."""
    values = (levels.astype(np.float32) - mean) * scale
    if steps is not None:
        values = steps.integers(values, dtype)
    elif np.issubdtype(np.dtype(dtype), np.integer):
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return values.astype(dtype)


class Preparation(Record):
    """How a frame becomes a network's input, with the levels of `vision.preprocess`; see also `ModelInput`."""

    camera: Camera
    fit: Fit
    size: tuple[int, int]  # height and width of the input
    layout: Literal["NCHW", "NHWC"]
    colour: Literal["RGB", "BGR", "GRAY"]
    mean: list[float]
    scale: list[float]
    dtype: str
    steps: Steps | None = None  # of a quantised input

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
        return normalised(np.arange(256), mean, scale, self.dtype, self.steps)

    def tensor(self, frame: np.ndarray) -> np.ndarray:
        """The network's input for a frame, by OpenCV's conversions and numpy."""
        levels = self.resampling.of(image_of(frame, self.camera), self.border)
        if self.colour == "RGB":
            levels = levels[..., ::-1]
        elif self.colour == "GRAY":
            levels = cv2.cvtColor(levels, cv2.COLOR_BGR2GRAY)[..., None]
        values = np.stack([self.values[channel][levels[..., channel]] for channel in range(self.channels)])
        return np.ascontiguousarray(values if self.layout == "NCHW" else np.moveaxis(values, 0, -1))[None]
