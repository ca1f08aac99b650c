"""Sections that read earlier layers, [route], [shortcut], [scale_channels] and [sam], and heads: [yolo], [region]."""

from __future__ import annotations

from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.darknet.graph import DarknetGraph, Shape, size_of
from edgedeploy.frontends.darknet.layers import ACTIVATIONS, activation_of
from edgedeploy.frontends.graph import Value
from edgedeploy.model.heads import Head

_SMALLEST_SIDE, _LARGEST_SIDE = 1e-6, 1e6  # of an anchor's sides, in any unit: far beyond any network


def route(section: Section, graph: DarknetGraph) -> Value:
    """The channels of several layers; with `groups`, of each layer only the part that `group_id` counts from 0."""
    sources = graph.sources("layers")
    groups = section.integer("groups", 1, lowest=1)
    part = section.integer("group_id", 0, lowest=0)
    values = [graph.output(index) for index in sources]
    shapes = [size_of(value) for value in values]
    for index, shape in zip(sources, shapes, strict=True):
        if shape[1:] != shapes[0][1:]:
            why = f"layer {sources[0]} has {shapes[0]}, layer {index} {shape}"
            raise section.error("its layers have different sizes", option="layers", why=why)
        if part >= groups or shape.channels % groups:
            why = f"they are counted from 0, and layer {index} has {shape.channels} channels"
            raise section.error(f"there is no part {part} of {groups}", option="groups", why=why)
    if groups > 1:
        counts = [shape.channels // groups for shape in shapes]
        parts = [range(count * part, count * (part + 1)) for count in counts]
        values = [_cut(graph, value, channels) for value, channels in zip(values, parts, strict=True)]
    return values[0] if len(values) == 1 else graph.node("Concat", *values, axis=0)


def shortcut(section: Section, graph: DarknetGraph) -> Value:
    """The layer before plus others, which need not have its size (`shortcut_cpu` in src/blas.c).

    Of a layer with more channels the first are added, one with fewer is added to the first. Of one with more pixels
    every n-th is added, n being the quotient of the sizes; one with fewer is added to every n-th.
    """
    section.refuse("weights_type", unless="none")
    section.refuse("alpha", "beta", unless="1")
    total = graph.before
    shape = size_of(total)
    sources = graph.sources("from")
    others = [graph.output(index) for index in sources]
    activation = activation_of(section, "linear")
    for index, other in zip(sources, map(size_of, others), strict=True):
        sides = (shape.width, other.width), (shape.height, other.height)
        if len({(side // another, another // side) for side, another in sides}) > 1:
            why = f"layer {graph.previous} has {shape}, layer {index} {other}"
            raise section.error("height and width differ by different factors", option="from", why=why)
    for value in others:
        total = graph.node("Add", total, _fitted(graph, value, shape))
    return ACTIVATIONS[activation](graph, total)


def scale_channels(section: Section, graph: DarknetGraph) -> Value:
    """An earlier layer times one factor per channel, or with `scale_wh` per pixel, from the layer before."""
    return product(section, graph, "per pixel" if section.integer("scale_wh", 0) else "per channel")


def product(section: Section, graph: DarknetGraph, factors: str) -> Value:
    """An earlier layer times the layer before, which has one factor `per channel`, `per pixel` or `per value`."""
    sources = graph.sources("from")
    if len(sources) > 1:
        raise section.error(f"from={section.text('from', '')} is more than one layer", option="from")
    values = graph.output(sources[0]), graph.before
    shape, factor = map(size_of, values)
    activation = activation_of(section, "linear")
    wanted = {
        "per channel": Shape(shape.channels, 1, 1),
        "per pixel": Shape(1, shape.height, shape.width),
        "per value": shape,
    }[factors]
    if factor != wanted:
        why = f"layer {sources[0]} has {shape} and needs {wanted}, layer {graph.previous} has {factor}"
        raise section.error(f"the layer before has not one factor {factors}", why=why)
    return ACTIVATIONS[activation](graph, graph.node("Mul", *values))


def _fitted(graph: DarknetGraph, value: Value, wanted: Shape) -> Value:
    """A value of another shape as a shortcut adds it, with zeros where it adds nothing."""
    shape = size_of(value)
    stride = max(1, shape.width // wanted.width)
    sample = max(1, wanted.width // shape.width)
    part = Shape(*map(min, shape, wanted))
    if part != shape:
        rows, columns = (range(0, (side - 1) * stride + 1, stride) for side in part[1:])
        value = _cut(graph, value, range(part.channels), rows, columns)
    if sample > 1:
        value = graph.reshape(value, [part.channels, part.height, 1, part.width, 1])
        value = graph.pad(value, [0] * 5, [0, 0, sample - 1, 0, sample - 1])
        part = Shape(part.channels, part.height * sample, part.width * sample)
        value = graph.reshape(value, part)
    return graph.pad(value, [0] * 3, [total - there for total, there in zip(wanted, part, strict=True)])


def _cut(graph: DarknetGraph, value: Value, *ranges: range) -> Value:
    """Part of a value's channels, and of its rows and columns if they are given too."""
    starts, stops, steps = zip(*((each.start, each.stop, each.step) for each in ranges), strict=True)
    return graph.cut(value, starts, stops, steps)


def yolo(section: Section, graph: DarknetGraph) -> Value:
    """A head of YOLO v3 or later; its anchors are in pixels of the network's input.

    With new_coords=1 (Scaled-YOLOv4) boxes are computed differently, and decoders do not learn of the head.
    """
    anchors = _anchors(section)
    mask = section.integers("mask")
    if not all(0 <= index < len(anchors) for index in mask):
        raise section.error("its mask names anchors that do not exist", why=f"there are {len(anchors)} anchors")
    chosen = [anchors[index] for index in mask] if mask else _first(section, anchors)
    scale = section.number("scale_x_y", 1.0)
    if not _SMALLEST_SIDE <= scale <= _LARGEST_SIDE:
        raise section.error(f"scale_x_y={scale:g} cannot be", option="scale_x_y", hints=["YOLO v4 has 1.05 to 1.2"])
    head = Head(output=graph.layer, anchors=chosen, classes=section.integer("classes", 20, lowest=1), scale_x_y=scale)
    return _head(section, graph, head, described=not section.integer("new_coords", 0))


def region(section: Section, graph: DarknetGraph) -> Value:
    """A head of YOLO v2; its anchors are in cells (`get_region_box` in src/region_layer.c).

    Decoders do not learn of a head without softmax over the classes, with a tree of classes, or with another number of
    coordinates than four.
    """
    _, height, width = size_of(graph.before)
    cell = graph.image.width / width, graph.image.height / height
    anchors = [(across * cell[0], down * cell[1]) for across, down in _first(section, _anchors(section))]
    coordinates = section.integer("coords", 4, lowest=1)
    plain = section.integer("softmax", 0) and not section.integer("background", 0) and "tree" not in section.options
    head = Head(output=graph.layer, kind="region", anchors=anchors, classes=section.integer("classes", 20, lowest=1))
    return _head(section, graph, head, bool(plain) and coordinates == 4, coordinates)


def _head(section: Section, graph: DarknetGraph, head: Head, described: bool = True, coordinates: int = 4) -> Value:
    """A layer that passes on its input, with `coordinates`, the objectness and the classes for each anchor."""
    channels = size_of(graph.before).channels
    wanted = len(head.anchors) * (coordinates + 1 + (head.classes or 0))
    if channels != wanted:
        raise section.error(
            f"{channels} channels go in",
            why=f"{len(head.anchors)} anchors with {head.classes} classes need {wanted}",
            hints=[f"filters={wanted} in the convolution before it, or other classes or anchors here"],
        )
    if described:
        graph.heads.append(head)
    return graph.before


def _anchors(section: Section) -> list[tuple[float, float]]:
    sides = section.numbers("anchors")
    if not sides or len(sides) % 2 or min(sides) < _SMALLEST_SIDE or max(sides) > _LARGEST_SIDE:
        raise section.error(
            f"anchors={section.text('anchors', '')[:40]} are not anchors",
            option="anchors",
            why=f"each has a width and a height, which are between {_SMALLEST_SIDE:g} and {_LARGEST_SIDE:g}",
        )
    return list(zip(sides[::2], sides[1::2], strict=True))


def _first(section: Section, anchors: list[tuple[float, float]]) -> list[tuple[float, float]]:
    count = section.integer("num", 1, lowest=1)
    if count > len(anchors):
        raise section.error(f"num={count} is too large", option="num", why=f"there are {len(anchors)} anchors")
    return anchors[:count]
