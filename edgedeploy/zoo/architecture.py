"""Entries that state an architecture, as a format of networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgedeploy.documents import read_document
from edgedeploy.errors import ModelError
from edgedeploy.frontends.architectures import build
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Converted, ConvertedFormat, ImportOptions, Shapes
from edgedeploy.zoo.entry import ZooModel


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


FORMAT = ArchitectureFormat()
