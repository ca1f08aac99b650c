"""The network that the sections of a cfg file describe, written section by section."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from edgedeploy.errors import ModelError
from edgedeploy.frontends.darknet import joins, layers
from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.darknet.graph import INPUT_NAME, DarknetGraph, Shape
from edgedeploy.frontends.format import Shapes, check_given_shapes, unfit_shape
from edgedeploy.frontends.graph import Value

# As AlexeyAB's fork has it; the original adds 1e-6 to the square root on CPUs and 1e-5 to the variance on GPUs.
_EPSILON = 1e-5

# They write the layer of a section and return its output.
_LAYERS: tuple[Callable[[Section, DarknetGraph], Value], ...] = (
    *(layers.activation, layers.batchnorm, layers.connected, layers.convolutional, layers.maxpool),
    *(layers.reorg, layers.reorg3d, layers.softmax, layers.upsample),
    *(joins.region, joins.route, joins.scale_channels, joins.shortcut, joins.yolo),
)
_KINDS = {function.__name__: function for function in _LAYERS} | {
    **dict.fromkeys(("cost", "dropout", "empty", "silence"), lambda section, graph: graph.before),
    "avgpool": lambda section, graph: graph.node("GlobalAveragePool", graph.before),
    "local_avgpool": partial(layers.pool, operator="AveragePool", count_include_pad=0),
    "sam": partial(joins.product, factors="per value"),
}

_SHORT = {
    "avg": "avgpool",
    "conn": "connected",
    "conv": "convolutional",
    "local_avg": "local_avgpool",
    "max": "maxpool",
    "soft": "softmax",
}


def translated(path: Path, sections: Sequence[Section], shapes: Shapes, epsilon: float | None = None) -> DarknetGraph:
    """The network that a cfg file describes, without the values of its weights.

    `shapes` may replace the input's that [net] states. Batch normalisation adds an epsilon of 1e-5 by default.
    """
    if not sections or sections[0].kind not in ("net", "network"):
        raise ModelError(f"{path} is not a cfg file of Darknet", why="its first section is not [net]")
    batch, image = _input(path, sections[0], shapes)
    graph = DarknetGraph(path.stem, sections[0], batch, image, _EPSILON if epsilon is None else epsilon)
    for each in sections[1:]:
        section = replace(each, kind=_SHORT.get(each.kind, each.kind))
        if section.kind not in _KINDS:
            raise replace(each, kind=each.kind[:40]).error(
                "this section is not supported",
                why="supported are " + ", ".join(f"[{kind}]" for kind in sorted(_KINDS)),
                hints=["cut the network before it, or give an ONNX file that another tool converted it to"],
            )
        graph.section = section
        graph.begin(f"{graph.layer}_")
        graph.add(_KINDS[section.kind](section, graph))
    if not graph.outputs:
        raise ModelError(f"{path} has no layers", hints=["check that it is complete"])
    return graph


def _input(path: Path, section: Section, shapes: Shapes) -> tuple[int, Shape]:
    """The size of the batch and the shape of an image."""
    sides = ("channels", "height", "width")
    missing = [side for side in sides if side not in section.options]
    if missing:
        raise section.error(
            f"{', '.join(missing)} is not stated",
            why="only networks that take images are supported",
            hints=["state channels, height and width"],
        )
    stated = [section.integer(side, 0, lowest=1) for side in sides]
    check_given_shapes(path, shapes, [INPUT_NAME])
    given = list(shapes.get(INPUT_NAME, [1, *stated]))
    if len(given) != 4 or given[1] != stated[0]:
        why = f", the network states 1,{','.join(map(str, stated))}"
        raise unfit_shape(path, INPUT_NAME, given, why, ["batch, height and width can be changed"])
    return given[0], Shape(*given[1:])
