"""What a name of the zoo or a path means as the source of a build, and which files belong to it."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edgedeploy.base.catalog import builtin_folder
from edgedeploy.base.documents import read_document
from edgedeploy.base.extras import require_build
from edgedeploy.base.files import is_file, is_folder, sha256_of
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import InputError, MissingWeightsError, ModelError
from edgedeploy.frontends.architectures import build
from edgedeploy.frontends.converted import ConvertedFormat
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Converted, Format, ImportOptions, Shapes
from edgedeploy.frontends.formats import describing, holds_network, suffixes
from edgedeploy.zoo.entry import MODELS, ZooModel

if TYPE_CHECKING:
    from edgedeploy.model.network import Network


class ArchitectureFormat(ConvertedFormat):
    """Entries of the zoo with an architecture, as a format of networks; it recognises no files."""

    name = "architecture"
    suffixes = (".yaml",)

    def recognises(self, head: bytes) -> bool:
        """Never."""
        return False

    def honoured(self, options: ImportOptions) -> ImportOptions:
        """All of them."""
        return options

    def convert(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Converted:
        """The architecture with seeded weights."""
        from edgedeploy.frontends.onnx import fixed

        entry = read_document(files[0], ZooModel)
        if entry.architecture is None:
            raise ModelError(f"{files[0]} states no architecture")
        built = build(entry.architecture)
        return Converted(fixed(files[0], built.model, shapes), built.heads)


_ARCHITECTURE = ArchitectureFormat()


@dataclass(frozen=True)
class Source:
    """A network to build."""

    # The package's name: that of the model in the zoo, or of the file without its suffix; see `package_model`
    name: str
    format: Format
    files: tuple[Path, ...]  # the network's files, the one that describes it first
    shapes: Shapes
    options: ImportOptions = AS_THE_FILE_SAYS
    further: tuple[Shapes, ...] = ()  # more shapes of inputs, each for an entry point of its own in the same package

    def __post_init__(self) -> None:
        """Refuse values and lengths of inputs that the format does not support."""
        if self.options.lengths and not self.format.sets_inputs:
            raise InputError(
                f"{self.file} takes inputs of one length",
                why=f"ONNX files can be built for several, and its format is {self.format.name}",
                hints=["export the network to ONNX"],
            )
        if self.options.values and not self.format.sets_inputs:
            raise InputError(
                f"{self.file}: input {next(iter(self.options.values))!r} cannot be set",
                why=f"that is possible in ONNX files, and its format is {self.format.name}",
                hints=["export the network to ONNX, or again with the value as a constant"],
            )

    @staticmethod
    def of(path: Path, shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS, *, name: str | None = None) -> Source:
        """The network that a file describes or is a part of."""
        found, description = describing(path)
        options = found.honoured(options)
        # A file with the name of an entry of the user's own gets a package of its own.
        own = path.stem in MODELS.names() and not MODELS.find(path.stem).resolve().is_relative_to(builtin_folder())
        called = name or package_model(path.name if own else path.stem)
        return Source(called, found, tuple(found.files(description, options)), dict(shapes), options)

    @property
    def file(self) -> Path:
        """The file that describes the network."""
        return self.files[0]

    @cached_property
    def sha256(self) -> list[str]:
        """SHA-256 of each file."""
        return [sha256_of(path) for path in self.files]

    def open_input(self) -> str | None:
        """The first input of open shape; see `Format.open_input`."""
        return self.format.open_input(self.files, self.shapes, self.options)

    def metadata(self) -> Mapping[str, str]:
        """The metadata in the files; see `Format.metadata`."""
        return self.format.metadata(self.files)

    def with_further(self, further: Sequence[Shapes], batches: Sequence[int] = ()) -> Source:
        """The source with more entry points.

        Args:
            further: shapes by input name of each; other inputs have the shapes of the first entry point.
            batches: sizes of the first dimension of every input; each gives one entry point for each of the shapes.
        """
        entries = [self.shapes, *({**self.shapes, **shapes} for shapes in further)]
        if batches:
            stated = [replace(self, shapes=shapes).input_shapes() for shapes in entries]
            entries = [
                {name: [size, *sizes[1:]] for name, sizes in shapes.items()} for shapes in stated for size in batches
            ]
        first, *others = (dict(shapes) for shapes in entries)
        if first in others or any(shapes in others[:place] for place, shapes in enumerate(others)):
            raise InputError("two entries have the same shapes", why="nothing could tell which one is meant")
        return replace(self, shapes=first, further=tuple(others))

    def input_shapes(self) -> dict[str, list[int]]:
        """The shapes of all inputs, as stated by `shapes` or the file."""
        if not isinstance(self.format, ConvertedFormat):
            raise InputError(
                f"{self.file} has one batch size", why=f"files of {self.format.name} fix the shapes of their inputs"
            )
        graph = self.format.convert(self.files, self.shapes, self.options).model.graph
        shapes = {value.name: [size.dim_value for size in value.type.tensor_type.shape.dim] for value in graph.input}
        if scalars := [name for name, sizes in shapes.items() if not sizes]:
            raise InputError(f"input {scalars[0]!r} has no batch", why="it is a scalar")
        return shapes

    def of_each_entry(self) -> list[Source]:
        """A source for each entry point."""
        return [replace(self, shapes=shapes, further=()) for shapes in (self.shapes, *self.further)]

    def read(self) -> Network:
        """Import it for the first of its shapes; see `Format.read`."""
        return self.format.read(self.files, self.shapes, self.options)


def package_model(name: str) -> str:
    """A network's name for packages and folders on boards: letters without accents, digits, dots and dashes.

    Runs of other characters become one dash; the result is truncated to 100 characters.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._")[:100] or "network"


def means_file(model: str) -> bool:
    """Whether `model` is a network's file or folder, rather than a name or entry of the zoo."""
    path = Path(model)
    if path.suffix in (".yaml", ".yml"):
        return False
    if is_file(path) or holds_network(path):
        return True
    if path.suffix.lower() in suffixes() or os.sep in model:
        if is_folder(path):
            return True
        raise ModelError(f"there is no file {model}", hints=["check its path"])
    return False


def find_source(
    model: str, shapes: Shapes | None = None, progress: Progress = SILENT, options: ImportOptions = AS_THE_FILE_SAYS
) -> Source:
    """The network with a name in the zoo or a path; it is downloaded if needed."""
    require_build(f"{model} cannot be read, nor built")
    if means_file(model):
        return Source.of(Path(model), shapes or {}, options)
    from edgedeploy.zoo.store import fetch, obtainable

    asked, entry = MODELS.find(model), MODELS.load(model)
    if not entry.has_form:
        raise users_own(asked.stem, entry)
    entry_path, entry = obtainable(asked, entry, progress)
    name = package_model(asked.stem)
    # The entry's shape fills free dimensions; the command line overrides it.
    shapes = {entry.input.name: entry.input.shape, **(shapes or {})}
    if not entry.has_weights and options.weights != "random":
        raise MissingWeightsError(
            f"the zoo has no weights of {name}",
            why="no public file of them is known to it",
            hints=[
                "take random ones, to measure speed or to try a demo: --weights random",
                "give a file of such a network instead: for demos with --model FILE",
            ],
        )
    if entry.architecture and (not entry.files or options.weights == "random"):
        return Source(name, _ARCHITECTURE, (entry_path,), shapes, options)
    wanted = entry.files[:1] if options.weights == "random" else entry.files
    files = tuple(fetch(file, folder=entry_path.parent, progress=progress) for file in wanted)
    found, _ = describing(files[0])
    return Source(name, found, files, shapes, found.honoured(options))


def users_own(name: str, entry: ZooModel) -> MissingWeightsError:
    """The error for an entry without a network."""
    return MissingWeightsError(
        f"{name} stands for a network of your own",
        why=f"the zoo has none: {entry.licence}",
        hints=["name its file; for a demo: --model FILE", *entry.yours],
    )


def note_weights(source: Source, asked: ImportOptions, progress: Progress) -> None:
    """Note if random weights were requested but the file's are used."""
    if source.options.weights != asked.weights:
        progress.note(f"{source.name}: its weights are taken, as they are part of its {source.format.name} file")
