"""What a section of a cfg file becomes: a layer with its shape and weights, which knows how to write itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal, NamedTuple

import numpy as np

from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.graph import Graph
from edgedeploy.heads import Head

# Values of one tensor: Darknet counts them in an int.
_MOST_VALUES = 2**31 - 1
# 1 GiB of weights; VGG-16, the largest of Darknet's own, has half of that. An ONNX model ends at 2 GiB.
_MOST_PARAMETERS = 2**28
# Far beyond any network; they bound what a small file can make us do.
_MOST_LAYERS = 2048
_MOST_READS = 8192

# The number of the network's input among the layers.
INPUT = -1

# Writes a layer: the graph, the layer's name, the values it reads, its weights; returns the name of its output.
Write = Callable[[Graph, str, Sequence[str], Sequence[np.ndarray]], str]


class Shape(NamedTuple):
    """The shape of what a layer outputs for one image; vectors are feature maps of one pixel."""

    channels: int
    height: int
    width: int

    @property
    def size(self) -> int:
        """The number of values."""
        return prod(self)

    def __str__(self) -> str:
        return "x".join(map(str, self))


@dataclass(frozen=True)
class Parameter:
    """An array of weights that a layer reads from the file.

    Attributes:
        role: what it is.
        shape: its shape.
        gain: for kernels and matrices, the variance of the outputs as a multiple of the inputs' mean square, with
            random weights.
        optional: whether there are files without it, which mean zeros.
    """

    role: Literal["bias", "scale", "mean", "variance", "kernel", "matrix"]
    shape: tuple[int, ...]
    gain: float = 1.0
    optional: bool = False

    @property
    def count(self) -> int:
        """The number of values."""
        return prod(self.shape)


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        section: what describes it.
        inputs: numbers of the layers it reads; `INPUT` is the network's input.
        shape: of its output.
        write: writes it.
        parameters: its weights, in the file's order.
        detects: whether it is a detection head: an output of the network, which no other layer can read.
        head: what decoders need to know of it, where they could do something with that.
        counts: whether it can be the network's output; Darknet passes over [cost].
    """

    section: Section
    inputs: Sequence[int]
    shape: Shape
    write: Write
    parameters: Sequence[Parameter] = ()
    detects: bool = False
    head: Head | None = None
    counts: bool = True


@dataclass
class Plan:
    """The layers of a network up to some section.

    Attributes:
        batch: how many images the network takes at once.
        image: the shape of one.
        epsilon: what batch normalisation adds to the variance.
    """

    batch: int
    image: Shape
    epsilon: float
    layers: list[Layer] = field(default_factory=list)
    parameters: int = 0
    reads: int = 0

    def add(self, layer: Layer) -> None:
        """Append a layer.

        Raises:
            ModelError: it reads detections, its output is empty or too large, or there is too much of something.
        """
        self.check(layer.section, layer.shape)
        for index in layer.inputs:
            if index != INPUT and self.layers[index].detects:
                raise layer.section.error(
                    f"it reads layer {index}",
                    why=f"[{self.layers[index].section.kind}] outputs detections, which are the network's outputs",
                    hints=["put a [route] to an earlier layer between them"],
                )
        self.parameters += sum(parameter.count for parameter in layer.parameters)
        self.reads += len(layer.inputs)
        self.layers.append(layer)
        for what, count, most in (
            ("weights", self.parameters, _MOST_PARAMETERS),
            ("layers", len(self.layers), _MOST_LAYERS),
            ("connections", self.reads, _MOST_READS),
        ):
            if count > most:
                why = f"up to here there are {count:,}, and {most:,} are the most that are read"
                raise layer.section.error(f"the network has too many {what}", why=why)

    def check(self, section: Section, shape: Shape) -> None:
        """Make sure that a layer's output can be.

        Raises:
            ModelError: it is empty, or too large.
        """
        if min(shape) < 1:
            raise section.error("nothing comes out of it", why=f"its output is {shape}")
        if self.batch * shape.size > _MOST_VALUES:
            raise section.error("its output is too large", why=f"it is {shape}")

    @property
    def previous(self) -> int:
        """The number of the layer before, which most layers read."""
        return len(self.layers) - 1

    def shape(self, index: int) -> Shape:
        """The shape of a layer's output."""
        return self.image if index == INPUT else self.layers[index].shape

    def sources(self, section: Section, option: str) -> list[int]:
        """The layers that an option names, counted from the first, or with a minus from the section on backwards.

        Raises:
            ModelError: it names none, or one that is not before the section.
        """
        stated = section.integers(option)
        if not stated:
            raise section.error(f"{option} is missing", hints=[f"state the layers that it reads: {option}=-2"])
        count = len(self.layers)
        found = [count + index if index < 0 else index for index in stated]
        for number, index in zip(stated, found, strict=True):
            if not 0 <= index < count:
                raise section.error(
                    f"{option}={number} is no layer before it", option=option, why=f"it is layer {count} itself"
                )
        return found

    def name(self, section: Section) -> str:
        """The name of the layer that a section is about to become."""
        return f"{section.kind}_{len(self.layers)}"
