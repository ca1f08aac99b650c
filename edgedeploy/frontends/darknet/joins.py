"""Sections that read earlier layers: [route], [shortcut], [scale_channels] and [sam]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedeploy.frontends.darknet.activations import activated, activation_of
from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.darknet.layer import Layer, Plan, Shape
from edgedeploy.frontends.darknet.products import reshaped
from edgedeploy.frontends.graph import Graph


def route(section: Section, plan: Plan) -> Layer:
    """The channels of several layers; with `groups`, of each layer only the part that `group_id` counts from 0."""
    sources = plan.sources(section, "layers")
    groups = section.integer("groups", 1, lowest=1)
    part = section.integer("group_id", 0, lowest=0)
    shapes = [plan.shape(index) for index in sources]
    for index, shape in zip(sources, shapes, strict=True):
        if shape[1:] != shapes[0][1:]:
            why = f"layer {sources[0]} has {shapes[0]}, layer {index} {shape}"
            raise section.error("its layers have different sizes", option="layers", why=why)
        if part >= groups or shape.channels % groups:
            why = f"they are counted from 0, and layer {index} has {shape.channels} channels"
            raise section.error(f"there is no part {part} of {groups}", option="groups", why=why)
    counts = [shape.channels // groups for shape in shapes]

    def write(graph: Graph, name: str, values: Sequence[str], weights: Sequence[np.ndarray]) -> str:
        parts = list(values)
        if groups > 1:
            parts = [
                _sliced(
                    graph,
                    value,
                    f"{name}_part" if len(values) > 1 else name,
                    range(count * part, count * (part + 1)),
                )
                for value, count in zip(values, counts, strict=True)
            ]
        return parts[0] if len(parts) == 1 else graph.node("Concat", *parts, name=name, axis=1)

    return Layer(section, sources, Shape(sum(counts), *shapes[0][1:]), write)


def shortcut(section: Section, plan: Plan) -> Layer:
    """The layer before plus others, which need not have its size (`shortcut_cpu` in src/blas.c).

    Of a layer with more channels the first are added, one with fewer is added to the first. Of one with more pixels
    every n-th is added, n being the quotient of the sizes; one with fewer is added to every n-th.
    """
    section.refuse("weights_type", unless="none")
    section.refuse("alpha", "beta", unless="1")
    previous = plan.previous
    shape = plan.shape(previous)
    sources = plan.sources(section, "from")
    others = [plan.shape(index) for index in sources]
    activation = activation_of(section, "linear")
    for index, other in zip(sources, others, strict=True):
        if _quotients(shape.width, other.width) != _quotients(shape.height, other.height):
            why = f"layer {previous} has {shape}, layer {index} {other}"
            raise section.error("height and width differ by different factors", option="from", why=why)

    def write(graph: Graph, name: str, values: Sequence[str], weights: Sequence[np.ndarray]) -> str:
        def add(name: str) -> str:
            total, *added = values
            for number, (value, other) in enumerate(zip(added, others, strict=True), 1):
                fitting = _fitted(graph, value, f"{name}_added", plan.batch, other, shape)
                total = graph.node("Add", total, fitting, name=name if number == len(added) else f"{name}_sum")
            return total

        return activated(graph, name, activation, add)

    return Layer(section, [previous, *sources], shape, write)


def scale_channels(section: Section, plan: Plan) -> Layer:
    """An earlier layer times one factor per channel, or with `scale_wh` per pixel, from the layer before."""
    return _product(section, plan, "per pixel" if section.integer("scale_wh", 0) else "per channel")


def sam(section: Section, plan: Plan) -> Layer:
    """An earlier layer times the layer before, element by element."""
    return _product(section, plan, "per value")


def _product(section: Section, plan: Plan, factors: str) -> Layer:
    previous = plan.previous
    sources = plan.sources(section, "from")
    if len(sources) > 1:
        raise section.error(f"from={section.text('from', '')} is more than one layer", option="from")
    shape, factor = plan.shape(sources[0]), plan.shape(previous)
    activation = activation_of(section, "linear")
    wanted = {
        "per channel": Shape(shape.channels, 1, 1),
        "per pixel": Shape(1, shape.height, shape.width),
        "per value": shape,
    }[factors]
    if factor != wanted:
        why = f"layer {sources[0]} has {shape} and needs {wanted}, layer {previous} has {factor}"
        raise section.error(f"the layer before has not one factor {factors}", why=why)

    def write(graph: Graph, name: str, values: Sequence[str], weights: Sequence[np.ndarray]) -> str:
        return activated(graph, name, activation, lambda name: graph.node("Mul", *values, name=name))

    return Layer(section, [sources[0], previous], shape, write)


def _quotients(side: int, other: int) -> tuple[int, int]:
    return side // other, other // side


def _fitted(graph: Graph, value: str, name: str, batch: int, shape: Shape, wanted: Shape) -> str:
    """A value of another shape, as far as a shortcut adds it, with zeros where it adds nothing."""
    stride = max(1, shape.width // wanted.width)
    sample = max(1, wanted.width // shape.width)
    part = Shape(*map(min, shape, wanted))
    if part != shape:
        rows, columns = (range(0, (side - 1) * stride + 1, stride) for side in part[1:])
        value = _sliced(graph, value, f"{name}_part", range(part.channels), rows, columns)
    if sample > 1:
        value = reshaped(graph, value, f"{name}_apart", batch, part.channels, part.height, 1, part.width, 1)
        value = _padded(graph, value, f"{name}_spread", [0, 0, 0, sample - 1, 0, sample - 1])
        part = Shape(part.channels, part.height * sample, part.width * sample)
        value = reshaped(graph, value, f"{name}_together", batch, *part)
    if part != wanted:
        missing = [total - there for total, there in zip(wanted, part, strict=True)]
        value = _padded(graph, value, f"{name}_padded", [0, *missing])
    return value


def _sliced(graph: Graph, value: str, name: str, *ranges: range) -> str:
    """Part of a value's channels, and of its rows and columns where they are stated too."""
    columns = {
        "starts": [each.start for each in ranges],
        "ends": [each.stop for each in ranges],
        "axes": range(1, len(ranges) + 1),
        "steps": [each.step for each in ranges],
    }
    bounds = [graph.constant(np.array(column, np.int64), f"{name}_{what}") for what, column in columns.items()]
    return graph.node("Slice", value, *bounds, name=name)


def _padded(graph: Graph, value: str, name: str, after: Sequence[int]) -> str:
    """A value with zeros behind it, as many along each axis as stated."""
    widths = graph.constant(np.array([*[0] * len(after), *after], np.int64), f"{name}_widths")
    return graph.node("Pad", value, widths, name=name)
