"""Convolutions, deformable ones too, pooling, and columns put back into images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.ir.expressions import constant, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.importing import halves, same_padding
from edgedeploy.frontends.translation import Builder, Translation, dtype_of, integers, is_float, optional, text


def pads_of(sizes: Sequence[int], kernels: Sequence[int], attr: dict[str, Any]) -> list[int]:
    """Padding before all axes, then after them; SAME of `auto_pad` is for ceil(size / stride) windows."""
    same, ones = text(attr, "auto_pad", "NOTSET"), [1] * len(sizes)
    if not same.startswith("SAME"):
        return list(attr.get("pads", [0, 0] * len(sizes)))
    totals = same_padding(sizes, _extents(kernels, attr), attr.get("strides", ones))
    before, after = halves(totals, lower=same == "SAME_LOWER")
    return [*before, *after]


def _windows(operator: str, build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Windows with `auto_pad`, whose padding is written out."""
    if not text(attr, "auto_pad", "NOTSET").startswith("SAME"):
        return None
    kernels = attr["kernel_shape"] if "kernel_shape" in attr else shape_of(inputs[1])[2:]
    written = {name: value for name, value in attr.items() if name != "auto_pad"}
    pads = tuple(pads_of(shape_of(inputs[0])[2:], kernels, attr))
    return build.importer.theirs(operator, inputs, written | {"pads": pads})


def _max_pool(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """MaxPool, with the places of its maxima among all values of the data if they are read."""
    if attr["tvm_custom"]["num_outputs"] == 1:
        return _windows("MaxPool", build, inputs, attr)
    data, kernel, rank = inputs[0], list(attr["kernel_shape"]), len(attr["kernel_shape"])
    if attr.get("storage_order", 0):
        raise ModelError("the places of its maxima are counted by columns", hints=["export it with storage_order=0"])
    strides, dilations = (list(attr.get(name, [1] * rank)) for name in ("strides", "dilations"))
    begins = pads_of(shape_of(data)[2:], kernel, attr)[:rank]
    made = _windows("MaxPool", build, inputs, attr)
    maxima = build.bind(build.importer.theirs("MaxPool", inputs, attr) if made is None else made)
    places = places_of_maxima(build, data, kernel, strides, begins, dilations, shape_of(maxima)[2:])
    batch, channels, *sizes = shape_of(data)
    first = np.arange(batch * channels).reshape(batch, channels, *[1] * rank) * math.prod(sizes)
    return relax.Tuple([maxima, build.add(places, first)])


def _transposed_convolution(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """ConvTranspose with `output_shape`, from which its padding follows."""
    if "output_shape" not in attr:
        return None
    sizes, kernels = shape_of(inputs[0])[2:], shape_of(inputs[1])[2:]
    ones = [1] * len(sizes)
    wanted = attr["output_shape"][-len(sizes) :]
    extra = list(attr.get("output_padding", [0] * len(sizes)))
    rows = zip(sizes, _extents(kernels, attr), attr.get("strides", ones), wanted, extra, strict=True)
    totals = [stride * (size - 1) + extent - want + more for size, extent, stride, want, more in rows]
    extra = [more - min(total, 0) for total, more in zip(totals, extra, strict=True)]
    before, after = halves(totals, lower=attr.get("auto_pad", b"NOTSET") != b"SAME_UPPER")
    written = {name: value for name, value in attr.items() if name not in ("auto_pad", "output_shape")}
    return build.importer.theirs(
        "ConvTranspose", inputs, written | {"pads": (*before, *after), "output_padding": extra}
    )


def _extents(kernels: Sequence[int], attr: dict[str, Any]) -> list[int]:
    """The sizes of windows, including the gaps of dilation."""
    dilations = attr.get("dilations", [1] * len(kernels))
    return [(kernel - 1) * dilation + 1 for kernel, dilation in zip(kernels, dilations, strict=True)]


def places_of_maxima(
    build: Builder,
    data: Any,  # batch x channels x the axes that windows run over
    kernel: Sequence[int],
    strides: Sequence[int],
    begins: Sequence[int],  # the padding before each of these axes
    dilations: Sequence[int],
    counts: Sequence[int],  # how many windows there are along each
) -> Any:
    """The place of the largest value of each window, counted along its channel's inner axes; the first of equals.

    Places are int64, batch x channels x counts.
    """
    sizes, rank = shape_of(data)[2:], len(kernel)
    reach = [
        (count - 1) * stride + (size - 1) * gap + 1
        for count, stride, size, gap in zip(counts, strides, kernel, dilations, strict=True)
    ]
    ends = [max(last - size - begin, 0) for last, size, begin in zip(reach, sizes, begins, strict=True)]
    widths = [0, 0, 0, 0, *(width for pair in zip(begins, ends, strict=True) for width in pair)]
    least = -math.inf if is_float(data) else np.iinfo(dtype_of(data)).min
    padded = build.bind(relax.op.nn.pad(data, widths, "constant", least))
    steps = np.cumprod([1, *sizes[:0:-1]])[::-1]  # between neighbours along each axis
    largest = place = None
    for offset in np.indices(kernel).reshape(rank, -1).T * dilations:
        spans = zip(offset, counts, strides, strict=True)
        ends = [int(first) + (count - 1) * stride + 1 for first, count, stride in spans]
        part = build.strided_slice(
            padded, axes=list(range(2, 2 + rank)), begin=offset.tolist(), end=ends, strides=list(strides)
        )
        here = relax.const(int(offset @ steps), "int64")
        if largest is None:
            largest, place = part, build.full(shape_of(part), here, "int64")
        else:
            larger = build.greater(part, largest)
            largest, place = build.where(larger, part, largest), build.where(larger, here, place)
    of_each_axis = [-1, *[1] * rank]
    corners = np.indices(counts) * np.reshape(strides, of_each_axis) - np.reshape(begins, of_each_axis)
    return build.add(place, (corners * steps.reshape(of_each_axis)).sum(0))


def _columns_to_image(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Col2Im: each pixel is the sum of the places that it has in blocks, which are gathered."""
    image, block = integers(inputs, 1), integers(inputs, 2)
    if image is None or block is None:
        raise ModelError("its shapes depend on the network's input")
    data, rank = inputs[0], len(image)
    ones = [1] * rank
    strides, dilations = attr.get("strides", ones), attr.get("dilations", ones)
    pads = attr.get("pads", [0] * 2 * rank)
    counts = [
        (image[axis] + pads[axis] + pads[rank + axis] - dilations[axis] * (block[axis] - 1) - 1) // strides[axis] + 1
        for axis in range(rank)
    ]
    batch, rows, columns = shape_of(data)
    size, kernel = math.prod(image), math.prod(block)
    if columns != math.prod(counts) or rows % kernel:
        raise ModelError(f"shape {shape_of(data)} does not fit blocks of {block} of an image of {image}")
    # For each value of all blocks, the pixel that it belongs to, or none.
    places = np.indices((*block, *counts)).reshape(2 * rank, -1)
    pixels = [places[axis] * dilations[axis] + places[rank + axis] * strides[axis] - pads[axis] for axis in range(rank)]
    inside = np.all([(pixel >= 0) & (pixel < length) for pixel, length in zip(pixels, image, strict=True)], axis=0)
    sources = np.nonzero(inside)[0]
    targets = np.ravel_multi_index([pixel[sources] for pixel in pixels], image)
    # Row i of the table is each pixel's i-th source; a zero behind all values stands for none.
    order = np.argsort(targets, kind="stable")
    targets, sources = targets[order], sources[order]
    turn = np.arange(len(targets)) - np.searchsorted(targets, targets)
    table = np.full((int(turn.max(initial=0)) + 1, size), kernel * columns)
    table[turn, targets] = sources
    flat = build.reshape(data, [batch, rows // kernel, kernel * columns])
    zero = relax.const(np.zeros((batch, rows // kernel, 1)), dtype_of(data))
    padded = build.concat([flat, zero], axis=2)
    summed = build.reduce("sum", build.take(padded, table, 2), [2])
    return build.reshape(summed, [batch, rows // kernel, *image])


def _product(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """MatMul of two vectors, as one of a row and a column."""
    if [len(shape_of(value)) for value in inputs] != [1, 1]:
        return None
    length = shape_of(inputs[0])[0]
    product = build.matmul(build.reshape(inputs[0], [1, length]), build.reshape(inputs[1], [length, 1]))
    return build.reshape(product, [])


def _deformable(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """DeformConv of images: samples at places of their own, then a convolution of 1x1; bias and mask are optional."""
    data, weights, offsets = inputs[:3]
    bias, mask = optional(inputs, 3), optional(inputs, 4)
    if len(shape_of(data)) != 4:
        raise ModelError(f"data of {len(shape_of(data))} dimensions are not supported", why="images are")
    batch, channels, *_ = shape_of(data)
    outputs, _, *kernel = shape_of(weights)
    _, count, height, width = shape_of(offsets)
    places, groups = math.prod(kernel), int(attr.get("offset_group", 1))
    if count != 2 * groups * places or channels % groups:
        raise ModelError(f"offsets of shape {shape_of(offsets)} do not fit {groups} groups of windows of {kernel}")
    # Places of a window are below each other: an image of all first places, then of all second ones, ...
    grid = _grid(build, data, kernel, offsets, groups, attr)
    settings = {"padding_mode": "zeros", "align_corners": False}
    rows = build.reshape(data, [batch * groups, channels // groups, *shape_of(data)[2:]])
    sampled = build.bind(relax.op.image.grid_sample(rows, grid, "bilinear", "NCHW", **settings))
    if mask is not None:
        sampled = build.multiply(sampled, build.reshape(mask, [batch * groups, 1, places * height, width]))
    columns = build.reshape(sampled, [batch, channels * places, height, width])
    flat = build.reshape(weights, [outputs, shape_of(weights)[1] * places, 1, 1])
    made = build.bind(relax.op.nn.conv2d(columns, flat, groups=int(attr.get("group", 1))))
    return made if bias is None else build.add(made, build.reshape(bias, [1, outputs, 1, 1]))


def _grid(build: Builder, data: Any, kernel: list[int], offsets: Any, groups: int, attr: dict[str, Any]) -> Any:
    """Sampled places, -1 to 1 between the edges: (batch * groups, 2 of x and y, places * height, width)."""
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


TRANSLATIONS: dict[str, Translation] = {
    "AveragePool": partial(_windows, "AveragePool"),
    "Col2Im": _columns_to_image,
    "Conv": partial(_windows, "Conv"),
    "ConvTranspose": _transposed_convolution,
    "DeformConv": _deformable,
    "LpPool": partial(_windows, "LpPool"),
    "MatMul": _product,
    "MaxPool": _max_pool,
}
