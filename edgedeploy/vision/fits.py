"""Ways of bringing an image to a network which say themselves what size the network is built for."""

from __future__ import annotations

from math import ceil
from typing import Annotated, Literal

import cv2
import numpy as np
from pydantic import Field

from edgedeploy.documents import Record
from edgedeploy.vision.page import Side, scaled_size
from edgedeploy.vision.preprocess import Frame, place


class ScaledFit(Record):
    """The network is built for the size of the image, which is scaled up if it is small.

    Attributes:
        shortest: the shorter side is scaled up to this many pixels, never down.
        multiple: both sides are brought to the nearest multiple of this.
    """

    kind: Literal["scaled"]
    shortest: Side
    multiple: Side

    @property
    def one_size(self) -> bool:
        """Whether the network has the same size for all images."""
        return False

    def size(self, image: tuple[int, int], network: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the network's input for an image of this height and width.

        Raises:
            InputError: the image is too narrow.
        """
        return scaled_size(image, max(1.0, self.shortest / min(image)), self.multiple)

    def place(self, image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Frame]:
        """The image stretched to the network's size."""
        return place(image, size, "fill")


class LineFit(Record):
    """The image is scaled to the network's height with its aspect ratio kept, and ends where the network goes on.

    What is beyond its right edge is 0 in the network's input. A longer line than the widest network takes is squeezed.

    Attributes:
        widths: of the networks that are built; the first one that is wide enough is taken. Without them there is one,
            of the width that the network's entry states.
    """

    kind: Literal["line"]
    widths: Annotated[list[Side], Field(min_length=1)] | None = None

    @property
    def one_size(self) -> bool:
        """Whether the network has the same size for all images."""
        return self.widths is None

    def size(self, image: tuple[int, int], network: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the network's input for an image of this height and width."""
        width = network[0] * (image[1] / image[0])
        widths = sorted(self.widths or [network[1]])
        return network[0], next((each for each in widths if each >= int(width)), widths[-1])

    def place(self, image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Frame]:
        """The image, as wide as it becomes or as the network."""
        height, width = image.shape[:2]
        inner = min(size[1], ceil(size[0] * (width / height)))
        frame = Frame((height, width), size, (inner / width, size[0] / height))
        return cv2.resize(image, (inner, size[0])), frame


SizedFit = Annotated[ScaledFit | LineFit, Field(discriminator="kind")]
