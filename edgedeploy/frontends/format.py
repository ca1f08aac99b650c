"""A format of network files: recognised by its content, and read as a `Network`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from edgedeploy.base.files import is_file
from edgedeploy.errors import InputError, ModelError
from edgedeploy.model.heads import Head

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgedeploy.model.network import Network
    from edgedeploy.model.tensors import TensorSpec

Shapes = Mapping[str, Sequence[int]]
Values = Mapping[str, Any]  # the number that each input always is, or a list of them

HEAD_BYTES = 4096  # of a file that `recognises` gets

MOST_ELEMENTS = 2**31 - 1  # of an input


@dataclass(frozen=True)
class ImportOptions:
    """Settings that a network's file leaves open.

    Attributes:
        weights: `file` reads them; `random` takes seeded ones, to build and time an architecture alone.
        epsilon: the number that batch normalisation adds to the variance, for formats that do not state it; None is
            the format's default.
        values: the value that an input always has, by input: it becomes a constant. Arrays are stored as lists.
        lengths: an axis of an input, by input, whose length is another input, `length_name`: outputs are those of the
            network built for that length, followed by zeros.
    """

    weights: Literal["file", "random"] = "file"
    epsilon: float | None = None
    values: Values = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Store numbers and lists, which can be part of a key and of a manifest."""
        plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in self.values.items()}
        object.__setattr__(self, "values", plain)


AS_THE_FILE_SAYS = ImportOptions()


def length_name(name: str) -> str:
    """The name of the input, int64 of shape 1, that states the length of the input `name`."""
    return f"{name}.length"


def unfit_shape(path: Path, name: str, given: Sequence[int], why: str, hints: Sequence[str] = ()) -> InputError:
    """The error for a given shape that an input cannot have; `why` follows the shape."""
    what = f"{path}: the shape of input {name!r} does not fit"
    return InputError(what, why=f"{','.join(map(str, given))} was given{why}", hints=hints)


def check_given_shapes(path: Path, shapes: Shapes, inputs: Sequence[str]) -> None:
    """Refuse shapes for names that are not inputs, and shapes that no tensor can have."""
    for name, shape in shapes.items():
        if name not in inputs:
            raise InputError(f"{path} has no input {name!r}", why=f"its inputs: {', '.join(inputs)}")
        if min(shape, default=1) < 1 or math.prod(shape) > MOST_ELEMENTS:
            raise unfit_shape(path, name, shape, f": sizes begin at 1, and inputs end at {MOST_ELEMENTS:,} elements")


def check_shapes(path: Path, inputs: Sequence[TensorSpec], wanted: Shapes) -> None:
    """Refuse shapes that differ from those that a file fixes."""
    stated = {spec.name: spec.shape for spec in inputs}
    check_given_shapes(path, wanted, list(stated))
    for name, shape in wanted.items():
        if list(shape) != stated[name]:
            raise InputError(
                f"{path}: the shape of input {name!r} cannot be changed",
                why=f"{','.join(map(str, shape))} was given, the file states {','.join(map(str, stated[name]))}",
                hints=["convert or export the network again for the shape that you need"],
            )


@dataclass(frozen=True)
class Converted:
    """A network in ONNX's terms."""

    model: onnx.ModelProto  # with inputs of fixed shapes
    heads: Sequence[Head] = ()  # detection heads, according to the file
    values: Mapping[str, np.ndarray] = field(default_factory=dict)  # of inputs that always have one, and are none then
    stated: onnx.ModelProto | None = None  # if there are such values: the model with them as inputs
    metadata: Mapping[str, str] = field(default_factory=dict)  # according to the file; see `edgedeploy.model.metadata`


class Format(ABC):
    """One format. Its module imports nothing slow at the top: every format is asked about every file."""

    name: ClassVar[str]
    # Of the file that describes the network, then of those with its weights and its use, if any.
    suffixes: ClassVar[tuple[str, ...]]
    # The Python packages, besides TVM, that read it or give its reference; builds depend on their versions.
    packages: ClassVar[tuple[str, ...]] = ()
    sets_inputs: ClassVar[bool] = False  # whether values of inputs can be fixed

    @abstractmethod
    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins with these bytes, at most `HEAD_BYTES`, describes a network of this format."""

    def honoured(self, options: ImportOptions) -> ImportOptions:
        """The options that this format honours: weights in the network's own file are never random."""
        return replace(options, weights="file") if len(self.suffixes) == 1 else options

    def files(self, path: Path, options: ImportOptions = AS_THE_FILE_SAYS) -> list[Path]:
        """All files of the network that `path` describes, itself first."""
        if len(self.suffixes) == 1 or options.weights == "random":
            return [path]
        weights = path.with_suffix(self.suffixes[1])
        if weights == path:
            raise ModelError(
                f"{path} describes a {self.name} network, but has the name of its weights",
                hints=[f"name it {path.with_suffix(self.suffixes[0]).name}, and the file with the weights {path.name}"],
            )
        if not is_file(weights):
            raise self.without_weights(path)
        return [path, weights]

    def without_weights(self, path: Path) -> ModelError:
        """The error for missing weights, which this format has in a file of their own."""
        weights = path.with_suffix(self.suffixes[1])
        return ModelError(
            f"{path} has no weights",
            why=f"{self.name} has them in a separate file, and there is no {weights}",
            hints=[
                f"put {weights.name} next to it",
                "if they are elsewhere: edgedeploy models import, with both files and a --name",
                "build with random weights to measure speed: --weights random",
            ],
        )

    def open_input(
        self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS
    ) -> str | None:
        """The first input whose shape neither the files nor `shapes` state; arguments are those of `read`.

        Formats that leave shapes open override it.
        """
        return None

    def metadata(self, files: Sequence[Path]) -> Mapping[str, str]:
        """How a network is used according to its files, before it is imported; see `edgedeploy.model.metadata`."""
        return {}

    @abstractmethod
    def read(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Network:
        """Import a network.

        Args:
            files: as `files` gives them.
            shapes: shapes of inputs by name, for inputs with free dimensions, or to replace a fixed shape.
        """
