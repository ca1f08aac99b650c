"""Convolutions by their definition."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def convolved(
    data: np.ndarray,
    weights: np.ndarray,
    *,
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
) -> np.ndarray:
    """Of NCHW and OIHW, with pads at the top, left, bottom and right; the groups follow from the weights' shape."""
    top, left, bottom, right = pads
    padded = np.pad(data, [(0, 0), (0, 0), (top, bottom), (left, right)])
    reach = [(size - 1) * apart + 1 for size, apart in zip(weights.shape[2:], dilation, strict=True)]
    windows = sliding_window_view(padded, reach, (2, 3))[..., :: dilation[0], :: dilation[1]]
    windows, groups = windows[:, :, :: stride[0], :: stride[1]], data.shape[1] // weights.shape[1]
    parts = zip(np.split(windows, groups, axis=1), np.split(weights, groups), strict=True)
    return np.concatenate([np.einsum("nchwij,ocij->nohw", *part) for part in parts], axis=1)
