"""A format that is translated into ONNX's terms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from edgedeploy.errors import OpenShapeError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Converted, Format, ImportOptions, Shapes
from edgedeploy.model.network import Network


class ConvertedFormat(Format):
    """A format that is translated into ONNX's terms in memory.

    There is one importer to maintain, onnxruntime gives the reference of every build, and other engines can be measured
    on the same network.
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
        from edgedeploy.frontends.onnx.network import network_of

        return network_of(files[0], self.convert(files, shapes, options))
