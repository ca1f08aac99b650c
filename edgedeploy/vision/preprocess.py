"""From an image to a network's input tensor."""

from __future__ import annotations

import cv2
import numpy as np

from edgedeploy.errors import InputError
from edgedeploy.package.usage import Fit, ModelInput
from edgedeploy.tensors import Steps, TensorSpec, shown
from edgedeploy.vision.camera import resize, triangle_weights
from edgedeploy.vision.geometry import BORDER, Frame, framed, warp_quadrilateral


def place(image: np.ndarray, size: tuple[int, int], fit: Fit) -> tuple[np.ndarray, Frame]:
    """Bring an image to the network's size (height, width).

    `stretch` resizes both axes independently, like Tengine's examples; `fill` does so with OpenCV's bilinear
    interpolation. `pad` keeps the aspect ratio: images that are too large are scaled down, and black is added at the
    right and the bottom. `letterbox` is Ultralytics' way: the image is scaled up or down until it touches two sides,
    with bilinear interpolation, and centred on grey. `cover` is the way of torchvision and Ultralytics for
    classification: the image is scaled until it covers the input, and cropped in the centre. `contain` is like
    `letterbox`, but on black and without rounding sizes to whole pixels, as in MediaPipe's ImageToTensorCalculator.

    Returns:
        The pixels, uint8, and their frame.
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

    Args:
        dtype: the input's dtype; for integer types values are rounded and clamped to the type's range.
        steps: scale and zero point of a quantised input.
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
    """An image that is smaller than a network's input, padded with zeros at the right and the bottom."""
    return np.pad(values, [(0, wanted - there) for wanted, there in zip(tensor.shape, values.shape, strict=True)])
