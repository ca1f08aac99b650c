"""What a network says of its detection heads: frontends find it, packages carry it, decoders read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from edgedeploy.documents import Listed, Record

# Under which name an ONNX file keeps what was said of its heads among its `metadata_props`, as JSON.
KEY = "edgedeploy.heads"

Side = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Head(Record):
    """One raw head, as it comes out of the last convolution.

    Attributes:
        output: the output's name.
        kind: what its numbers mean: `yolo` as in YOLO v3, `region` as in YOLO v2.
        anchors: width and height of each anchor in pixels of the network's input, in the network's order.
        classes: how many classes each anchor has a score for, where the network's file says so.
        scale_x_y: how far a box's centre can move, in cells, around the middle of its cell; 1 is YOLO v3's, v4 has
            up to 1.2 so that centres reach the edges of cells (Bochkovskiy et al., 2020, arXiv:2004.10934).
    """

    output: str
    kind: Literal["yolo", "region"] = "yolo"
    anchors: Annotated[Listed[tuple[Side, Side]], Field(min_length=1)]
    classes: Annotated[int, Field(gt=0)] | None = None
    scale_x_y: Side = 1.0


_HEADS: TypeAdapter[list[Head]] = TypeAdapter(Listed[Head])


def dumped(heads: Sequence[Head]) -> str:
    """Heads as an ONNX file that edgedeploy writes has them."""
    return _HEADS.dump_json(list(heads)).decode()


def loaded(metadata: Mapping[str, str]) -> list[Head]:
    """The heads that such a file names; none of any other, or if they cannot be read."""
    try:
        return _HEADS.validate_json(metadata[KEY])
    except (KeyError, ValidationError):
        return []
