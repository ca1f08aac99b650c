"""Sections that stand at a network's end, [softmax], [yolo] and [region], and those that do nothing but in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from edgedeploy.frontends.darknet.activations import activated, activation_of
from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.darknet.layer import Layer, Plan
from edgedeploy.frontends.darknet.products import reshaped
from edgedeploy.frontends.graph import Graph
from edgedeploy.heads import Head

# Of each anchor, before the classes: x, y, width, height, objectness.
_BEFORE_CLASSES = 5

_DEFAULT_CLASSES = 20


def softmax(section: Section, plan: Plan) -> Layer:
    """Softmax over all values of a picture, or over each of `groups` equal parts."""
    section.refuse("spatial")
    section.refuse("tree", unless="")
    source = plan.previous
    shape = plan.shape(source)
    groups = section.integer("groups", 1, lowest=1)
    temperature = section.number("temperature", 1.0)
    if shape.size % groups:
        raise section.error(f"groups={groups} does not divide {shape.size} values", option="groups")
    if temperature <= 0:
        raise section.error(f"temperature={temperature:g} is not positive", option="temperature")

    def write(graph: Graph, name: str, values: Sequence[str], weights: Sequence[np.ndarray]) -> str:
        value = reshaped(graph, values[0], f"{name}_groups", plan.batch, groups, shape.size // groups)
        if temperature != 1:
            divisor = graph.constant(np.float32(temperature), f"{name}_temperature")
            value = graph.node("Div", value, divisor, name=f"{name}_divided")
        value = graph.node("Softmax", value, name=f"{name}_grouped", axis=-1)
        return reshaped(graph, value, name, plan.batch, *shape)

    return Layer(section, [source], shape, write)


def yolo(section: Section, plan: Plan) -> Layer:
    """A head of YOLO v3 or later; its anchors are in pixels of the network's input.

    With new_coords=1 (Scaled-YOLOv4) boxes are computed in another way, and no decoder is told of the head.
    """
    anchors = _anchors(section)
    mask = section.integers("mask") or list(range(section.integer("num", 1, lowest=1)))
    if not all(0 <= index < len(anchors) for index in mask):
        raise section.error("its mask names anchors that are not there", why=f"there are {len(anchors)} anchors")
    classes = section.integer("classes", _DEFAULT_CLASSES, lowest=1)
    described = not section.integer("new_coords", 0)
    chosen = [anchors[index] for index in mask]
    return _head(section, plan, "yolo", classes, chosen, described)


def region(section: Section, plan: Plan) -> Layer:
    """A head of YOLO v2; its anchors are in cells (`get_region_box` in src/region_layer.c).

    No decoder is told of a head without softmax over the classes, with a tree of classes, or with other than four
    coordinates.
    """
    height, width = plan.shape(plan.previous)[1:]
    cell = plan.picture.width / width, plan.picture.height / height
    anchors = [(across * cell[0], down * cell[1]) for across, down in _anchors(section)]
    count = section.integer("num", 1, lowest=1)
    if count > len(anchors):
        raise section.error(f"num={count} is too large", option="num", why=f"there are {len(anchors)} anchors")
    classes = section.integer("classes", _DEFAULT_CLASSES, lowest=1)
    coordinates = section.integer("coords", 4, lowest=1)
    plain = section.integer("softmax", 0) and not section.integer("background", 0) and "tree" not in section.options
    described = bool(plain) and coordinates == 4
    return _head(section, plan, "region", classes, anchors[:count], described, coordinates + 1)


def unchanged(section: Section, plan: Plan) -> Layer:
    """A layer that passes on what goes in: [dropout], [cost], [empty] and [silence]."""
    source = plan.previous
    return Layer(section, [source], plan.shape(source), _passed_on, counts=section.kind != "cost")


def activation(section: Section, plan: Plan) -> Layer:
    """An activation function on its own."""
    source = plan.previous
    function = activation_of(section, "linear")

    def write(graph: Graph, name: str, values: Sequence[str], weights: Sequence[np.ndarray]) -> str:
        return activated(graph, name, function, lambda _: values[0])

    return Layer(section, [source], plan.shape(source), write)


def _head(
    section: Section,
    plan: Plan,
    kind: Literal["yolo", "region"],
    classes: int,
    anchors: list[tuple[float, float]],
    described: bool,
    before_classes: int = _BEFORE_CLASSES,
) -> Layer:
    source = plan.previous
    shape = plan.shape(source)
    wanted = len(anchors) * (before_classes + classes)
    if shape.channels != wanted:
        raise section.error(
            f"{shape.channels} channels go in",
            why=f"{len(anchors)} anchors with {classes} classes need {wanted}",
            hints=[f"filters={wanted} in the convolution before it, or other classes or anchors here"],
        )
    head = None
    if described:
        head = Head(output=plan.name(section), kind=kind, anchors=anchors, classes=classes)
    return Layer(section, [source], shape, _passed_on, detects=True, head=head)


def _anchors(section: Section) -> list[tuple[float, float]]:
    """Width and height of each anchor, as the section states them."""
    sides = section.numbers("anchors")
    if not sides or len(sides) % 2 or min(sides) <= 0:
        raise section.error(
            f"anchors={section.text('anchors', '')[:40]} are no anchors",
            option="anchors",
            why="each has a width and a height, which are positive",
        )
    return list(zip(sides[::2], sides[1::2], strict=True))


def _passed_on(graph: Graph, name: str, values: Sequence[str], weights: Sequence[np.ndarray]) -> str:
    return values[0]
