"""Sections that move pixels: pooling, [upsample] and [reorg]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.darknet.layer import Layer, Plan, Shape, Write
from edgedeploy.frontends.darknet.products import reshaped, steps, strides
from edgedeploy.frontends.graph import Attribute, Graph

# Of a window's side. Padding lets windows be larger than the feature map; spatial pyramids have 13.
_LARGEST_WINDOW = 1024


def maxpool(section: Section, plan: Plan) -> Layer:
    """The largest value of each window."""
    section.refuse("antialiasing", "maxpool_depth", "maxpool_zero_nonmax")
    return _pool(section, plan, "MaxPool")


def local_avgpool(section: Section, plan: Plan) -> Layer:
    """The mean of each window, of the pixels that are there."""
    return _pool(section, plan, "AveragePool", count_include_pad=0)


def avgpool(section: Section, plan: Plan) -> Layer:
    """The mean of each channel."""
    source = plan.previous
    return Layer(section, [source], Shape(plan.shape(source).channels, 1, 1), _operator("GlobalAveragePool"))


def upsample(section: Section, plan: Plan) -> Layer:
    """Every pixel `stride` times in both directions; with a negative stride, the sum over each square of pixels."""
    source = plan.previous
    shape = plan.shape(source)
    stride = section.integer("stride", 2)
    scale = section.number("scale", 1.0)
    side = abs(stride)
    if stride > 0:
        output = Shape(shape.channels, shape.height * side, shape.width * side)
    elif stride < 0 and shape.height % side == shape.width % side == 0:
        output = Shape(shape.channels, shape.height // side, shape.width // side)
        scale *= side * side
    else:
        raise section.error(f"stride={stride} does not divide the feature map", option="stride", why=f"it is {shape}")

    def write(graph: Graph, name: str, values: Sequence[str], weights: Sequence[np.ndarray]) -> str:
        resized = name if scale == 1 else f"{name}_unscaled"
        if stride > 0:
            scales = graph.constant(np.array([1, 1, side, side], np.float32), f"{name}_scales")
            value = graph.node(
                "Resize",
                values[0],
                "",
                scales,
                name=resized,
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )
        else:
            value = graph.node("AveragePool", values[0], name=resized, kernel_shape=[side] * 2, strides=[side] * 2)
        return value if scale == 1 else graph.node("Mul", value, graph.constant(np.float32(scale)), name=name)

    return Layer(section, [source], output, write)


def reorg(section: Section, plan: Plan) -> Layer:
    """Squares of pixels become channels, in Darknet's own order (`reorg_cpu` in src/blas.c).

    Darknet hands the input's sizes to a function that expects the output's. So the values are taken for a feature
    map of stride x stride times fewer channels and more pixels, whose squares are gathered into channels; and the
    result is taken for a feature map of the right shape. With `reverse`, both are the same.
    """
    section.refuse("extra", "flatten")
    source = plan.previous
    shape = plan.shape(source)
    stride = section.integer("stride", 1, lowest=1)
    square = stride * stride
    if shape.channels % square:
        raise _indivisible(section, stride, shape)
    spread = Shape(shape.channels // square, shape.height * stride, shape.width * stride)
    if section.integer("reverse", 0):
        return Layer(section, [source], spread, _operator("DepthToSpace", blocksize=stride, mode="DCR"))
    gathered = _gathered(section, shape, stride)

    def write(graph: Graph, name: str, values: Sequence[str], weights: Sequence[np.ndarray]) -> str:
        value = reshaped(graph, values[0], f"{name}_spread", plan.batch, *spread)
        value = graph.node("SpaceToDepth", value, name=f"{name}_gathered", blocksize=stride)
        return reshaped(graph, value, name, plan.batch, *gathered)

    plan.check(section, spread)
    return Layer(section, [source], gathered, write)


def reorg3d(section: Section, plan: Plan) -> Layer:
    """Squares of pixels become channels: what AlexeyAB's fork made of [reorg], with the right sizes."""
    section.refuse("reverse")
    source = plan.previous
    shape = plan.shape(source)
    stride = section.integer("stride", 1, lowest=1)
    return Layer(section, [source], _gathered(section, shape, stride), _operator("SpaceToDepth", blocksize=stride))


def _gathered(section: Section, shape: Shape, stride: int) -> Shape:
    if shape.height % stride or shape.width % stride:
        raise _indivisible(section, stride, shape)
    return Shape(shape.channels * stride * stride, shape.height // stride, shape.width // stride)


def _indivisible(section: Section, stride: int, shape: Shape) -> Exception:
    return section.error(f"stride={stride} does not divide what goes in", option="stride", why=f"it is {shape}")


def _pool(section: Section, plan: Plan, operator: str, **attributes: Attribute) -> Layer:
    """Pooling over windows; `padding` counts the pixels of both sides together, of which the right gets the odd one.

    The first window begins at -padding / 2, rounded towards zero, and (side + padding - size) / stride + 1 fit
    (src/maxpool_layer.c).
    """
    source = plan.previous
    shape = plan.shape(source)
    stride_y, stride_x = strides(section)
    size = section.integer("size", section.integer("stride", 1), lowest=1)
    if size > _LARGEST_WINDOW:
        raise section.error(f"size={size} is too large", option="size", why=f"{_LARGEST_WINDOW} is the most")
    padding = section.integer("padding", size - 1, lowest=0)
    before, after = padding // 2, padding - padding // 2
    if after >= size:
        why = f"windows of {size} pixels would lie outside of the feature map"
        raise section.error(f"padding={padding} is too large", option="padding", why=why)
    height = steps(section, shape.height + padding, size, stride_y)
    width = steps(section, shape.width + padding, size, stride_x)
    write = _operator(
        operator,
        kernel_shape=[size, size],
        strides=[stride_y, stride_x],
        pads=[before, before, after, after],
        **attributes,
    )
    return Layer(section, [source], Shape(shape.channels, height, width), write)


def _operator(operator: str, **attributes: Attribute) -> Write:
    """Writes a layer that is one operator on one value."""
    return lambda graph, name, values, weights: graph.node(operator, *values, name=name, **attributes)
