"""Outputs as networks of Ultralytics have them, made by hand: things with several boxes each, and noise."""

from types import SimpleNamespace

import numpy as np

from edgedeploy.model.metadata import kept
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.vision.decoder import Fitted
from edgedeploy.vision.decoders.ultralytics import Ultralytics

CELLS = 21  # for each 32 x 32 pixels of the input, at strides 8, 16 and 32


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
    count = CELLS * network[0] * network[1] // 32**2
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
