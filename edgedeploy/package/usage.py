"""How a package's network is used: how an image or a camera's frame becomes its input, and its outputs results."""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator, model_validator

from edgedeploy.base.documents import Listed, Record
from edgedeploy.errors import InputError

PixelFormat = Literal["yuv420", "nv12", "yuyv", "rgb", "bgr", "gray"]
PIXEL_FORMATS: tuple[PixelFormat, ...] = get_args(PixelFormat)

# How many rows and columns of pixels share one colour.
_SHARED: dict[PixelFormat, tuple[int, int]] = {"yuv420": (2, 2), "nv12": (2, 2), "yuyv": (1, 2)}

# How images are resized to a network's input; see `vision.preprocess.place`.
Fit = Literal["stretch", "pad", "letterbox", "fill", "cover", "contain"]

_LARGEST = 1 << 14
_TEXT = re.compile(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4}):([a-z0-9]+)")


def _even_sides(pixels: PixelFormat) -> str:
    return "an even width and height" if _SHARED[pixels][0] > 1 else "an even width"


class Camera(Record):
    """A camera's frames: uint8, rows without gaps between them.

    `yuv420` is all of Y, then U, then V, these of half the height and width (I420, `rpicam-vid --codec yuv420`);
    `nv12` is Y, then pairs of U and V; `yuyv` has Y, U, Y, V for each two pixels (YUY2, what most USB cameras give).
    All are of BT.601's limited range. `rgb` and `bgr` are three bytes for each pixel, `gray` is one.
    """

    width: Annotated[int, Field(gt=0, le=_LARGEST)]
    height: Annotated[int, Field(gt=0, le=_LARGEST)]
    pixels: PixelFormat

    @model_validator(mode="after")
    def _whole_colours(self) -> Camera:
        rows, columns = _SHARED.get(self.pixels, (1, 1))
        if self.height % rows or self.width % columns:
            size = f"{self.width}x{self.height}"
            raise ValueError(f"{self.pixels} needs {_even_sides(self.pixels)}, which {size} does not have")
        return self

    @staticmethod
    def parsed(text: str) -> Camera:
        """Parse a user's text, such as `640x480:yuv420`."""
        found = _TEXT.fullmatch(text)
        why = "write it as WIDTHxHEIGHT:FORMAT, such as 640x480:yuv420"
        if found:
            width, height, pixels = int(found[1]), int(found[2]), found[3]
            if pixels in PIXEL_FORMATS and max(width, height) <= _LARGEST:
                try:
                    return Camera(width=width, height=height, pixels=pixels)
                except ValueError:
                    raise InputError(
                        f"there are no frames {text}",
                        why=f"{pixels} needs {_even_sides(pixels)}: neighbouring pixels share their colour",
                        hints=["choose another size, or rgb, bgr or gray"],
                    ) from None
            why = f"formats are {', '.join(PIXEL_FORMATS)}, and sizes up to {_LARGEST}"
        raise InputError(f"invalid frames of a camera: {text!r}", why=why)

    def __str__(self) -> str:
        return f"{self.width}x{self.height}:{self.pixels}"

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.height, self.width

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a frame as an array of OpenCV."""
        if self.pixels in ("yuv420", "nv12"):
            return self.height * 3 // 2, self.width
        channels = {"yuyv": (2,), "rgb": (3,), "bgr": (3,)}
        return (self.height, self.width, *channels.get(self.pixels, ()))


# A fit with parameters, or a decoder, as in YAML files: their records belong to `vision`, and may be of kinds that only
# a later version knows. A package with such a kind still runs.
Parameters = dict[str, object]

_DEEPEST = 8


class ModelInput(Record):
    """A network's image input, and how an image becomes it: `(pixel - mean[c]) * scale[c]`."""

    name: str
    # The default shape; networks with free dimensions are built for this shape
    shape: list[Annotated[int, Field(gt=0)]]
    # `tensor` for an input that is not an image; only its name and shape are known
    kind: Literal["image", "tensor"] = "image"
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    colour: Literal["RGB", "BGR", "GRAY"] = "RGB"
    # Subtracted from each channel, in pixel units (0 to 255), in the order of `colour`
    mean: list[float] = [0.0, 0.0, 0.0]
    scale: list[float] = [1.0, 1.0, 1.0]  # multiplied with each channel after that, in the same order

    @model_validator(mode="after")
    def _one_value_per_channel(self) -> ModelInput:
        channels = 1 if self.colour == "GRAY" else 3
        if len(self.mean) != channels or len(self.scale) != channels:
            raise ValueError(f"mean and scale need {channels} values each, one per channel of {self.colour}")
        return self

    def shape_of(self, size: tuple[int, int]) -> list[int]:
        """The shape for images of another height and width."""
        first, last = (self.shape[:2], []) if self.layout == "NCHW" else (self.shape[:1], self.shape[3:])
        return [*first, *size, *last]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        height, width = self.shape[2:4] if self.layout == "NCHW" else self.shape[1:3]
        return height, width


class Usage(Record):
    """The part of a demo about this network, as `demos/*.yaml` and `models/*.yaml` state it.

    `heads` and `metadata` of the manifest complete it: see `Decoder.fitted`.
    """

    demo: str
    # The number of the network in the demo, from 1: the second one takes crops around results of the first
    stage: Annotated[int, Field(gt=0)] = 1
    # The image input; its shape is that of the zoo's entry, and the manifest's `inputs` have the built shape. With a
    # camera, it has the built shape, and the manifest's input is the frame.
    input: ModelInput
    fit: Fit | Parameters  # how an image is resized to the input, unless the network's metadata states it
    decoder: Parameters  # the postprocessing, by its `kind`, with its parameters
    log: str
    outputs: Listed[str] = []  # the decoder's names of the outputs, in order, if they differ from the network's
    labels: Listed[str] = []  # the names of the classes; if empty, those in the network's metadata
    camera: Camera | None = None  # whose frames the network takes; None if it takes preprocessed images

    @field_validator("fit", "decoder")
    @classmethod
    def _is_named_and_flat(cls, value: object) -> object:
        if isinstance(value, dict):
            if not isinstance(value.get("kind"), str):
                raise ValueError("it has no kind")
            if depth(value) > _DEEPEST:
                raise ValueError("it is nested too deeply")
        return value

    def lines(self) -> list[str]:
        """The usage in lines for people."""
        image, which = self.input, f", network {self.stage}" if self.stage > 1 else ""
        mean, scale = _numbers(image.mean), _numbers(image.scale)
        fit = self.fit if isinstance(self.fit, str) else self.fit["kind"]
        classes = f", {len(self.labels):,} labels" if self.labels else ""
        camera = self.camera
        frames = [f"frames: {camera.width}x{camera.height}, {camera.pixels}, as a camera gives them"] if camera else []
        return [
            f"as of the demo {self.demo}{which}",
            *frames,
            f"images: {fit}, {image.colour}, {image.layout}, less {mean}, times {scale}",
            f"results: {self.decoder['kind']}{classes}",
        ]


def depth(value: object) -> int:
    """How deeply lists and mappings are nested."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def _numbers(values: list[float]) -> str:
    """Values of channels; one if all are equal."""
    return " ".join(f"{value:g}" for value in (values if len(set(values)) > 1 else values[:1]))
