"""Convolutions, pooling, and what puts windows back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.importing import halves, same_padding
from edgedeploy.frontends.onnx_operators.translation import Builder, Translation, dtype_of, integers, text


def _windows(operator: str) -> Translation:
    """Windows with `auto_pad`, whose padding is written out: of SAME, as much as gives ceil(size / stride) of them."""

    def translate(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
        same = attr.get("auto_pad", b"NOTSET").decode()
        if same not in ("SAME_UPPER", "SAME_LOWER"):
            return None
        sizes = shape_of(inputs[0])[2:]
        kernels = attr["kernel_shape"] if "kernel_shape" in attr else shape_of(inputs[1])[2:]
        ones = [1] * len(sizes)
        totals = same_padding(sizes, _extents(kernels, attr), attr.get("strides", ones))
        before, after = halves(totals, lower=same == "SAME_LOWER")
        written = {name: value for name, value in attr.items() if name != "auto_pad"}
        return importer.theirs(operator, inputs, written | {"pads": (*before, *after)})

    return translate


def _max_pool(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """MaxPool, with the places of its maxima among all values of the data if they are read."""
    if attr["tvm_custom"]["num_outputs"] == 1:
        return _windows("MaxPool")(importer, inputs, attr)
    data, kernel, rank = inputs[0], list(attr["kernel_shape"]), len(attr["kernel_shape"])
    if attr.get("storage_order", 0):
        raise ModelError("the places of its maxima are counted by columns", hints=["export it with storage_order=0"])
    strides, dilations = (list(attr.get(name, [1] * rank)) for name in ("strides", "dilations"))
    begins = list(attr.get("pads", [0] * rank))[:rank]
    same = text(attr, "auto_pad", "NOTSET")
    if same.startswith("SAME"):
        totals = same_padding(shape_of(data)[2:], _extents(kernel, attr), strides)
        begins = list(halves(totals, lower=same == "SAME_LOWER")[0])
    build, made = Builder(importer), _windows("MaxPool")(importer, inputs, attr)
    maxima = importer.bb.normalize(importer.theirs("MaxPool", inputs, attr) if made is None else made)
    places = places_of_maxima(importer, data, kernel, strides, begins, dilations, shape_of(maxima)[2:])
    batch, channels, *sizes = shape_of(data)
    first = np.arange(batch * channels).reshape(batch, channels, *[1] * rank) * math.prod(sizes)
    return relax.Tuple([maxima, build.add(places, first)])


def _transposed_convolution(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """ConvTranspose with `output_shape`, from which its padding follows."""
    if "output_shape" not in attr:
        return None
    sizes, kernels = shape_of(inputs[0])[2:], shape_of(inputs[1])[2:]
    ones = [1] * len(sizes)
    wanted = attr["output_shape"][-len(sizes) :]
    extra = list(attr.get("output_padding", [0] * len(sizes)))
    rows = zip(sizes, _extents(kernels, attr), attr.get("strides", ones), wanted, strict=True)
    totals = [stride * (size - 1) + extent - want for size, extent, stride, want in rows]
    totals = [total + more for total, more in zip(totals, extra, strict=True)]
    extra = [more - min(total, 0) for total, more in zip(totals, extra, strict=True)]
    before, after = halves(totals, lower=attr.get("auto_pad", b"NOTSET") != b"SAME_UPPER")
    written = {name: value for name, value in attr.items() if name not in ("auto_pad", "output_shape")}
    return importer.theirs("ConvTranspose", inputs, written | {"pads": (*before, *after), "output_padding": extra})


def _extents(kernels: Sequence[int], attr: dict[str, Any]) -> list[int]:
    """The sizes of windows with the gaps of their dilation."""
    dilations = attr.get("dilations", [1] * len(kernels))
    return [(kernel - 1) * dilation + 1 for kernel, dilation in zip(kernels, dilations, strict=True)]


def places_of_maxima(
    importer: Any,
    data: Any,
    kernel: Sequence[int],
    strides: Sequence[int],
    begins: Sequence[int],
    dilations: Sequence[int],
    counts: Sequence[int],
) -> Any:
    """Where the largest value of each window lies, counted through the inner axes of its channel; the first of equals.

    Args:
        importer: whose block builder is used.
        data: batch x channels x the axes that windows run over.
        kernel, strides, begins, dilations: of each of these axes; `begins` is the padding before.
        counts: how many windows there are along each.

    Returns:
        int64, batch x channels x counts.
    """
    build, sizes, rank = Builder(importer), shape_of(data)[2:], len(kernel)
    reach = [
        (count - 1) * stride + (size - 1) * gap + 1
        for count, stride, size, gap in zip(counts, strides, kernel, dilations, strict=True)
    ]
    ends = [max(last - size - begin, 0) for last, size, begin in zip(reach, sizes, begins, strict=True)]
    widths = [0, 0, 0, 0, *(width for pair in zip(begins, ends, strict=True) for width in pair)]
    least = -math.inf if dtype_of(data).startswith(("float", "bfloat")) else np.iinfo(dtype_of(data)).min
    padded = importer.bb.normalize(relax.op.nn.pad(data, widths, "constant", least))
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


def _columns_to_image(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Col2Im: each pixel is the sum of the places that it has in blocks, which are gathered."""
    image, block = integers(inputs, 1), integers(inputs, 2)
    if image is None or block is None:
        raise ModelError("its shapes depend on the network's input")
    build, data, rank = Builder(importer), inputs[0], len(image)
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
    padded = importer.bb.normalize(relax.op.concat([flat, zero], axis=2))
    summed = build.reduce("sum", build.take(padded, table, 2), [2])
    return build.reshape(summed, [batch, rows // kernel, *image])


def _product(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """MatMul of two vectors, as one of a row and a column."""
    if [len(shape_of(value)) for value in inputs] != [1, 1]:
        return None
    build, length = Builder(importer), shape_of(inputs[0])[0]
    product = build.matmul(build.reshape(inputs[0], [1, length]), build.reshape(inputs[1], [length, 1]))
    return build.reshape(product, [])


TRANSLATIONS: dict[str, Translation] = {
    "AveragePool": _windows("AveragePool"),
    "Col2Im": _columns_to_image,
    "Conv": _windows("Conv"),
    "ConvTranspose": _transposed_convolution,
    "LpPool": _windows("LpPool"),
    "MatMul": _product,
    "MaxPool": _max_pool,
}
