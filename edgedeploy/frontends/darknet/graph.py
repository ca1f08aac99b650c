"""A Darknet network being converted, and its weights, whose values follow when all sections are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.graph import Graph, Value, is_too_large, times
from edgedeploy.frontends.importing import Cursor, read_bytes
from edgedeploy.model.heads import Head

INPUT_NAME = "data"

# 1 GiB of weights; VGG-16, the largest of Darknet's own, has half of that. An ONNX model ends at 2 GiB.
_MOST_PARAMETERS = 2**28
# Far beyond any network; they bound the work for a small file.
_MOST_LAYERS = 2048
_MOST_READS = 8192

Role = Literal["bias", "scale", "mean", "variance", "kernel", "matrix"]

_HINTS = ("check the file's size and checksum", "check that the cfg file belongs to it: same filters, same classes")

_HEADS = ("yolo", "region")  # detection heads: outputs of the network, which no other layer can read


class Shape(NamedTuple):
    """The shape of a layer's output for one image; vectors are feature maps of one pixel."""

    channels: int
    height: int
    width: int

    @property
    def size(self) -> int:
        """The number of values."""
        return prod(self)

    def __str__(self) -> str:
        return times(self)


@dataclass(frozen=True)
class Parameter:
    """An array of weights that a layer reads from the file."""

    section: Section
    name: str
    role: Role
    shape: tuple[int, ...]
    # For kernels and matrices, the variance of the outputs as a multiple of the inputs' mean square, with random
    # weights.
    gain: float = 1.0
    optional: bool = False  # whether some files lack it, which means zeros


class DarknetGraph(Graph):
    """A network up to some section, whose layers go by numbers from 0 on.

    A layer's last node is named after its section and number, such as `convolutional_3`, and the nodes within it
    after that.
    """

    def __init__(self, name: str, net: Section, batch: int, image: Shape, epsilon: float) -> None:
        super().__init__(name, batch)
        self.section = net
        self.image = image
        self.epsilon = epsilon
        self.parameters: list[Parameter] = []  # the weights, in the file's order
        self.heads: list[Head] = []  # the detection heads that decoders support
        self._layers: list[tuple[str, str, Value]] = []  # names, kinds and outputs
        self._reads = 0
        self._values = 0
        self.check_output("Input", (), (batch, *image))
        self._data = self.input(INPUT_NAME, image)

    def add(self, value: Value) -> None:
        """End the layer, whose output is a value."""
        self._layers.append((self.layer, self.section.kind, self.finish([value], [self.layer])[0]))
        self._check_count("layers", len(self._layers), _MOST_LAYERS)

    @property
    def layer(self) -> str:
        """The name of the current layer."""
        return f"{self.section.kind}_{len(self._layers)}"

    @property
    def previous(self) -> int:
        """The number of the layer before, which most layers read; -1 for the network's input."""
        return len(self._layers) - 1

    @property
    def before(self) -> Value:
        """The output of the layer before."""
        return self.output(self.previous)

    def output(self, index: int) -> Value:
        """The output of a layer, or for -1 the network's input."""
        if index < 0:
            return self._data
        _, kind, value = self._layers[index]
        if kind in _HEADS:
            raise self.section.error(
                f"it reads layer {index}",
                why=f"[{kind}] outputs detections, which are the network's outputs",
                hints=["put a [route] to an earlier layer between them"],
            )
        return value

    def sources(self, option: str) -> list[int]:
        """The layers that an option names, counted from the first, or with a minus backwards from the section."""
        stated = self.section.integers(option)
        if not stated:
            raise self.section.error(f"{option} is missing", hints=[f"state the layers that it reads: {option}=-2"])
        self._reads += len(stated)
        self._check_count("connections", self._reads, _MOST_READS)
        count = len(self._layers)
        found = [count + index if index < 0 else index for index in stated]
        for number, index in zip(stated, found, strict=True):
            if not 0 <= index < count:
                raise self.section.error(
                    f"{option}={number} is not an earlier layer", option=option, why=f"it is layer {count} itself"
                )
        return found

    def parameter(
        self, role: Role, shape: tuple[int, ...], of: str, *, gain: float = 1.0, optional: bool = False
    ) -> Value:
        """The next weights of the file, for the node `of`; see `Parameter`."""
        name = self.declare(shape, f"{of}_{'weight' if role in ('kernel', 'matrix') else role}")
        self.parameters.append(Parameter(self.section, name, role, shape, gain, optional))
        self._values += prod(shape)
        self._check_count("weights", self._values, _MOST_PARAMETERS)
        return name

    @property
    def outputs(self) -> dict[str, Value]:
        """The network's outputs by name: its heads, or without any the last layer that is not [cost]."""
        heads = {name: value for name, kind, value in self._layers if kind in _HEADS}
        others = [(name, value) for name, kind, value in self._layers if kind != "cost"]
        return heads or dict(others[-1:])

    def check_output(self, operator: str, inputs: Sequence[str], shape: Sequence[int]) -> None:
        """See `Graph.check_output`."""
        stated = times(shape[1:])
        if min(shape, default=0) < 1:
            raise self.section.error("it has no output", why=f"its output is {stated}")
        if is_too_large(shape):
            raise self.section.error("its output is too large", why=f"it is {stated}")

    def unsuitable(self, operator: str, why: str) -> ModelError:
        """See `Graph.unsuitable`."""
        return self.section.error(f"{operator} does not suit its inputs", why=why)

    def _check_count(self, what: str, count: int, most: int) -> None:
        if count > most:
            why = f"up to here there are {count:,}, and {most:,} are the most that are read"
            raise self.section.error(f"the network has too many {what}", why=why)


class FileWeights:
    """Weights of a file.

    It begins with the version, major, minor and revision as int32, and with the number of images seen in training:
    int64 from version 0.2 on, int32 before, and if a part of the version exceeds 1000, which means that matrices
    are transposed. Then there are float32 values, layer by layer (`load_weights` in src/parser.c).
    """

    def __init__(self, path: Path, parameters: Sequence[Parameter], description: str) -> None:
        self._cursor = Cursor(path, read_bytes(path))
        major, minor, _ = self._cursor.array("<i4", 3, "the version").tolist()
        self._transposed = major > 1000 or minor > 1000
        early = major * 10 + minor < 2 or major >= 1000 or minor >= 1000
        self._cursor.integer("<i4" if early else "<i8", "the number of images seen")
        self._without_optional = self._check(parameters, description)

    def take(self, parameter: Parameter) -> np.ndarray:
        """The next parameter of the file, float32."""
        if parameter.optional and self._without_optional:
            return np.zeros(parameter.shape, np.float32)
        values = self._cursor.array("<f4", prod(parameter.shape), f"[{parameter.section.kind}]")
        if not np.isfinite(values).all() or (parameter.role == "variance" and values.min() < 0):
            raise parameter.section.error(
                f"its weights in {self._cursor.path.name} are damaged",
                why=f"a {parameter.role} is not finite, or a variance is below zero",
                hints=list(_HINTS),
            )
        if parameter.role == "matrix" and self._transposed:
            return values.reshape(parameter.shape[::-1]).T
        return values.reshape(parameter.shape)

    def _check(self, parameters: Sequence[Parameter], description: str) -> bool:
        """Whether the file leaves out optional parameters."""
        needed = 4 * sum(prod(parameter.shape) for parameter in parameters)
        optional = 4 * sum(prod(parameter.shape) for parameter in parameters if parameter.optional)
        left = self._cursor.left
        if left in (needed, needed - optional):
            return left < needed
        what = "is not complete" if left < needed else "has weights that no layer needs"
        raise ModelError(
            f"{self._cursor.path} {what}",
            why=f"the layers of {description} need {needed:,} bytes, and there are {left:,}",
            hints=_HINTS,
        )


def size_of(value: Value) -> Shape:
    """The shape of a layer's output for one image."""
    return Shape(*value.shape)


class RandomWeights:
    """Seeded weights under which values neither vanish nor explode, however deep the network is.

    Kernels and matrices are normal, with the variance gain / inputs (He et al., 2015, arXiv:1502.01852). Batch
    normalisation is close to the identity.
    """

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)

    def take(self, parameter: Parameter) -> np.ndarray:
        """The next parameter, float32."""
        if parameter.role in ("scale", "variance"):
            return self._random.uniform(0.8, 1.2, parameter.shape).astype(np.float32)
        deviation = 0.1
        if parameter.role in ("kernel", "matrix"):
            deviation = sqrt(parameter.gain / prod(parameter.shape[1:]))
        return self._random.standard_normal(parameter.shape, np.float32) * np.float32(deviation)
