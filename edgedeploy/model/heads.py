"""A network's detection heads: frontends find them, packages carry them, decoders read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from edgedeploy.base.documents import Listed, Record

KEY = "edgedeploy.model.heads"  # the key of the heads, as JSON, in an ONNX file's `metadata_props`

Side = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Head(Record):
    """One raw head: the output of the last convolution."""

    output: str  # the output's name
    kind: Literal["yolo", "region"] = "yolo"  # the format of its numbers: `yolo` as in YOLO v3, `region` as in YOLO v2
    # Width and height of each anchor in pixels of the network's input, in the network's order.
    anchors: Annotated[Listed[tuple[Side, Side]], Field(min_length=1)]
    # The number of class scores of each anchor, if the network's file says it.
    classes: Annotated[int, Field(gt=0)] | None = None
    # How far a box's centre can move, in cells, around the middle of its cell; 1 is YOLO v3's, v4 has up to 1.2 so that
    # centres reach the edges of cells (Bochkovskiy et al., 2020, arXiv:2004.10934).
    scale_x_y: Side = 1.0


_HEADS: TypeAdapter[list[Head]] = TypeAdapter(Listed[Head])


def dumped(heads: Sequence[Head]) -> str:
    """Heads as in ONNX files that edgedeploy writes."""
    return _HEADS.dump_json(list(heads)).decode()


def loaded(metadata: Mapping[str, str]) -> list[Head]:
    """The heads in a file's metadata; none if they are absent or invalid."""
    try:
        return _HEADS.validate_json(metadata[KEY])
    except (KeyError, ValidationError):
        return []
