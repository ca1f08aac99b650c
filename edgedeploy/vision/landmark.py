"""Landmarks of one face that fills the image."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgedeploy.tensors import shown
from edgedeploy.vision.decoder import Decoder, Outputs, not_of_this_kind
from edgedeploy.vision.preprocess import Frame
from edgedeploy.vision.results import Detection, label_of


class Landmark(Decoder):
    """Points that a network gives as x0, y0, x1, y1, ... in fractions (0 to 1) of its input's width and height.

    Attributes:
        points: how many points; they are read from the output with twice as many values.
    """

    kind: Literal["landmark"]
    points: Annotated[int, Field(gt=0)]

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """One face with its points; the network gives neither score nor box."""
        output = next((array for array in outputs.values() if array.size == 2 * self.points), None)
        if output is None:
            shapes = ", ".join(f"{name} {shown(array.shape)}" for name, array in outputs.items())
            raise not_of_this_kind(f"none of its outputs holds {2 * self.points} values: {shapes}")
        height, width = frame.network
        fractions = output.reshape(self.points, 2).astype(np.float32)
        points = frame.to_image(fractions * np.array([width, height], np.float32))
        found = tuple((float(x), float(y)) for x, y in points)
        return [Detection(label=label_of(labels or ["face"], 0), class_id=0, points=found)]
