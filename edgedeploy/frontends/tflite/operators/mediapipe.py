"""MediaPipe's custom operators; `frontends/tflite/mediapipe.py` computes each in numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.ir.expressions import constant, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.tflite import mediapipe
from edgedeploy.frontends.tflite.operators.builtin import transposed
from edgedeploy.frontends.translation import Builder, dtype_of


def _transpose_conv_bias(converter: Any, options: bytes, data: Any, weights: Any, bias: Any) -> Any:
    windows = mediapipe.Windows.parsed(options)
    before, wanted = mediapipe.transposed_shape(shape_of(data)[1:3], shape_of(weights)[1:3], windows)
    return Builder(converter).add(transposed(converter, data, weights, windows.strides, before, wanted), bias)


def _max_pool_argmax(converter: Any, options: bytes, data: Any) -> Any:
    """The largest values of windows, and their places in them, plus 0.1."""
    build, windows = Builder(converter), mediapipe.Windows.of_pool(options)
    before, after, (height, width) = mediapipe.pooled_shape(shape_of(data)[1:3], windows)
    lowest = float(np.finfo(dtype_of(data)).min)
    padding = [0, 0, before[0], after[0], before[1], after[1], 0, 0]
    padded = build.bind(relax.op.nn.pad(data, padding, pad_value=lowest)) if any(padding) else data
    largest = place = None
    rows, columns = windows.strides
    for number, (row, column) in enumerate(np.ndindex(*windows.sizes)):
        ends = [row + (height - 1) * rows + 1, column + (width - 1) * columns + 1]
        part = build.strided_slice(padded, axes=[1, 2], begin=[row, column], end=ends, strides=[rows, columns])
        if largest is None:
            largest, place = part, constant(np.full(shape_of(part), 0.1), dtype_of(part))
            continue
        here = constant(np.full(shape_of(part), number + 0.1), dtype_of(part))
        place = build.where(build.greater(part, largest), here, place)
        largest = build.maximum(part, largest)
    return relax.Tuple([largest, place])


def _max_unpooling(converter: Any, options: bytes, data: Any, places: Any) -> Any:
    """Each value at its place in its own block, among zeros."""
    build, windows = Builder(converter), mediapipe.Windows.of_pool(options)
    if windows.strides != windows.sizes:
        raise ModelError(f"windows of {windows.sizes} pixels {windows.strides} apart are not supported")
    batch, rows, columns, channels = shape_of(data)
    height, width = windows.sizes
    # Rows of blocks, rows in a block, columns of blocks, columns in a block.
    spread, places = (build.reshape(value, [batch, rows, 1, columns, 1, channels]) for value in (data, places))
    numbers = constant(np.arange(height * width).reshape(1, 1, height, 1, width, 1), dtype_of(data))
    made = build.where(build.equal(build.floor(places), numbers), spread, constant(0, dtype_of(data)))
    return build.reshape(made, [batch, rows * height, columns * width, channels])


def _transform_matrix(converter: Any, options: bytes, landmarks: Any) -> Any:
    """The 4x4 matrix from places in a crop to places in the image."""
    build, crop, (_, count, _) = Builder(converter), mediapipe.Crop.parsed(options), shape_of(landmarks)
    if not crop.subset or not all(0 <= index < count for index in (*crop.subset, crop.left, crop.right)):
        raise ModelError(f"it names landmarks that are not among its {count}")
    flat = build.strided_slice(build.reshape(landmarks, [count, 3]), axes=[1], begin=[0], end=[2])
    away = build.subtract(*(build.take(flat, np.array([index]), 0) for index in (crop.right, crop.left)))
    right, down = (build.strided_slice(away, axes=[1], begin=[axis], end=[axis + 1]) for axis in (0, 1))
    turn = build.subtract(build.atan2(down, right), crop.angle)
    cosine, sine = build.cos(turn), build.sin(turn)
    # Back from where the landmarks left and right lie in the crop's direction; its transpose turns them there.
    back = build.reshape(build.concat([cosine, build.negative(sine), sine, cosine], axis=1), [2, 2])
    turned = build.matmul(build.take(flat, np.array(crop.subset), 0), back)
    low, high = (build.reduce(end, turned, [0], keepdims=True) for end in ("min", "max"))
    output = np.array([crop.output], np.float64)
    scales = build.multiply(build.subtract(high, low), np.array([crop.scales]) / output)
    corner = build.subtract(build.multiply(build.add(low, high), 0.5), build.multiply(scales, output / 2))
    shift = build.reduce("sum", build.multiply(back, corner), [1], keepdims=True)
    dtype = dtype_of(landmarks)
    above = build.concat([build.multiply(back, scales), constant(np.zeros((2, 1)), dtype), shift], axis=1)
    return build.reshape(build.concat([above, constant(np.eye(4)[2:], dtype)], axis=0), [1, 4, 4])


def _transform_landmarks(converter: Any, options: bytes, landmarks: Any, matrix: Any) -> Any:
    """The first two coordinates of each landmark moved, a third one as it is."""
    build, dimensions = Builder(converter), shape_of(landmarks)[2]
    if dimensions not in (2, 3):
        raise ModelError(f"landmarks of {dimensions} coordinates are not supported")
    linear, shift = _parts(build, matrix)
    flat = build.strided_slice(landmarks, axes=[2], begin=[0], end=[2])
    moved = build.add(build.matmul(flat, build.permute(linear, [1, 0])), build.reshape(shift, [1, 1, 2]))
    if dimensions == 2:
        return moved
    return build.concat([moved, build.strided_slice(landmarks, axes=[2], begin=[2], end=[3])], axis=2)


def _transform_tensor(converter: Any, options: bytes, data: Any, matrix: Any) -> Any:
    """An image at the places that a matrix gives for those of a smaller one; zero outside."""
    build, (_, rows, columns, _) = Builder(converter), shape_of(data)
    height, width = mediapipe.sampled_size(options)
    linear, shift = _parts(build, matrix)
    # Pixels' centres: half a pixel is added there, and subtracted here.
    places = np.stack([each.ravel() + 0.5 for each in np.mgrid[:height, :width][::-1]])
    found = build.subtract(build.add(build.matmul(linear, constant(places, dtype_of(data))), shift), 0.5)
    last = np.array([[columns - 1], [rows - 1]], np.float64)
    grid = build.subtract(build.multiply(found, 2 / np.maximum(last, 1)), 1.0)
    grid = build.reshape(grid, [1, 2, height, width])  # TVM's own order
    images, settings = build.permute(data, [0, 3, 1, 2]), {"padding_mode": "border", "align_corners": True}
    sampled = build.bind(relax.op.image.grid_sample(images, grid, "bilinear", "NCHW", **settings))
    inside = build.logical_and(build.greater_equal(found, 0.0), build.less_equal(found, last))
    inside = build.reduce("min", build.cast(inside, dtype_of(data)), [0])
    return build.multiply(build.permute(sampled, [0, 2, 3, 1]), build.reshape(inside, [1, height, width, 1]))


def _parts(build: Builder, matrix: Any) -> tuple[Any, Any]:
    """The upper left 2x2 of a 4x4 matrix, and its upper right 2x1."""
    flat = build.reshape(matrix, [4, 4])
    linear = build.strided_slice(flat, axes=[0, 1], begin=[0, 0], end=[2, 2])
    return linear, build.strided_slice(flat, axes=[0, 1], begin=[0, 3], end=[2, 4])


def _custom(translate: Callable[..., Any], converter: Any, op: Any) -> Any:
    """A custom operator of the known version."""
    version = converter.model.OperatorCodes(op.OpcodeIndex()).Version()
    known = mediapipe.OPERATORS[converter.get_op_code_str(op)]
    if version != known.version:
        raise ModelError(f"version {version} of it is not supported", why=f"version {known.version} is")
    tensors = [converter.get_tensor_expr(tensor) for tensor in converter.get_input_tensors(op)]
    return translate(converter, mediapipe.options_of(op.CustomOptionsAsNumpy()), *tensors)


TRANSLATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Convolution2DTransposeBias": partial(_custom, _transpose_conv_bias),
    "Landmarks2TransformMatrix": partial(_custom, _transform_matrix),
    "MaxPoolingWithArgmax2D": partial(_custom, _max_pool_argmax),
    "MaxUnpooling2D": partial(_custom, _max_unpooling),
    "TransformLandmarks": partial(_custom, _transform_landmarks),
    "TransformTensorBilinear": partial(_custom, _transform_tensor),
}
