"""Decoders of maps, one value for each cell of a grid over the input: segmentation and depth."""

from __future__ import annotations

from typing import Annotated, Literal

import cv2
import numpy as np
from pydantic import Field

from edgedeploy.model.tensors import shown
from edgedeploy.vision.decoder import Decoder, Outputs, not_of_this_kind, output
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection, Mask, Surface, label_of


def on_image(values: np.ndarray, frame: Frame, *, nearest: bool = False) -> np.ndarray:
    """A map over a network's input as one over the image's pixels, in the same dtype, without the image's border.

    If the image's edges do not fall between the map's cells, the map is enlarged first, as little as possible and at
    most to the network's input, as Ultralytics does it with masks.

    Args:
        values: float32 or uint8, rows x columns of any size, which together cover the network's input.
        frame: how the image lies in it; the whole image must be inside.
        nearest: whether a pixel gets the nearest value instead of an interpolated one: for numbers of classes.
    """
    if not values.size:
        raise not_of_this_kind("it gives a map without cells")
    how = cv2.INTER_NEAREST if nearest else cv2.INTER_LINEAR
    values, (top, left), (bottom, right) = _with_whole_borders(values, frame, how)
    height, width = frame.image
    inside = np.ascontiguousarray(values[top:bottom, left:right])
    return inside if inside.shape == (height, width) else cv2.resize(inside, (width, height), interpolation=how)


def _with_whole_borders(values: np.ndarray, frame: Frame, how: int) -> tuple[np.ndarray, list[int], list[int]]:
    """The map, perhaps enlarged, and the first and the last row and column of the image in it."""
    network = np.array(frame.network)
    start = np.array(frame.offset[::-1])
    borders = np.stack([start, start + np.array(frame.image) * frame.scale[::-1]], axis=1)  # rows, columns
    for factor in (1, 2, 4):
        size = factor * np.array(values.shape)
        exact = borders * (size / network)[:, None]
        whole = np.rint(exact).astype(int)
        if np.abs(exact - whole).max() < 1e-3 or (size >= network).all():
            break
    else:
        size, whole = network, np.rint(borders).astype(int)
    first = np.clip(whole[:, 0], 0, size - 1)
    last = np.clip(whole[:, 1], first + 1, size)
    if tuple(size) != values.shape:
        values = cv2.resize(values, (int(size[1]), int(size[0])), interpolation=how)
    return values, first.tolist(), last.tolist()


class Segmentation(Decoder):
    """The class with the highest score for each pixel.

    The output has a score of each class for each cell of a grid over the input, 1 x classes x rows x columns: scores
    are interpolated linearly to the image's size before the best is taken, so that borders between classes are smooth.
    In a network of one class, pixels above `threshold` belong to it. An output of integers, 1 x rows x columns or
    1 x 1 x rows x columns, holds the classes themselves.
    """

    kind: Literal["segmentation"]
    output: str | None = None
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    background: Annotated[int, Field(ge=0)] | None = None
    threshold: float = 0.0

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """The classes with their pixels, the largest first."""
        classes = self.class_map(outputs, frame)
        numbers, areas = np.unique(classes[classes >= 0], return_counts=True)
        return [
            Detection(
                label=label_of(labels, number), class_id=number, mask=Mask.of(classes == number, (0, 0), frame.image)
            )
            for number in numbers[np.argsort(-areas, kind="stable")].tolist()
            if number != self.background
        ]

    def class_map(self, outputs: Outputs, frame: Frame) -> np.ndarray:
        """The class of each pixel of the image, -1 for none: int32, height x width."""
        name = self.output or next(iter(outputs))
        found = output(outputs, name)
        if np.issubdtype(found.dtype, np.integer) and found.size == np.prod(found.shape[-2:]) and found.ndim > 2:
            # OpenCV does not resize 32-bit integers; float32 holds the numbers of classes exactly.
            return on_image(found.reshape(found.shape[-2:]).astype(np.float32), frame, nearest=True).astype(np.int32)
        if found.ndim != 4 or len(found) != 1 or not found.size:
            raise not_of_this_kind(f"its output {name!r} is {shown(found.shape)}, not 1xCxHxW")
        scores = found[0].transpose(2, 0, 1) if self.layout == "NHWC" else found[0]
        best = np.full(frame.image, -np.inf if len(scores) > 1 else self.threshold, np.float32)
        classes = np.full(frame.image, -1, np.int32)
        # One class at a time: all of them would be gigabytes for large images.
        for number, values in enumerate(scores):
            here = on_image(np.ascontiguousarray(values, np.float32), frame)
            better = here > best
            cv2.copyTo(here, better.view(np.uint8), best)
            classes[better] = number
        return classes


class Depth(Decoder):
    """A map of one channel, 1 x 1 x rows x columns or 1 x rows x columns, interpolated linearly to the image's size.

    Its unit, metres or their inverse, is the network's own. The output is the first one by default.
    """

    kind: Literal["depth"]
    output: str | None = None

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """One result, the map; none if it has no finite value."""
        name = self.output or next(iter(outputs))
        found = output(outputs, name)
        if found.ndim not in (3, 4) or found.size != np.prod(found.shape[-2:]):
            raise not_of_this_kind(f"its output {name!r} is {shown(found.shape)}, not 1x1xHxW or 1xHxW")
        values = on_image(found.reshape(found.shape[-2:]).astype(np.float32), frame)
        finite = values[np.isfinite(values)]
        if not finite.size:
            return []
        minimum, median, maximum = (float(each) for each in np.quantile(finite, (0, 0.5, 1)))
        surface = Surface(minimum=minimum, median=median, maximum=maximum, values=values)
        return [Detection(label=label_of(labels or ["depth"], 0), class_id=0, surface=surface)]
