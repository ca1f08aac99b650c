"""MediaPipe's custom operators of TensorFlow Lite in numpy, as LiteRT does not have them.

Sources of formulas and options: `mediapipe/util/tflite/operations` in MediaPipe 0.10, and
`delegates/gpu/common/mediapipe` in LiteRT. Images are NHWC, of a batch of one; all is float32.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.importing import halves, same_padding

# Of a pooling window, whose places are compared one after another, and of a crop.
_MOST_PLACES, _MOST_PIXELS = 64, 1 << 22


@dataclass(frozen=True)
class Windows:
    """Options of operators with windows: `TfLiteTransposeConvParams` and `TfLitePoolParams` of `builtin_op_data.h`."""

    same: bool
    strides: tuple[int, int]  # of height and width
    sizes: tuple[int, int] = (0, 0)  # height and width

    @classmethod
    def parsed(cls, options: bytes) -> Windows:
        """Options in a file: a C structure of little-endian integers."""
        count = min(len(options) // 4, 6)
        values = struct.unpack(f"<{count}i", options[: 4 * count])
        if len(values) < 3 or min(values[1:3]) < 1 or values[0] not in (1, 2):
            raise ModelError("its options are malformed")
        sizes = (values[4], values[3]) if len(values) > 5 else (0, 0)
        if len(values) > 5 and values[5]:
            raise ModelError("an activation of its windows is not supported")
        return cls(values[0] == 1, (values[2], values[1]), sizes)

    @classmethod
    def of_pool(cls, options: bytes) -> Windows:
        """Options of pooling and of its inverse."""
        windows = cls.parsed(options)
        if min(windows.sizes) < 1 or math.prod(windows.sizes) > _MOST_PLACES:
            raise ModelError(f"windows of {windows.sizes} pixels are not supported")
        return windows


@dataclass(frozen=True)
class Crop:
    """Options of `Landmarks2TransformMatrix`."""

    subset: tuple[int, ...]  # the landmarks that the crop surrounds
    left: int
    right: int
    angle: float  # in radians, which the direction from the landmark `left` to `right` becomes
    scales: tuple[float, float]  # factors of width and height of the box around the landmarks
    output: tuple[int, int]  # width and height of the crop

    @classmethod
    def parsed(cls, options: bytes) -> Crop:
        """Options in a file, a FlexBuffer."""
        height, width = sampled_size(options)
        with _reading(options) as found:
            return cls(
                tuple(int(index) for index in found["subset_idxs"]),
                int(found["left_rotation_idx"]),
                int(found["right_rotation_idx"]),
                float(found["target_rotation_radians"]),
                (float(found["scale_x"]), float(found["scale_y"])),
                (width, height),
            )


def sampled_size(options: bytes) -> tuple[int, int]:
    """Height and width of a crop, `TransformTensorBilinear`'s result."""
    with _reading(options) as found:
        height, width = int(found["output_height"]), int(found["output_width"])
    if min(height, width) < 1 or height * width > _MOST_PIXELS:
        raise ModelError(f"a crop of {width} x {height} pixels is not supported")
    return height, width


def transposed_shape(
    sizes: Sequence[int], kernels: Sequence[int], windows: Windows
) -> tuple[tuple[int, int], tuple[int, int]]:
    """The rows and columns that `Convolution2DTransposeBias` cuts off at the start, and its output's size."""
    rows = list(zip(sizes, kernels, windows.strides, strict=True))
    # By the input's size, unlike TensorFlow's SAME.
    cuts = [max(kernel - (size - 1) % stride - 1, 0) if windows.same else 0 for size, kernel, stride in rows]
    wanted = [(size - 1) * stride + kernel - cut for (size, kernel, stride), cut in zip(rows, cuts, strict=True)]
    return (cuts[0] // 2, cuts[1] // 2), (wanted[0], wanted[1])


def pooled_shape(sizes: Sequence[int], windows: Windows) -> tuple[list[int], list[int], list[int]]:
    """Padding before and after, and height and width of the result of pooling."""
    pairs = list(zip(sizes, windows.sizes, windows.strides, strict=True))
    if not windows.same:
        return [0, 0], [0, 0], [(size - window) // stride + 1 for size, window, stride in pairs]
    before, after = halves(same_padding(sizes, windows.sizes, windows.strides))
    return before, after, [-(-size // stride) for size, _, stride in pairs]


@contextmanager
def _reading(options: bytes) -> Iterator[Any]:
    """Options in a file, a FlexBuffer."""
    from flatbuffers import flexbuffers

    try:
        yield flexbuffers.Loads(options)
    except Exception as error:  # of many kinds, for bytes that are not a FlexBuffer
        raise ModelError("its options are malformed") from error


def _transposed(options: bytes, data: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> list[np.ndarray]:
    windows = Windows.parsed(options)
    kernels, sizes = weights.shape[1:3], data.shape[1:3]
    (top, left), (height, width) = transposed_shape(sizes, kernels, windows)
    whole = [(size - 1) * stride + kernel for size, stride, kernel in zip(sizes, windows.strides, kernels, strict=True)]
    made = np.zeros((len(data), *whole, len(weights)), np.float32)
    rows, columns = windows.strides
    for row, column in np.ndindex(*kernels):
        part = made[:, row::rows, column::columns][:, : sizes[0], : sizes[1]]
        part += data @ weights[:, row, column].T
    return [made[:, top : top + height, left : left + width] + bias]


def _pooled(options: bytes, data: np.ndarray) -> list[np.ndarray]:
    windows = Windows.parsed(options)
    before, after, _ = pooled_shape(data.shape[1:3], windows)
    edges = ((0, 0), *zip(before, after, strict=True), (0, 0))
    padded = np.pad(data, edges, constant_values=np.finfo(np.float32).min)
    views = np.lib.stride_tricks.sliding_window_view(padded, windows.sizes, (1, 2))
    views = views[:, :: windows.strides[0], :: windows.strides[1]]
    flat = views.reshape(*views.shape[:4], -1)
    return [flat.max(-1), flat.argmax(-1).astype(np.float32) + np.float32(0.1)]


def _unpooled(options: bytes, data: np.ndarray, places: np.ndarray) -> list[np.ndarray]:
    height, width = Windows.parsed(options).sizes
    batch, rows, columns, channels = data.shape
    made = np.zeros((*data.shape, height * width), np.float32)
    np.put_along_axis(made, places[..., None].astype(int), data[..., None], -1)
    made = made.reshape(*data.shape, height, width).transpose(0, 1, 4, 2, 5, 3)
    return [made.reshape(batch, rows * height, columns * width, channels)]


def _matrix(options: bytes, landmarks: np.ndarray) -> list[np.ndarray]:
    crop, points = Crop.parsed(options), landmarks.reshape(-1, 3)[:, :2].astype(np.float64)
    along = points[crop.right] - points[crop.left]
    turn = crop.angle - math.atan2(along[1], along[0])

    def rotation(angle: float) -> np.ndarray:
        return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])

    turned = points[list(crop.subset)] @ rotation(turn).T
    low, high = turned.min(0), turned.max(0)
    linear = rotation(-turn) * (np.array(crop.scales) * (high - low) / crop.output)
    matrix = np.eye(4)
    matrix[:2, :2] = linear
    matrix[:2, 3] = rotation(-turn) @ ((low + high) / 2) - linear @ (np.array(crop.output) / 2)
    return [matrix[None].astype(np.float32)]


def _sampled(options: bytes, data: np.ndarray, matrix: np.ndarray) -> list[np.ndarray]:
    height, width = sampled_size(options)
    rows, columns = np.mgrid[:height, :width]
    linear, shift = matrix[0, :2, :2], matrix[0, :2, 3]
    # From the centres of the result's pixels to places between those of the image's.
    to_image = np.concatenate([linear, (shift + linear.sum(1) / 2 - 0.5)[:, None]], 1)
    x, y = np.einsum("ij,jhw->ihw", to_image, np.stack([columns, rows, np.ones_like(rows)]))
    bottom, right = data.shape[1] - 1, data.shape[2] - 1
    inside = (x >= 0) & (x <= right) & (y >= 0) & (y <= bottom)
    x, y = np.where(inside, x, 0), np.where(inside, y, 0)
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    made = np.zeros((height, width, data.shape[3]))
    for down, across in np.ndindex(2, 2):
        share = np.abs(1 - down - (y - top)) * np.abs(1 - across - (x - left))
        made += share[..., None] * data[0, np.minimum(top + down, bottom), np.minimum(left + across, right)]
    return [np.where(inside[..., None], made, 0)[None].astype(np.float32)]


def _moved(options: bytes, landmarks: np.ndarray, matrix: np.ndarray) -> list[np.ndarray]:
    made = landmarks.copy()
    made[..., :2] = landmarks[..., :2] @ matrix[0, :2, :2].T + matrix[0, :2, 3]
    return [made]


class CustomOperator(NamedTuple):
    """The version of a custom operator, and a function of its options and arrays that returns its outputs."""

    version: int
    compute: Callable[..., list[np.ndarray]]


OPERATORS: dict[str, CustomOperator] = {
    "Convolution2DTransposeBias": CustomOperator(1, _transposed),
    "Landmarks2TransformMatrix": CustomOperator(2, _matrix),
    "MaxPoolingWithArgmax2D": CustomOperator(1, _pooled),
    "MaxUnpooling2D": CustomOperator(1, _unpooled),
    "TransformLandmarks": CustomOperator(2, _moved),
    "TransformTensorBilinear": CustomOperator(2, _sampled),
}


def options_of(custom: Any) -> bytes:
    """The options of a custom operator, from either of LiteRT's APIs."""
    return b"" if custom is None or isinstance(custom, int) else bytes(bytearray(custom))
