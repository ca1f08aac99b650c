"""What layers of networks compute, in numpy and double precision, one value after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np


def convolution(
    data: np.ndarray,
    weights: np.ndarray,
    *,
    stride: tuple[int, int] = (1, 1),
    gap: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    groups: int = 1,
    value: float = 0.0,
) -> np.ndarray:
    """Channels x height x width with outputs x inputs of a group x height x width; pads are t, l, b, r."""
    top, left, bottom, right = pads
    data = np.pad(data, [(0, 0), (top, bottom), (left, right)], constant_values=value).astype(float)
    outputs, inputs, height, width = weights.shape
    rows = (data.shape[1] - gap[0] * (height - 1) - 1) // stride[0] + 1
    columns = (data.shape[2] - gap[1] * (width - 1) - 1) // stride[1] + 1
    result = np.zeros((outputs, rows, columns))
    for output in range(outputs):
        first = output // (outputs // groups) * inputs
        for row in range(rows):
            for column in range(columns):
                y, x = row * stride[0], column * stride[1]
                part = data[first : first + inputs, y:, x:][:, :: gap[0], :: gap[1]][:, :height, :width]
                result[output, row, column] = (part * weights[output]).sum()
    return result


def transposed_convolution(
    data: np.ndarray, weights: np.ndarray, *, stride: int, gap: int = 1, groups: int = 1, more: int = 0
) -> np.ndarray:
    """Each value of the input spreads the kernel; nothing is cut off."""
    outputs, inputs, height, width = weights.shape
    extent = [gap * (size - 1) + 1 for size in (height, width)]
    sizes = [(size - 1) * stride + inner + more for size, inner in zip(data.shape[1:], extent, strict=True)]
    result = np.zeros((outputs, *sizes))
    for output in range(outputs):
        first = output // (outputs // groups) * inputs
        for channel in range(inputs):
            for y, x in np.ndindex(*data.shape[1:]):
                for i, j in np.ndindex(height, width):
                    spread = data[first + channel, y, x] * weights[output, channel, i, j]
                    result[output, y * stride + i * gap, x * stride + j * gap] += spread
    return result


def pooling(
    data: np.ndarray,
    kind: Callable[..., np.ndarray],
    kernel: int,
    stride: int,
    pads: Sequence[int] = (0, 0, 0, 0),
    outside: float = math.nan,
) -> np.ndarray:
    """Windows of a padded picture; what is outside does not count if it is NaN."""
    top, left, bottom, right = pads
    data = np.pad(data.astype(float), [(0, 0), (top, bottom), (left, right)], constant_values=outside)
    rows, columns = ((size - kernel) // stride + 1 for size in data.shape[1:])
    windows = [
        [kind(data[:, y : y + kernel, x : x + kernel], axis=(1, 2)) for x in range(0, columns * stride, stride)]
        for y in range(0, rows * stride, stride)
    ]
    return np.moveaxis(np.array(windows), -1, 0)


def linear(data: np.ndarray, height: int, width: int, *, corners: bool = False) -> np.ndarray:
    """Bilinear resizing, with pixels' centres or the corners' where they were."""

    def places(old: int, new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        at = np.arange(new) * (old - 1) / (new - 1) if corners else (np.arange(new) + 0.5) * old / new - 0.5
        at = np.clip(at, 0, old - 1)
        low = np.minimum(np.floor(at).astype(int), old - 2)
        return low, low + 1, at - low

    low, high, part = places(data.shape[1], height)
    rows = data[:, low] * (1 - part)[:, None] + data[:, high] * part[:, None]
    low, high, part = places(data.shape[2], width)
    return rows[:, :, low] * (1 - part) + rows[:, :, high] * part


def softmax(data: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(data - data.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def sigmoid(data: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-data))
