"""The results of a network for one image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from edgedeploy.vision.draw import draw, draw_enlarged
from edgedeploy.vision.given import image_of
from edgedeploy.vision.image import write_image
from edgedeploy.vision.results import Detection

if TYPE_CHECKING:
    from edgedeploy.vision.given import GivenImage


# The most results in a one-line summary.
_MOST_SHOWN = 5


@dataclass(frozen=True, repr=False)
class Detections(Sequence[Detection]):
    """The results for one image, best first, each a `Detection` with `label`, `score`, `box` and further attributes.

    Attributes:
        image: the image, uint8, height x width x 3, channels B, G, R.
        found: the results, in pixels of the image.
    """

    image: np.ndarray
    found: tuple[Detection, ...]

    @overload
    def __getitem__(self, index: int) -> Detection: ...
    @overload
    def __getitem__(self, index: slice) -> Detections: ...
    def __getitem__(self, index: int | slice) -> Detection | Detections:
        if isinstance(index, slice):
            return Detections(self.image, self.found[index])
        return self.found[index]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Detection]:
        return iter(self.found)

    def __repr__(self) -> str:
        shown = ", ".join(map(_briefly, self.found[:_MOST_SHOWN]))
        more = f", {len(self) - _MOST_SHOWN} more" if len(self) > _MOST_SHOWN else ""
        return f"<edgedeploy.Detections of {len(self)}{': ' * bool(shown)}{shown}{more}>"

    def draw(self, image: GivenImage | None = None) -> np.ndarray:
        """The image with the results drawn in, uint8, height x width x 3, channels B, G, R.

        Args:
            image: another image of the same size to draw on, which is copied first.

        Raises:
            InputError: it is not an image.
        """
        return draw(self.image if image is None else image_of(image), list(self.found))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the image with the results drawn in, in the format of the suffix.

        Images whose longer side has less than 320 pixels are enlarged by a whole number.

        Raises:
            InputError, OutputError: the format is unknown, or the file cannot be written.
        """
        write_image(Path(path), draw_enlarged(self.image, self.found))

    def to_dict(self) -> list[dict[str, Any]]:
        """The results as `--json` prints them."""
        return [each.to_dict() for each in self.found]


def _briefly(found: Detection) -> str:
    score = "" if found.score is None else f" {found.score:.2f}"
    place = f" [{', '.join(f'{side:.0f}' for side in found.box)}]" if found.box else ""
    return f"{found.label}{score}{place}"
