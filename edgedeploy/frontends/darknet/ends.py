"""Sections that stand at a network's end, [softmax], [yolo] and [region], and those that do nothing but in training."""

from __future__ import annotations

import numpy as np

from edgedeploy.frontends.darknet.activations import activated, activation_of
from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.darknet.graph import DarknetGraph
from edgedeploy.heads import Head

# Of an anchor's sides, in whatever unit: far beyond any network.
_SMALLEST_SIDE, _LARGEST_SIDE = 1e-6, 1e6


def softmax(section: Section, graph: DarknetGraph) -> str:
    """Softmax over all values of an image, or over each of `groups` equal parts."""
    section.refuse("spatial")
    section.refuse("tree", unless="")
    name, shape = graph.layer, graph.size(graph.before)
    groups = section.integer("groups", 1, lowest=1)
    temperature = section.number("temperature", 1.0)
    if shape.size % groups:
        raise section.error(f"groups={groups} does not divide {shape.size} values", option="groups")
    if temperature <= 0:
        raise section.error(f"temperature={temperature:g} is not positive", option="temperature")
    value = graph.reshaped(graph.before, f"{name}_groups", groups, shape.size // groups)
    if temperature != 1:
        divisor = graph.constant(np.float32(temperature), f"{name}_temperature")
        value = graph.node("Div", value, divisor, name=f"{name}_divided")
    value = graph.node("Softmax", value, name=f"{name}_grouped", axis=-1)
    return graph.reshaped(value, name, *shape)


def yolo(section: Section, graph: DarknetGraph) -> str:
    """A head of YOLO v3 or later; its anchors are in pixels of the network's input.

    With new_coords=1 (Scaled-YOLOv4) boxes are computed in another way, and no decoder is told of the head.
    """
    anchors = _anchors(section)
    mask = section.integers("mask")
    if not all(0 <= index < len(anchors) for index in mask):
        raise section.error("its mask names anchors that are not there", why=f"there are {len(anchors)} anchors")
    chosen = [anchors[index] for index in mask] if mask else _first(section, anchors)
    scale = section.number("scale_x_y", 1.0)
    if not _SMALLEST_SIDE <= scale <= _LARGEST_SIDE:
        raise section.error(f"scale_x_y={scale:g} cannot be", option="scale_x_y", hints=["YOLO v4 has 1.05 to 1.2"])
    head = Head(output=graph.layer, anchors=chosen, classes=_classes(section), scale_x_y=scale)
    return _head(section, graph, head, described=not section.integer("new_coords", 0))


def region(section: Section, graph: DarknetGraph) -> str:
    """A head of YOLO v2; its anchors are in cells (`get_region_box` in src/region_layer.c).

    No decoder is told of a head without softmax over the classes, with a tree of classes, or with other than four
    coordinates.
    """
    _, height, width = graph.size(graph.before)
    cell = graph.image.width / width, graph.image.height / height
    anchors = [(across * cell[0], down * cell[1]) for across, down in _first(section, _anchors(section))]
    coordinates = section.integer("coords", 4, lowest=1)
    plain = section.integer("softmax", 0) and not section.integer("background", 0) and "tree" not in section.options
    head = Head(output=graph.layer, kind="region", anchors=anchors, classes=_classes(section))
    return _head(section, graph, head, bool(plain) and coordinates == 4, coordinates)


def unchanged(section: Section, graph: DarknetGraph) -> str:
    """A layer that passes on what goes in: [dropout], [cost], [empty] and [silence]."""
    return graph.before


def activation(section: Section, graph: DarknetGraph) -> str:
    """An activation function on its own."""
    return activated(graph, activation_of(section, "linear"), graph.before)


def _head(section: Section, graph: DarknetGraph, head: Head, described: bool = True, coordinates: int = 4) -> str:
    """A layer that outputs what goes in, with `coordinates`, the objectness and the classes for each anchor."""
    channels = graph.size(graph.before).channels
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
    """Width and height of each anchor, as the section states them."""
    sides = section.numbers("anchors")
    if not sides or len(sides) % 2 or min(sides) < _SMALLEST_SIDE or max(sides) > _LARGEST_SIDE:
        raise section.error(
            f"anchors={section.text('anchors', '')[:40]} are no anchors",
            option="anchors",
            why=f"each has a width and a height, which are between {_SMALLEST_SIDE:g} and {_LARGEST_SIDE:g}",
        )
    return list(zip(sides[::2], sides[1::2], strict=True))


def _first(section: Section, anchors: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """As many anchors as `num` says."""
    count = section.integer("num", 1, lowest=1)
    if count > len(anchors):
        raise section.error(f"num={count} is too large", option="num", why=f"there are {len(anchors)} anchors")
    return anchors[:count]


def _classes(section: Section) -> int:
    return section.integer("classes", 20, lowest=1)
