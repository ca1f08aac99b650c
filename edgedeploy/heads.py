"""What a network says of its detection heads: frontends find it, packages carry it, decoders read it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgedeploy.documents import Record

Side = Annotated[float, Field(gt=0)]


class Head(Record):
    """One raw head, as it comes out of the last convolution.

    Attributes:
        output: the output's name.
        kind: what its numbers mean: `yolo` as in YOLO v3, `region` as in YOLO v2.
        anchors: width and height of each anchor in pixels of the network's input, in the network's order.
        classes: how many classes each anchor has a score for, where the network's file says so.
    """

    output: str
    kind: Literal["yolo", "region"] = "yolo"
    anchors: Annotated[list[tuple[Side, Side]], Field(min_length=1)]
    classes: Annotated[int, Field(gt=0)] | None = None
