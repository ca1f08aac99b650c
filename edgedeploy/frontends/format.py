"""What every format of network files is to edgedeploy: recognised by its content, and read as a `Network`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from edgedeploy.errors import InputError, ModelError, OpenShapeError
from edgedeploy.files import is_file
from edgedeploy.heads import Head

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgedeploy.network import Network

Shapes = Mapping[str, Sequence[int]]
# By input, the number that it always is, or a list of them.
Values = Mapping[str, Any]

# How much of a file `recognises` is shown, in bytes.
HEAD_BYTES = 4096

_MOST_ELEMENTS = 2**31 - 1  # of an input that is given a shape; far beyond any memory


@dataclass(frozen=True)
class ImportOptions:
    """What a network's file leaves open.

    Attributes:
        weights: `file` reads them; `random` takes seeded ones, so that an architecture alone can be built and timed.
        epsilon: what batch normalisation adds to the variance, for formats that do not say; None is the format's
            own.
        values: by input, the value that it always has: it becomes a constant. Arrays are kept as lists.
        lengths: by input, an axis of which another input, `length_name`, says how much counts: what comes out is what
            the network built for that length gives, followed by zeros.
    """

    weights: Literal["file", "random"] = "file"
    epsilon: float | None = None
    values: Values = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Keep numbers and lists, which can be part of a key and of a manifest."""
        plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in self.values.items()}
        object.__setattr__(self, "values", plain)


AS_THE_FILE_SAYS = ImportOptions()


def length_name(name: str) -> str:
    """What the input is called that says how much of the input `name` counts: int64, of shape 1."""
    return f"{name}.length"


def check_given_shapes(path: Path, shapes: Shapes, inputs: Sequence[str]) -> None:
    """Check that shapes were given for inputs of a network only, and that there can be such tensors."""
    for name, shape in shapes.items():
        if name not in inputs:
            raise InputError(f"{path} has no input {name!r}", why=f"its inputs: {', '.join(inputs)}")
        if min(shape, default=1) < 1 or math.prod(shape) > _MOST_ELEMENTS:
            raise InputError(
                f"{path}: the shape of input {name!r} does not fit",
                why=f"{','.join(map(str, shape))} was given: sizes begin at 1, and inputs end at "
                f"{_MOST_ELEMENTS:,} elements",
            )


@dataclass(frozen=True)
class Converted:
    """A network in ONNX's terms.

    Attributes:
        model: with inputs of fixed shapes.
        heads: what the file says of its detection heads.
        values: by input, what it always is: the network has no such input.
        stated: where there are such values, the model as the file states it, for the reference.
        metadata: what the file says of how it is used; see `edgedeploy.metadata`.
    """

    model: onnx.ModelProto
    heads: Sequence[Head] = ()
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    stated: onnx.ModelProto | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


class Format(ABC):
    """One format. Its module imports nothing slow at the top: every format is asked about every file.

    Attributes:
        name: what people call it.
        suffixes: of the file that describes the network; where they are others, of the file with its weights and of
            one that says how it is used.
        packages: the Python packages, beside TVM, that read it or give its reference; builds depend on their versions.
        sets_inputs: whether values of inputs can be fixed.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    packages: ClassVar[tuple[str, ...]] = ()
    sets_inputs: ClassVar[bool] = False

    @abstractmethod
    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins with these bytes, at most `HEAD_BYTES`, describes a network of this format."""

    def honoured(self, options: ImportOptions) -> ImportOptions:
        """What of the options this format honours: weights that lie in the network's own file are never random."""
        return replace(options, weights="file") if len(self.suffixes) == 1 else options

    def files(self, path: Path, options: ImportOptions = AS_THE_FILE_SAYS) -> list[Path]:
        """All files of the network that `path` describes, itself first."""
        if len(self.suffixes) == 1 or options.weights == "random":
            return [path]
        weights = path.with_suffix(self.suffixes[1])
        if weights == path:
            raise ModelError(
                f"{path} describes a {self.name} network, under the name of its weights",
                hints=[f"name it {path.with_suffix(self.suffixes[0]).name}, and the file with the weights {path.name}"],
            )
        if not is_file(weights):
            raise self.without_weights(path)
        return [path, weights]

    def without_weights(self, path: Path) -> ModelError:
        """The error that a network's weights, which this format keeps in a file of their own, are missing."""
        weights = path.with_suffix(self.suffixes[1])
        return ModelError(
            f"{path} has no weights",
            why=f"{self.name} keeps them in a file of their own, and there is no {weights}",
            hints=[
                f"put {weights.name} beside it",
                "if they lie elsewhere: edgedeploy models import, with both files and a --name",
                "build with random weights to measure speed: --weights random",
            ],
        )

    def open_input(
        self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS
    ) -> str | None:
        """The first input whose shape neither the files nor `shapes` state; arguments and errors are those of `read`.

        Formats that leave shapes open override it.
        """
        return None

    def metadata(self, files: Sequence[Path]) -> Mapping[str, str]:
        """What a network's files say of how it is used, before it is imported; see `edgedeploy.metadata`.

        Formats that say it override it.
        """
        return {}

    @abstractmethod
    def read(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Network:
        """Import a network.

        Args:
            files: as `files` gives them.
            shapes: shapes of inputs by name, for inputs with free dimensions, or to replace a fixed shape.
            options: what the file leaves open.
        """


class ConvertedFormat(Format):
    """A format that is translated into ONNX's terms in memory.

    So there is one importer to keep right, onnxruntime gives the reference of every build, and other engines can be
    measured on the same network.
    """

    packages = ("onnx", "onnxruntime")

    @abstractmethod
    def convert(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Converted:
        """The network in ONNX's terms; arguments are those of `read`."""

    def open_input(
        self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS
    ) -> str | None:
        """See `Format.open_input`."""
        try:
            self.convert(files, shapes, options)
        except OpenShapeError as error:
            return error.input
        return None

    def read(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Network:
        """Import a network; see `Format.read`."""
        from edgedeploy.frontends.onnx_network import network_of

        return network_of(files[0], self.convert(files, shapes, options))
