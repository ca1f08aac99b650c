"""Deformable convolutions: images sampled at places of their own, then a convolution of 1x1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import constant, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx_operators.translation import Builder, Translation, dtype_of, optional


def _deformable(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """DeformConv of images: data, weights, offsets, and perhaps a bias and a mask."""
    data, weights, offsets = inputs[:3]
    bias, mask = optional(inputs, 3), optional(inputs, 4)
    if len(shape_of(data)) != 4:
        raise ModelError(f"data of {len(shape_of(data))} dimensions are not supported", why="images are")
    build = Builder(importer)
    batch, channels, *_ = shape_of(data)
    outputs, _, *kernel = shape_of(weights)
    _, count, height, width = shape_of(offsets)
    places, groups = math.prod(kernel), int(attr.get("offset_group", 1))
    if count != 2 * groups * places or channels % groups:
        raise ModelError(f"offsets of shape {shape_of(offsets)} do not fit {groups} groups of windows of {kernel}")
    # The places of a window lie one below the other: an image of all first places, then of all second ones, ...
    grid = _grid(build, data, kernel, offsets, groups, attr)
    share = channels // groups
    rows = [batch * groups, share, *shape_of(data)[2:]]
    sampled = importer.bb.normalize(
        relax.op.image.grid_sample(
            build.reshape(data, rows), grid, "bilinear", "NCHW", padding_mode="zeros", align_corners=False
        )
    )
    if mask is not None:
        sampled = build.multiply(sampled, build.reshape(mask, [batch * groups, 1, places * height, width]))
    columns = build.reshape(sampled, [batch, channels * places, height, width])
    flat = build.reshape(weights, [outputs, shape_of(weights)[1] * places, 1, 1])
    made = importer.bb.normalize(relax.op.nn.conv2d(columns, flat, groups=int(attr.get("group", 1))))
    return made if bias is None else build.add(made, build.reshape(bias, [1, outputs, 1, 1]))


def _grid(build: Builder, data: Any, kernel: list[int], offsets: Any, groups: int, attr: dict[str, Any]) -> Any:
    """Where the image is read, -1 to 1 between its edges: (batch * groups, 2 of x and y, places * height, width)."""
    batch, _, height, width = shape_of(offsets)
    strides, dilations = attr.get("strides", [1, 1]), attr.get("dilations", [1, 1])
    begins = attr.get("pads", [0, 0])[:2]
    steps = np.indices((*kernel, height, width)).astype(np.float64)
    read = [steps[2 + axis] * strides[axis] - begins[axis] + steps[axis] * dilations[axis] for axis in (0, 1)]
    places = math.prod(kernel)
    regular = np.stack(read).reshape(1, 2, places, height, width)
    moved = build.reshape(offsets, [batch * groups, places, 2, height, width])  # of y and x
    moved = build.add(build.permute(moved, [0, 2, 1, 3, 4]), constant(regular, dtype_of(offsets)))
    sizes = np.array(shape_of(data)[2:], np.float64).reshape(1, 2, 1, 1, 1)
    scaled = build.subtract(build.multiply(build.add(moved, 0.5), 2 / sizes), 1.0)
    return build.reshape(build.take(scaled, np.array([1, 0]), 1), [batch * groups, 2, places * height, width])


TRANSLATIONS: dict[str, Translation] = {"DeformConv": _deformable}
