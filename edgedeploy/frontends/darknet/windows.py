"""Sections that move pixels: pooling, [upsample] and [reorg]."""

from __future__ import annotations

import numpy as np

from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.darknet.graph import DarknetGraph, Shape
from edgedeploy.frontends.darknet.products import check_window, strides
from edgedeploy.frontends.graph import Attribute

# Of a window's side. Padding lets windows be larger than the feature map; spatial pyramids have 13.
_LARGEST_WINDOW = 1024


def maxpool(section: Section, graph: DarknetGraph) -> str:
    """The largest value of each window."""
    section.refuse("antialiasing", "maxpool_depth", "maxpool_zero_nonmax")
    return _pool(section, graph, "MaxPool")


def local_avgpool(section: Section, graph: DarknetGraph) -> str:
    """The mean of each window, of the pixels that are there."""
    return _pool(section, graph, "AveragePool", count_include_pad=0)


def avgpool(section: Section, graph: DarknetGraph) -> str:
    """The mean of each channel."""
    return graph.node("GlobalAveragePool", graph.before, name=graph.layer)


def upsample(section: Section, graph: DarknetGraph) -> str:
    """Every pixel `stride` times in both directions; with a negative stride, the sum over each square of pixels."""
    shape = graph.size(graph.before)
    stride = section.integer("stride", 2)
    scale = section.number("scale", 1.0)
    side = abs(stride)
    if stride == 0 or (stride < 0 and (shape.height % side or shape.width % side)):
        raise section.error(f"stride={stride} does not divide the feature map", option="stride", why=f"it is {shape}")
    if stride < 0:
        scale *= side * side
    name = graph.layer if scale == 1 else f"{graph.layer}_unscaled"
    if stride > 0:
        value = graph.node(
            "Resize",
            graph.before,
            "",
            graph.constant(np.array([1, 1, side, side], np.float32), f"{graph.layer}_scales"),
            name=name,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    else:
        value = graph.node("AveragePool", graph.before, name=name, kernel_shape=[side] * 2, strides=[side] * 2)
    return value if scale == 1 else graph.node("Mul", value, graph.constant(np.float32(scale)), name=graph.layer)


def reorg(section: Section, graph: DarknetGraph) -> str:
    """Squares of pixels become channels, in Darknet's own order (`reorg_cpu` in src/blas.c).

    Darknet hands the input's sizes to a function that expects the output's. So the values are taken for a feature
    map of stride x stride times fewer channels and more pixels, whose squares are gathered into channels; and the
    result is taken for a feature map of the right shape. With `reverse`, both are the same.
    """
    section.refuse("extra", "flatten")
    channels, height, width = shape = graph.size(graph.before)
    stride = section.integer("stride", 1, lowest=1)
    square = stride * stride
    _check_divides(section, square, shape, channels)
    if section.integer("reverse", 0):
        return graph.node("DepthToSpace", graph.before, name=graph.layer, blocksize=stride, mode="DCR")
    _check_divides(section, stride, shape, height, width)
    value = graph.reshaped(graph.before, f"{graph.layer}_spread", channels // square, height * stride, width * stride)
    value = graph.node("SpaceToDepth", value, name=f"{graph.layer}_gathered", blocksize=stride)
    return graph.reshaped(value, graph.layer, channels * square, height // stride, width // stride)


def reorg3d(section: Section, graph: DarknetGraph) -> str:
    """Squares of pixels become channels: what AlexeyAB's fork made of [reorg], with the right sizes."""
    section.refuse("reverse")
    shape = graph.size(graph.before)
    stride = section.integer("stride", 1, lowest=1)
    _check_divides(section, stride, shape, shape.height, shape.width)
    return graph.node("SpaceToDepth", graph.before, name=graph.layer, blocksize=stride)


def _check_divides(section: Section, divisor: int, shape: Shape, *sizes: int) -> None:
    """Check that a stride, or its square, divides some of the sizes of what goes in."""
    if any(size % divisor for size in sizes):
        stated = section.text("stride", "1")
        raise section.error(f"stride={stated} does not divide what goes in", option="stride", why=f"it is {shape}")


def _pool(section: Section, graph: DarknetGraph, operator: str, **attributes: Attribute) -> str:
    """Pooling over windows; `padding` counts the pixels of both sides together, of which the right gets the odd one.

    The first window begins at -padding / 2, rounded towards zero, and (side + padding - size) / stride + 1 fit
    (src/maxpool_layer.c).
    """
    _, height, width = graph.size(graph.before)
    stride = strides(section)
    size = section.integer("size", section.integer("stride", 1), lowest=1)
    if size > _LARGEST_WINDOW:
        raise section.error(f"size={size} is too large", option="size", why=f"{_LARGEST_WINDOW} is the most")
    padding = section.integer("padding", size - 1, lowest=0)
    before, after = padding // 2, padding - padding // 2
    if after >= size:
        why = f"windows of {size} pixels would lie outside of the feature map"
        raise section.error(f"padding={padding} is too large", option="padding", why=why)
    check_window(section, size, height + padding, width + padding)
    pads = [before, before, after, after]
    return graph.node(
        operator, graph.before, name=graph.layer, kernel_shape=[size, size], strides=stride, pads=pads, **attributes
    )
