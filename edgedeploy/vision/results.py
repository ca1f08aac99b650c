"""What a network found in an image."""

from __future__ import annotations

from typing import Any

from edgedeploy.documents import Record

Box = tuple[float, float, float, float]
Point = tuple[float, float]

# What few networks give: left out of `Detection.as_dict` where it is empty.
_SPECIAL = {"depths", "visibility", "tracked"}


class Detection(Record):
    """One thing found: a class of the whole image, an object in a box, or a set of points.

    Attributes:
        label: the class's name; its number where the model has no names.
        class_id: the class's number, from 0.
        score: how sure the network is, as it gives it (a probability, mostly); absent where it gives none.
        box: x1, y1, x2, y2 in pixels of the image; absent for results without a place.
        points: x, y of each landmark in pixels of the image.
        depths: how far each point lies behind the middle of all, in pixels of the image; absent where it is not known.
        visibility: how sure the network is that each point can be seen, from 0 to 1; absent where it is not known.
        guides: points that say where the whole is, for networks that give such beside those that are reported.
        tracked: whether it was handed on from the image before, instead of being found in this one.
    """

    label: str
    class_id: int
    score: float | None = None
    box: Box | None = None
    points: tuple[Point, ...] = ()
    depths: tuple[float, ...] = ()
    visibility: tuple[float, ...] = ()
    guides: tuple[Point, ...] = ()
    tracked: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        left_out = {name for name in _SPECIAL if not getattr(self, name)} | {"guides"}
        return self.model_dump(mode="json", exclude=left_out)


def label_of(labels: list[str], class_id: int) -> str:
    """The class's name, or its number if `labels` does not reach that far."""
    return labels[class_id] if class_id < len(labels) else str(class_id)
