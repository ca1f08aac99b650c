"""Semantic segmentation: for each pixel of an image the class that it shows."""

from __future__ import annotations

from typing import Annotated, Literal

import cv2
import numpy as np
from pydantic import Field

from edgedeploy.tensors import shown
from edgedeploy.vision.decoder import Decoder, Outputs, not_of_this_kind, output
from edgedeploy.vision.maps import on_image
from edgedeploy.vision.preprocess import Frame
from edgedeploy.vision.results import Detection, Mask, label_of


class Segmentation(Decoder):
    """The class with the highest score for each pixel.

    The output has a score of each class for each cell of a grid over the input, 1 x classes x rows x columns: they are
    brought to the image's size, linearly, before the best is taken, so that borders between classes are smooth. A
    network of one class has the pixels above `threshold`. An output of whole numbers, 1 x rows x columns or
    1 x 1 x rows x columns, has the classes themselves.

    Attributes:
        output: the output's name; the first one unless given.
        layout: of outputs with scores: `NCHW`, or `NHWC` for 1 x rows x columns x classes.
        background: the class that is not reported.
        threshold: the score of networks of one class: 0 is that of logits, 0.5 that of probabilities.
    """

    kind: Literal["segmentation"]
    output: str | None = None
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    background: Annotated[int, Field(ge=0)] | None = None
    threshold: float = 0.0

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """The classes with their pixels, that with the most pixels first."""
        classes = self.class_map(outputs, frame)
        numbers, areas = np.unique(classes[classes >= 0], return_counts=True)
        return [
            Detection(
                label=label_of(labels, number),
                class_id=number,
                mask=Mask.of(classes == number, (0, 0), frame.image),
            )
            for number in numbers[np.argsort(-areas, kind="stable")].tolist()
            if number != self.background
        ]

    def class_map(self, outputs: Outputs, frame: Frame) -> np.ndarray:
        """The class of each pixel of the image, -1 for none: int32, height x width."""
        name = self.output or next(iter(outputs))
        given = output(outputs, name)
        if np.issubdtype(given.dtype, np.integer) and given.size == np.prod(given.shape[-2:]) and given.ndim > 2:
            # OpenCV has no integers of 32 bits that it resizes; float32 holds the numbers of classes exactly.
            return on_image(given.reshape(given.shape[-2:]).astype(np.float32), frame, nearest=True).astype(np.int32)
        if given.ndim != 4 or len(given) != 1 or not given.size:
            raise not_of_this_kind(f"its output {name!r} is {shown(given.shape)}, not 1xCxHxW")
        scores = given[0].transpose(2, 0, 1) if self.layout == "NHWC" else given[0]
        best = np.full(frame.image, -np.inf if len(scores) > 1 else self.threshold, np.float32)
        classes = np.full(frame.image, -1, np.int32)
        # One class at a time: all of them would be gigabytes for large images.
        for number, values in enumerate(scores):
            here = on_image(np.ascontiguousarray(values, np.float32), frame)
            better = here > best
            cv2.copyTo(here, better.view(np.uint8), best)
            classes[better] = number
        return classes
