"""From an image to a network's input tensor: pages scaled for text, sizes of networks, placement, normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Annotated, ClassVar, Literal

import cv2
import numpy as np
from pydantic import Field

from edgedeploy.base.documents import Record
from edgedeploy.errors import InputError
from edgedeploy.model.tensors import Steps, TensorSpec, shown
from edgedeploy.package.usage import Fit, ModelInput
from edgedeploy.vision.frames import normalised, resize, triangle_weights
from edgedeploy.vision.geometry import BORDER, Frame, framed, warp_quadrilateral
from edgedeploy.vision.results import View


def place(image: np.ndarray, size: tuple[int, int], fit: Fit) -> tuple[np.ndarray, Frame]:
    """Bring an image to the network's size (height, width): the pixels, uint8, and their frame.

    `stretch` resizes both axes independently, like Tengine's examples; `fill` does so with OpenCV's bilinear
    interpolation. `pad` keeps the aspect ratio: images that are too large are scaled down, and black is added at the
    right and the bottom. `letterbox` is Ultralytics' way: the image is scaled up or down until it touches two sides,
    with bilinear interpolation, and centred on grey. `cover` is the way of torchvision and Ultralytics for
    classification: the image is scaled until it covers the input, and cropped in the centre. `contain` is like
    `letterbox`, but on black and without rounding sizes to whole pixels, as in MediaPipe's ImageToTensorCalculator.
    """
    frame = framed((image.shape[0], image.shape[1]), size, fit)
    if fit == "stretch":
        return resize(image, *size), frame
    if fit == "contain":
        corners = frame.to_image(np.array([[0.0, 0.0], [size[1], 0.0], [size[1], size[0]], [0.0, size[0]]]))
        return warp_quadrilateral(image, corners, (size[1], size[0]), border="zero"), frame
    if fit == "cover":
        for axis in (1, 0):  # levels are rounded in between, as in Pillow
            image = _averaged(image, axis, frame.inner[axis])
    elif frame.inner != frame.image:
        # `pad` averages pixels: small things survive a strong reduction.
        how = cv2.INTER_AREA if fit == "pad" else cv2.INTER_LINEAR
        image = cv2.resize(image, frame.inner[::-1], interpolation=how)
    left, top = map(int, frame.offset)
    canvas = np.full((*size, 3), BORDER.get(fit, 0), np.uint8)
    seen = image[max(-top, 0) :, max(-left, 0) :][: size[0], : size[1]]
    top, left = max(top, 0), max(left, 0)
    canvas[top : top + seen.shape[0], left : left + seen.shape[1]] = seen
    return canvas, frame


def _averaged(image: np.ndarray, axis: int, target: int) -> np.ndarray:
    """An image with one axis resized by Pillow's bilinear filter."""
    source = image.shape[axis]
    if source == target:
        return image
    weights = triangle_weights(source, target)
    weights /= weights.sum(axis=1, keepdims=True)
    moved = np.moveaxis(image, axis, 0).reshape(source, -1)
    resized = (weights.astype(np.float32) @ moved.astype(np.float32)).reshape(target, *np.delete(image.shape, axis))
    return np.clip(np.rint(np.moveaxis(resized, 0, axis)), 0, 255).astype(np.uint8)


def input_size(spec: ModelInput, tensor: TensorSpec) -> tuple[int, int]:
    """Height and width of the images of an input in the layout and colour of `spec`."""
    channels = 1 if spec.colour == "GRAY" else 3
    shape = tensor.shape
    nchw = spec.layout == "NCHW"
    if len(shape) != 4 or shape[0] != 1 or shape[1 if nchw else 3] != channels:
        wanted = f"1x{channels}xHxW" if nchw else f"1xHxWx{channels}"
        raise InputError(
            f"the network's input {tensor.name!r} is not an image as this demo makes it",
            why=f"its shape is {shown(shape)}, and {wanted} ({spec.colour}) is needed",
            hints=["choose another demo for this network, or describe it in a file of models/ and name that"],
        )
    height, width = shape[2:4] if nchw else shape[1:3]
    return height, width


def to_tensor(pixels: np.ndarray, spec: ModelInput, dtype: str = "float32", steps: Steps | None = None) -> np.ndarray:
    """A batch of one: pixels (uint8, B G R) as `(pixel - mean[c]) * scale[c]`, in the colour and layout of `spec`.

    Values are rounded and clamped to the range of an integer `dtype`; `steps` are those of a quantised input.
    """
    if spec.colour == "RGB":
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
    elif spec.colour == "GRAY":
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)[:, :, None]
    values = normalised(pixels, np.array(spec.mean, np.float32), np.array(spec.scale, np.float32), dtype, steps)
    return np.ascontiguousarray((values.transpose(2, 0, 1) if spec.layout == "NCHW" else values)[None])


def filled(values: np.ndarray, tensor: TensorSpec) -> np.ndarray:
    """An image that is smaller than a network's input, padded with zeros at the right and the bottom."""
    return np.pad(values, [(0, wanted - there) for wanted, there in zip(tensor.shape, values.shape, strict=True)])


LONGEST = 1 << 14

Side = Annotated[int, Field(gt=0, le=LONGEST)]


class Page(Record):
    """How a whole image is prepared before text is located: scaled, and very wide images padded with rows of black.

    The rules are those of RapidOCR's `preprocess` and `maybe_add_letterbox`.
    """

    longest: Side = 2000
    shortest: Side = 30
    widest: Annotated[float, Field(gt=0)] = 8
    multiple: Side = 32

    def view(self, image: np.ndarray) -> View:
        """The prepared image; points outside of the original image are moved to its edge."""
        size = image.shape[1::-1]
        if max(size) > self.longest:
            image = scaled(image, self.longest / max(image.shape[:2]), self.multiple)
        if min(image.shape[:2]) < self.shortest:
            image = scaled(image, self.shortest / min(image.shape[:2]), self.multiple)
        scale = np.array(size) / image.shape[1::-1]
        height, width = image.shape[:2]
        rows = 0
        if height <= self.shortest or width / height > self.widest:
            rows = abs(2 * max(int(width / self.widest), self.shortest) - height) // 2
            image = cv2.copyMakeBorder(image, rows, rows, 0, 0, cv2.BORDER_CONSTANT)
        return View(image, lambda points: np.clip((points - [0, rows]) * scale, 0, size))


def scaled(image: np.ndarray, ratio: float, multiple: int) -> np.ndarray:
    """An image scaled by `ratio`; see `scaled_size`."""
    height, width = scaled_size((image.shape[0], image.shape[1]), ratio, multiple)
    return cv2.resize(image, (width, height))


def scaled_size(size: tuple[int, int], ratio: float, multiple: int) -> tuple[int, int]:
    """Height and width times `ratio`, both rounded to a positive multiple of `multiple`."""
    height, width = (max(1, round(int(side * ratio) / multiple)) * multiple for side in size)
    if max(height, width) > LONGEST:
        raise InputError(
            f"the image is too narrow: it has {size[1]} x {size[0]} pixels",
            why=f"enlarged, so that its shorter side is long enough for the network, it has {width} x {height}",
            hints=[f"cut it into pieces; neither side may get longer than {LONGEST:,}"],
        )
    return height, width


class ScaledFit(Record):
    """The network is built for the size of the image, which is scaled up if it is small."""

    kind: Literal["scaled"]
    one_size: ClassVar[bool] = False
    shortest: Side
    multiple: Side

    def size(self, image: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the network's input for an image of this height and width."""
        return scaled_size(image, max(1.0, self.shortest / min(image)), self.multiple)

    def place(self, image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Frame]:
        """The image stretched to the network's size."""
        return place(image, size, "fill")


class LineFit(Record):
    """The image is scaled to the network's height with its aspect ratio kept, and padded with 0 at the right.

    A longer line than the network takes is squeezed.

    PaddleOCR's networks give the same texts as elsewhere only if the same lines share a width.
    """

    kind: Literal["line"]
    widths: Annotated[list[Side], Field(min_length=1)] | None = None
    batch: Annotated[int, Field(gt=0)] = 1

    @property
    def one_size(self) -> bool:
        """Whether the network has the same size for all images."""
        return self.widths is None

    def lengths(self, images: Sequence[tuple[int, int]], network: tuple[int, int]) -> list[int]:
        """The used part of the input's width for each of several images of a height and a width.

        The order is that of numpy's default sort, as in RapidOCR: it decides which of equals share a batch.
        """
        ratios = np.array([width / height for height, width in images])
        order = np.argsort(ratios)
        found = [0] * len(images)
        for start in range(0, len(images), self.batch):
            together = order[start : start + self.batch]
            width = int(network[0] * max(network[1] / network[0], ratios[together].max()))
            for index in together:
                found[index] = width
        return found

    def width(self, length: int) -> int:
        """The width of the network for a length."""
        assert self.widths
        widths = sorted(self.widths)
        while widths[-1] < length:
            widths.append(2 * widths[-1])
        if length > LONGEST:
            raise InputError(
                "a line of text is too long",
                why=f"scaled to the height that the network takes it has {length:,} pixels; {LONGEST:,} are the most",
                hints=["cut the image into pieces"],
            )
        return next(each for each in widths if each >= length)

    def place(self, image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Frame]:
        """The image scaled to the network's height, no wider than the network."""
        height, width = image.shape[:2]
        inner = min(size[1], ceil(size[0] * (width / height)))
        frame = Frame((height, width), size, (inner / width, size[0] / height))
        return cv2.resize(image, (inner, size[0])), frame


SizedFit = Annotated[ScaledFit | LineFit, Field(discriminator="kind")]
