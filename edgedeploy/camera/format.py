"""Frames as cameras give them: their size, and how bytes make pixels."""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from edgedeploy.documents import Record
from edgedeploy.errors import InputError

PixelFormat = Literal["yuv420", "nv12", "yuyv", "rgb", "bgr", "gray"]
PIXEL_FORMATS: tuple[PixelFormat, ...] = get_args(PixelFormat)

# Of these, a pixel shares its colour with its neighbours: how many rows and columns have one.
_SHARED: dict[PixelFormat, tuple[int, int]] = {"yuv420": (2, 2), "nv12": (2, 2), "yuyv": (1, 2)}

_LARGEST = 1 << 14
_TEXT = re.compile(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4}):([a-z0-9]+)")


class Camera(Record):
    """A camera's frames: uint8, rows without gaps between them.

    `yuv420` is all of Y, then U, then V, these of half the height and width (I420, `rpicam-vid --codec yuv420`);
    `nv12` is Y, then pairs of U and V; `yuyv` has Y, U, Y, V for each two pixels (YUY2, what most USB cameras give).
    All are of BT.601's limited range. `rgb` and `bgr` are three bytes for each pixel, `gray` is one.

    Attributes:
        width, height: in pixels; even where pixels share their colour.
        pixels: the format.
    """

    width: Annotated[int, Field(gt=0, le=_LARGEST)]
    height: Annotated[int, Field(gt=0, le=_LARGEST)]
    pixels: PixelFormat

    @model_validator(mode="after")
    def _whole_colours(self) -> Camera:
        rows, columns = _SHARED.get(self.pixels, (1, 1))
        if self.height % rows or self.width % columns:
            what = "an even width and height" if rows > 1 else "an even width"
            raise ValueError(f"{self.pixels} needs {what}, which {self.width}x{self.height} does not have")
        return self

    @staticmethod
    def parsed(text: str) -> Camera:
        """What a user writes, as `640x480:yuv420`."""
        found = _TEXT.fullmatch(text)
        why = "write it as WIDTHxHEIGHT:FORMAT, such as 640x480:yuv420"
        if found:
            width, height, pixels = int(found[1]), int(found[2]), found[3]
            if pixels in PIXEL_FORMATS and max(width, height) <= _LARGEST:
                try:
                    return Camera(width=width, height=height, pixels=pixels)
                except ValueError:
                    rows, _ = _SHARED[pixels]
                    what = "an even width and height" if rows > 1 else "an even width"
                    raise InputError(
                        f"there are no frames {text}",
                        why=f"{pixels} needs {what}: neighbouring pixels share their colour",
                        hints=["choose another size, or rgb, bgr or gray"],
                    ) from None
            why = f"formats are {', '.join(PIXEL_FORMATS)}, and sizes up to {_LARGEST}"
        raise InputError(f"{text!r} does not say what frames a camera gives", why=why)

    def __str__(self) -> str:
        return f"{self.width}x{self.height}:{self.pixels}"

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.height, self.width

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a frame as an array, as OpenCV has it."""
        if self.pixels in ("yuv420", "nv12"):
            return self.height * 3 // 2, self.width
        channels = {"yuyv": (2,), "rgb": (3,), "bgr": (3,)}
        return (self.height, self.width, *channels.get(self.pixels, ()))
