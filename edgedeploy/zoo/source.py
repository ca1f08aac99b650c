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

from edgedeploy.catalog import builtin_folder
from edgedeploy.documents import read_document
from edgedeploy.errors import InputError, MissingWeightsError, ModelError
from edgedeploy.extras import require_build
from edgedeploy.files import is_file, is_folder, sha256_of
from edgedeploy.frontends.architectures import build
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Converted, ConvertedFormat, Format, ImportOptions, Shapes
from edgedeploy.frontends.formats import describing, holds_network, suffixes
from edgedeploy.progress import SILENT, Progress
from edgedeploy.zoo.entry import MODELS, ZooModel

if TYPE_CHECKING:
    from edgedeploy.network import Network


class ArchitectureFormat(ConvertedFormat):
    """Entries of the zoo that state an architecture. No file is asked whether it is one: the zoo knows them by name."""

    name = "architecture"
    suffixes = (".yaml",)

    def recognises(self, head: bytes) -> bool:
        """Never."""
        return False

    def honoured(self, options: ImportOptions) -> ImportOptions:
        """All of them: an entry holds no weights."""
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
    """What is to be built.

    Attributes:
        name: the package's name: the model's name in the zoo, or the file's without its suffix, as `package_model`
            writes it.
        format: what the network's files are.
        files: the network's files, the one that describes it first.
        shapes: shapes of inputs by name.
        options: what the files leave open.
        further: more shapes of inputs, each for an entry point of its own in the same package.
    """

    name: str
    format: Format
    files: tuple[Path, ...]
    shapes: Shapes
    options: ImportOptions = AS_THE_FILE_SAYS
    further: tuple[Shapes, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values of inputs that the format cannot make constants of, and lengths that it cannot leave open."""
        if self.options.lengths and not self.format.sets_inputs:
            raise InputError(
                f"{self.file} takes inputs of one length",
                why=f"ONNX files can be built for several, and it is of {self.format.name}",
                hints=["export the network to ONNX"],
            )
        if self.options.values and not self.format.sets_inputs:
            raise InputError(
                f"{self.file}: input {next(iter(self.options.values))!r} cannot be set",
                why=f"that is possible in ONNX files, and it is of {self.format.name}",
                hints=["export the network to ONNX, or again with the value as a constant"],
            )

    @staticmethod
    def of(path: Path, shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS, *, name: str | None = None) -> Source:
        """What a file describes, or is a part of."""
        found, description = describing(path)
        options = found.honoured(options)
        called = name or package_model(path.name if _is_imported(path.stem) else path.stem)
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
        """The first input whose shape neither the files nor `shapes` state; see `Format.open_input`."""
        return self.format.open_input(self.files, self.shapes, self.options)

    def metadata(self) -> Mapping[str, str]:
        """What the files say of how it is used; see `Format.metadata`."""
        return self.format.metadata(self.files)

    def with_further(self, further: Sequence[Shapes], batches: Sequence[int] = ()) -> Source:
        """The same with more entry points; of inputs that one does not name, the shapes are those of the first.

        Args:
            further: shapes by input name of each.
            batches: sizes of the first dimension of every input: each makes an entry point of each of the shapes.
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
        """The shapes of all inputs, as they are given or the file states them."""
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
        """The same for each entry point alone."""
        return [replace(self, shapes=shapes, further=()) for shapes in (self.shapes, *self.further)]

    def read(self) -> Network:
        """Import it for the first of its shapes; see `Format.read`."""
        return self.format.read(self.files, self.shapes, self.options)


def _is_imported(name: str) -> bool:
    """Whether an entry of the user's own has a name: a file of that name keeps a package of its own beside it."""
    return name in MODELS.names() and not MODELS.find(name).resolve().is_relative_to(builtin_folder())


def package_model(name: str) -> str:
    """A network's name as packages and folders on boards have it: letters without accents, digits, dots and dashes.

    Runs of anything else become one dash, and what is longer than 100 letters is cut off.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._")[:100] or "network"


def means_file(model: str) -> bool:
    """Whether `model` means a network's file or folder, and no name or entry of the zoo."""
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
    model: str,
    shapes: Shapes | None = None,
    progress: Progress = SILENT,
    options: ImportOptions = AS_THE_FILE_SAYS,
) -> Source:
    """The network that `model` means, a name of the zoo or a path; it is downloaded if it is not here yet."""
    require_build(f"{model} cannot be read, nor built")
    if means_file(model):
        return Source.of(Path(model), shapes or {}, options)
    if not MODELS.load(model).has_form:
        raise users_own(MODELS.find(model).stem, MODELS.load(model))
    from edgedeploy.zoo.store import fetch, obtainable

    asked = MODELS.find(model)
    entry_path, entry = obtainable(asked, MODELS.load(model), progress)
    name = package_model(asked.stem)
    # The entry's shape fills free dimensions; what is given on the command line goes before it.
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
    """The error for an entry that has no network, in the place of one."""
    return MissingWeightsError(
        f"{name} stands for a network of your own",
        why=f"the zoo has none: {entry.licence}",
        hints=["name its file; for a demo: --model FILE", *entry.yours],
    )


def note_weights(source: Source, asked: ImportOptions, progress: Progress) -> None:
    """Tell the user if random weights were asked for and are not taken."""
    if source.options.weights != asked.weights:
        progress.note(f"{source.name}: its weights are taken, as they are part of its {source.format.name} file")
