"""From an image to a network's input tensor, and back from the network's coordinates to the image's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np

from edgedeploy.errors import InputError
from edgedeploy.tensors import Steps, TensorSpec, shown
from edgedeploy.vision.image import resize
from edgedeploy.vision.quadrilateral import warp_quadrilateral
from edgedeploy.zoo.entry import ModelInput

Fit = Literal["stretch", "pad", "letterbox", "fill", "cover", "contain"]

_BORDER_GREY = 114  # of Ultralytics' LetterBox


@dataclass(frozen=True)
class Frame:
    """How an image lies in a network's input.

    Attributes:
        image: height and width of the image in pixels.
        network: height and width of the network's input in pixels.
        scale: pixels of the network per pixel of the image, along x and along y.
        offset: x and y of the image's top left in pixels of the network; negative where a part of it is not seen.
    """

    image: tuple[int, int]
    network: tuple[int, int]
    scale: tuple[float, float]
    offset: tuple[float, float] = (0.0, 0.0)

    def to_image(self, points: np.ndarray) -> np.ndarray:
        """Points in pixels of the network (..., 2) as pixels of the image, in the same dtype."""
        return (points - np.asarray(self.offset, points.dtype)) / np.asarray(self.scale, points.dtype)


def place(image: np.ndarray, size: tuple[int, int], fit: Fit) -> tuple[np.ndarray, Frame]:
    """Bring an image to the network's size (height, width).

    `stretch` resizes both axes on their own, as Tengine's examples do; `fill` does it with OpenCV's bilinear
    interpolation. `pad` keeps the aspect ratio: the image is scaled down if it is too large, never up, and black is
    added at the right and the bottom. `letterbox` is what Ultralytics' networks are trained with: the image is scaled
    up or down until it touches two sides, with bilinear interpolation, and lies in the middle of grey. `cover` is what
    torchvision and Ultralytics show networks that classify: the image is scaled until it covers the input, and what
    reaches out on both sides is cut off. `contain` is as `letterbox`, on black and without rounding sizes
    to whole pixels, as MediaPipe's ImageToTensorCalculator does.

    Returns:
        The pixels, uint8, and how they lie.
    """
    height, width = image.shape[:2]
    if fit == "stretch":
        return resize(image, *size), Frame((height, width), size, (size[1] / width, size[0] / height))
    if fit == "fill":
        filled = cv2.resize(image, (size[1], size[0]), interpolation=cv2.INTER_LINEAR)
        return filled, Frame((height, width), size, (size[1] / width, size[0] / height))
    if fit == "letterbox":
        return _letterbox(image, size)
    if fit == "cover":
        return _cover(image, size)
    if fit == "contain":
        return _contain(image, size)
    scale = min(1.0, size[0] / height, size[1] / width)
    inner = (max(1, round(height * scale)), max(1, round(width * scale)))
    if scale < 1:
        # Averages over the pixels that fall together: small things survive a strong reduction.
        image = cv2.resize(image, (inner[1], inner[0]), interpolation=cv2.INTER_AREA)
    canvas = np.zeros((*size, 3), np.uint8)
    canvas[: inner[0], : inner[1]] = image
    return canvas, Frame((height, width), size, (inner[1] / width, inner[0] / height))


def _letterbox(image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Frame]:
    """See `place`. Of an odd number of rows or columns of grey, the smaller half comes first."""
    height, width = image.shape[:2]
    scale = min(size[0] / height, size[1] / width)
    inner = (max(1, round(height * scale)), max(1, round(width * scale)))
    if inner != (height, width):
        image = cv2.resize(image, (inner[1], inner[0]), interpolation=cv2.INTER_LINEAR)
    top, left = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    canvas = np.full((*size, 3), _BORDER_GREY, np.uint8)
    canvas[top : top + inner[0], left : left + inner[1]] = image
    return canvas, Frame((height, width), size, (inner[1] / width, inner[0] / height), (left, top))


def _cover(image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Frame]:
    """See `place`; sizes and the place of the cut are those of torchvision's Resize and CenterCrop."""
    height, width = image.shape[:2]
    if size[0] * width <= size[1] * height:
        inner = (int(size[1] * height / width), size[1])
    else:
        inner = (size[0], int(size[0] * width / height))
    pixels = image
    for axis in (1, 0):  # levels are rounded between the two, as Pillow does it
        pixels = _averaged(pixels, axis, inner[axis])
    top, left = (round((full - part) / 2) for full, part in zip(inner, size, strict=True))
    frame = Frame((height, width), size, (inner[1] / width, inner[0] / height), (-left, -top))
    return np.ascontiguousarray(pixels[top : top + size[0], left : left + size[1]]), frame


def _contain(image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Frame]:
    """See `place`."""
    height, width = image.shape[:2]
    scale = min(size[0] / height, size[1] / width)
    offset = ((size[1] - scale * width) / 2, (size[0] - scale * height) / 2)
    frame = Frame((height, width), size, (scale, scale), offset)
    corners = frame.to_image(np.array([[0.0, 0.0], [size[1], 0.0], [size[1], size[0]], [0.0, size[0]]]))
    return warp_quadrilateral(image, corners, (size[1], size[0]), border="zero"), frame


def _averaged(image: np.ndarray, axis: int, target: int) -> np.ndarray:
    """An image with one axis resized as Pillow's bilinear filter does it: a triangle that is as wide as the pixels of
    whichever side has the larger ones, so that an image that shrinks is averaged."""
    source = image.shape[axis]
    if source == target:
        return image
    step = source / target
    centres, reach = (np.arange(target) + 0.5) * step, max(step, 1.0)
    weights = np.maximum(1 - np.abs(np.arange(source) + 0.5 - centres[:, None]) / reach, 0)
    weights /= weights.sum(axis=1, keepdims=True)
    moved = np.moveaxis(image, axis, 0).reshape(source, -1)
    resized = (weights.astype(np.float32) @ moved.astype(np.float32)).reshape(target, *np.delete(image.shape, axis))
    return np.clip(np.rint(np.moveaxis(resized, 0, axis)), 0, 255).astype(np.uint8)


def input_size(spec: ModelInput, tensor: TensorSpec) -> tuple[int, int]:
    """Height and width of the images that `tensor` takes in the layout and colour of `spec`.

    Raises:
        InputError: the tensor is not an image with the channels of `spec`.
    """
    channels = 1 if spec.colour == "GRAY" else 3
    shape = tensor.shape
    nchw = spec.layout == "NCHW"
    if len(shape) != 4 or shape[0] != 1 or shape[1 if nchw else 3] != channels:
        wanted = f"1x{channels}xHxW" if nchw else f"1xHxWx{channels}"
        raise InputError(
            f"the network's input {tensor.name!r} is not an image as this demo makes it",
            why=f"its shape is {shown(shape)}, needed is {wanted} ({spec.colour})",
            hints=["choose another demo for this network, or describe it in a file of models/ and name that"],
        )
    height, width = shape[2:4] if nchw else shape[1:3]
    return height, width


def to_tensor(pixels: np.ndarray, spec: ModelInput, dtype: str = "float32", steps: Steps | None = None) -> np.ndarray:
    """Turn pixels (uint8, B G R) into `(pixel - mean[c]) * scale[c]`, in the colour and layout of `spec`.

    The size is not changed: images are resized before, as whole levels, not after the normalisation.

    Args:
        dtype: the input's dtype; for integer types values are rounded and clamped to the type's range.
        steps: of a quantised input, what its integers stand for.

    Returns:
        A tensor with a batch of one.
    """
    if spec.colour == "RGB":
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
    elif spec.colour == "GRAY":
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)[:, :, None]
    values = (pixels.astype(np.float32) - np.array(spec.mean, np.float32)) * np.array(spec.scale, np.float32)
    if steps is not None:
        values = steps.integers(values, dtype)
    elif np.issubdtype(np.dtype(dtype), np.integer):
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    if spec.layout == "NCHW":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values[None], dtype=dtype)


def filled(values: np.ndarray, tensor: TensorSpec) -> np.ndarray:
    """Values of an image that is smaller than a network's input, with zeros at the right and the bottom."""
    return np.pad(values, [(0, wanted - there) for wanted, there in zip(tensor.shape, values.shape, strict=True)])
