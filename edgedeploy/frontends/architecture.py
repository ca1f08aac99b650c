"""Architectures that edgedeploy writes itself: the file that describes such a network is its entry in the zoo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgedeploy.documents import read_document
from edgedeploy.errors import ModelError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Converted, ConvertedFormat, ImportOptions, Shapes
from edgedeploy.zoo.entry import ZooModel


class ArchitectureFormat(ConvertedFormat):
    """Entries of the zoo that name an architecture instead of files; they have random weights only."""

    name = "architecture"
    suffixes = (".yaml",)

    def recognises(self, head: bytes) -> bool:
        """No file is recognised: entries are found by their names in the zoo."""
        return False

    def files(self, path: Path, options: ImportOptions = AS_THE_FILE_SAYS) -> list[Path]:
        """The entry.

        Raises:
            ModelError: other weights than random ones are asked for.
        """
        if options.weights != "random":
            raise ModelError(
                f"there are no weights of {path.stem}",
                why="the zoo knows no public file of it, only its architecture",
                hints=[
                    "build with random weights to measure speed: --weights random",
                    "give a file of such a network instead: for demos with --model FILE",
                ],
            )
        return [path]

    def convert(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Converted:
        """The architecture with seeded weights."""
        from edgedeploy.frontends.onnx import fixed
        from edgedeploy.zoo.architectures import build

        entry = read_document(files[0], ZooModel)
        if entry.architecture is None:
            raise ModelError(f"{files[0]} names no architecture")
        built = build(entry.architecture)
        return Converted(fixed(files[0], built.model, shapes), built.heads)


FORMAT = ArchitectureFormat()
