"""Sections that read earlier layers: [route], [shortcut], [scale_channels] and [sam]."""

from __future__ import annotations

from collections.abc import Sequence

from edgedeploy.frontends.darknet.activations import activated, activation_of, name_before
from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.darknet.graph import DarknetGraph, Shape


def route(section: Section, graph: DarknetGraph) -> str:
    """The channels of several layers; with `groups`, of each layer only the part that `group_id` counts from 0."""
    sources = graph.sources("layers")
    groups = section.integer("groups", 1, lowest=1)
    part = section.integer("group_id", 0, lowest=0)
    values = [graph.output(index) for index in sources]
    shapes = [graph.size(value) for value in values]
    for index, shape in zip(sources, shapes, strict=True):
        if shape[1:] != shapes[0][1:]:
            why = f"layer {sources[0]} has {shapes[0]}, layer {index} {shape}"
            raise section.error("its layers have different sizes", option="layers", why=why)
        if part >= groups or shape.channels % groups:
            why = f"they are counted from 0, and layer {index} has {shape.channels} channels"
            raise section.error(f"there is no part {part} of {groups}", option="groups", why=why)
    if groups > 1:
        name = f"{graph.layer}_part" if len(values) > 1 else graph.layer
        counts = [shape.channels // groups for shape in shapes]
        parts = [range(count * part, count * (part + 1)) for count in counts]
        values = [_sliced(graph, value, name, channels) for value, channels in zip(values, parts, strict=True)]
    return values[0] if len(values) == 1 else graph.node("Concat", *values, name=graph.layer, axis=1)


def shortcut(section: Section, graph: DarknetGraph) -> str:
    """The layer before plus others, which need not have its size (`shortcut_cpu` in src/blas.c).

    Of a layer with more channels the first are added, one with fewer is added to the first. Of one with more pixels
    every n-th is added, n being the quotient of the sizes; one with fewer is added to every n-th.
    """
    section.refuse("weights_type", unless="none")
    section.refuse("alpha", "beta", unless="1")
    total = graph.before
    shape = graph.size(total)
    sources = graph.sources("from")
    others = [graph.output(index) for index in sources]
    activation = activation_of(section, "linear")
    for index, other in zip(sources, map(graph.size, others), strict=True):
        if _quotients(shape.width, other.width) != _quotients(shape.height, other.height):
            why = f"layer {graph.previous} has {shape}, layer {index} {other}"
            raise section.error("height and width differ by different factors", option="from", why=why)
    name = name_before(graph, activation)
    for number, value in enumerate(others, 1):
        added = _fitted(graph, value, f"{name}_added", shape)
        total = graph.node("Add", total, added, name=name if number == len(others) else f"{name}_sum")
    return activated(graph, activation, total)


def scale_channels(section: Section, graph: DarknetGraph) -> str:
    """An earlier layer times one factor per channel, or with `scale_wh` per pixel, from the layer before."""
    return _product(section, graph, "per pixel" if section.integer("scale_wh", 0) else "per channel")


def sam(section: Section, graph: DarknetGraph) -> str:
    """An earlier layer times the layer before, element by element."""
    return _product(section, graph, "per value")


def _product(section: Section, graph: DarknetGraph, factors: str) -> str:
    sources = graph.sources("from")
    if len(sources) > 1:
        raise section.error(f"from={section.text('from', '')} is more than one layer", option="from")
    values = graph.output(sources[0]), graph.before
    shape, factor = map(graph.size, values)
    activation = activation_of(section, "linear")
    wanted = {
        "per channel": Shape(shape.channels, 1, 1),
        "per pixel": Shape(1, shape.height, shape.width),
        "per value": shape,
    }[factors]
    if factor != wanted:
        why = f"layer {sources[0]} has {shape} and needs {wanted}, layer {graph.previous} has {factor}"
        raise section.error(f"the layer before has not one factor {factors}", why=why)
    return activated(graph, activation, graph.node("Mul", *values, name=name_before(graph, activation)))


def _quotients(side: int, other: int) -> tuple[int, int]:
    return side // other, other // side


def _fitted(graph: DarknetGraph, value: str, name: str, wanted: Shape) -> str:
    """A value of another shape, as far as a shortcut adds it, with zeros where it adds nothing."""
    shape = graph.size(value)
    stride = max(1, shape.width // wanted.width)
    sample = max(1, wanted.width // shape.width)
    part = Shape(*map(min, shape, wanted))
    if part != shape:
        rows, columns = (range(0, (side - 1) * stride + 1, stride) for side in part[1:])
        value = _sliced(graph, value, f"{name}_part", range(part.channels), rows, columns)
    if sample > 1:
        value = graph.reshaped(value, f"{name}_apart", part.channels, part.height, 1, part.width, 1)
        value = _padded(graph, value, f"{name}_spread", [0, 0, 0, sample - 1, 0, sample - 1])
        part = Shape(part.channels, part.height * sample, part.width * sample)
        value = graph.reshaped(value, f"{name}_together", *part)
    if part != wanted:
        missing = [total - there for total, there in zip(wanted, part, strict=True)]
        value = _padded(graph, value, f"{name}_padded", [0, *missing])
    return value


def _sliced(graph: DarknetGraph, value: str, name: str, *ranges: range) -> str:
    """Part of a value's channels, and of its rows and columns where they are stated too."""
    columns = {
        "starts": [each.start for each in ranges],
        "ends": [each.stop for each in ranges],
        "axes": range(1, len(ranges) + 1),
        "steps": [each.step for each in ranges],
    }
    bounds = [graph.integers(column, f"{name}_{what}") for what, column in columns.items()]
    return graph.node("Slice", value, *bounds, name=name)


def _padded(graph: DarknetGraph, value: str, name: str, after: Sequence[int]) -> str:
    """A value with zeros behind it, as many along each axis as stated."""
    widths = graph.integers([*[0] * len(after), *after], f"{name}_widths")
    return graph.node("Pad", value, widths, name=name)
