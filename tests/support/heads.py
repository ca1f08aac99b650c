"""Outputs of detectors made of random numbers, for 96 x 160 pixels, and such as networks of Ultralytics have."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from edgedeploy.model.metadata import kept
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.vision.decoder import Fitted
from edgedeploy.vision.decoders.ultralytics import Ultralytics

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


def fitted(decoder: Ultralytics, outputs: dict[str, np.ndarray], **metadata: object) -> Fitted:
    """The decoder of a network with these outputs, whose metadata has these values as Python writes them."""
    specs = [TensorSpec(name=name, shape=list(each.shape), dtype=str(each.dtype)) for name, each in outputs.items()]
    said = kept((key, str(value)) for key, value in metadata.items())
    return decoder.fitted(SimpleNamespace(metadata=said, results=specs, heads=()))


def places(
    network: tuple[int, int], classes: int, seed: int, *, crafted: bool
) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Boxes (n x 4: x, y, width, height) and scores (n x classes) of all cells of a network.

    Crafted ones are twelve things, each seen by up to 20 cells, and low scores everywhere else; others are random.
    """
    generator = np.random.default_rng(seed)
    count = 21 * network[0] * network[1] // 32**2  # for each 32 x 32 pixels 21 cells: at strides 8, 16 and 32
    size = np.array(network[::-1], np.float32)
    boxes = np.concatenate(
        [generator.uniform(0, size, (count, 2)), generator.uniform(0.02, 0.5, (count, 2)) * size], axis=1
    )
    scores = generator.random((count, classes)) ** 4
    if crafted:
        scores *= 0.2
        for _ in range(12):
            centre = np.concatenate([generator.uniform(0, size), generator.uniform(0.1, 0.6, 2) * size])
            seen = generator.choice(count, generator.integers(1, 20), replace=False)
            boxes[seen] = centre + generator.normal(0, 4, (len(seen), 4))
            scores[seen, generator.integers(classes)] = generator.uniform(0.2, 0.99, len(seen))
    boxes[:, 2:] = np.maximum(boxes[:, 2:], 1)
    return boxes.astype(np.float32), scores.astype(np.float32), generator


def channels(*parts: np.ndarray) -> np.ndarray:
    """Values of places as the exporter lays them out: 1 x values x places."""
    return np.ascontiguousarray(np.concatenate(parts, axis=1).T[None])


def chosen(boxes: np.ndarray, scores: np.ndarray, extras: np.ndarray, *, most: int = 300) -> np.ndarray:
    """The places with the best scores, 1 x most x (6 + extras), as heads give them that choose themselves."""
    best = np.argsort(-scores.max(axis=1), kind="stable")[:most]
    ends = np.concatenate([boxes[best, :2] - boxes[best, 2:] / 2, boxes[best, :2] + boxes[best, 2:] / 2], axis=1)
    parts = [ends, scores[best].max(axis=1)[:, None], scores[best].argmax(axis=1)[:, None], extras[best]]
    return np.concatenate(parts, axis=1, dtype=np.float32)[None]
