"""Outputs of detectors for an input of 96 x 160 pixels, made of random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

NETWORK = (96, 160)


def random(*shape: int, seed: int = 0, mean: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, 1, shape).astype(np.float32)


def probabilities(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape, np.float32)


ANCHORS = [(10.0, 13.0), (33.0, 23.0), (30.0, 61.0)]
YOLO = {"large": random(1, 24, 3, 5), "small": random(1, 24, 6, 10, seed=1)}

# Two levels, the second with two shapes and a stride that the input is no multiple of.
PRIORS = [(16, [(30.0, 30.0)]), (64, [(60.0, 60.0), (84.0, 42.0)])]
_BOXES = 6 * 10 + 2 * (2 * 3)
SSD = {"boxes": random(1, _BOXES, 4), "scores": probabilities(1, _BOXES, 4), "points": random(1, _BOXES, 10, seed=2)}
SSD_FIELDS: dict[str, Any] = {
    "kind": "ssd", "scores": "scores", "boxes": "boxes",
    "levels": [{"stride": stride, "sizes": sizes} for stride, sizes in PRIORS],
}  # fmt: skip

YUNET = {
    f"{what}_{stride}": random(1, NETWORK[0] // stride * (NETWORK[1] // stride), values, seed=seed, mean=mean)
    for stride in (8, 16, 32)
    for seed, (what, values, mean) in enumerate((("cls", 1, 0.7), ("obj", 1, 0.7), ("bbox", 4, 0), ("kps", 10, 0)))
}

# Stride, rows and columns of each level.
GRIDS = [(8, 12, 20), (16, 6, 10), (32, 3, 5)]
CELLS = sum(rows * columns for _, rows, columns in GRIDS)
YOLOX = np.concatenate([random(1, CELLS, 4), probabilities(1, CELLS, 1 + 6)], axis=2)
SIDES = probabilities(1, CELLS, 6), random(1, CELLS, 32) * 3  # NanoDet's scores and distances


def nanodet_levels() -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """Scores and distances by level: the decoder's fields that name them, and the outputs."""
    outputs = {}
    for letter, rows in zip("cd", SIDES, strict=True):
        for (stride, *_), level in zip(GRIDS, np.split(rows, [240, 300], axis=1), strict=True):
            outputs[f"{letter}{stride}"] = level
    return {"scores": ["c8", "c16", "c32"], "distances": ["d8", "d16", "d32"]}, outputs


_SIZES = [(12, 20), (6, 10), (3, 5), (2, 3), (1, 2)]
_ENDS = 9 * np.cumsum([rows * columns for rows, columns in _SIZES])
EFFICIENTDET = {"s": random(1, _ENDS[-1], 5, mean=-3), "b": random(1, _ENDS[-1], 4, seed=1) * 0.5}


def efficientdet_levels(layout: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The same as images by level: the decoder's fields that name them, and the outputs."""
    outputs = {}
    for what, rows in EFFICIENTDET.items():
        for number, (size, part) in enumerate(zip(_SIZES, np.split(rows, _ENDS[:-1], axis=1), strict=True)):
            level = part.reshape(1, *size, -1)
            outputs[f"{what}{number}"] = level if layout == "NHWC" else level.transpose(0, 3, 1, 2)
    named = {what: [f"{what[0]}{number}" for number in range(5)] for what in ("scores", "boxes")}
    return {**named, "layout": layout}, outputs
