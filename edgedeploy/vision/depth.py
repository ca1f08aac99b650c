"""Depth: one number for each pixel of an image."""

from __future__ import annotations

from typing import Literal

import numpy as np

from edgedeploy.tensors import shown
from edgedeploy.vision.decoder import Decoder, Outputs, not_of_this_kind, output
from edgedeploy.vision.maps import on_image
from edgedeploy.vision.preprocess import Frame
from edgedeploy.vision.results import Detection, Surface, label_of


class Depth(Decoder):
    """A map of one channel, 1 x 1 x rows x columns or 1 x rows x columns, brought to the image's size linearly.

    What its numbers mean, metres or their inverse, is the network's own.

    Attributes:
        output: the output's name; the first one unless given.
    """

    kind: Literal["depth"]
    output: str | None = None

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """One result, the map; none if no number of it is finite."""
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
