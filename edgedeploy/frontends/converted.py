"""Formats that are translated into ONNX's terms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from edgedeploy.errors import OpenShapeError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Converted, Format, ImportOptions, Shapes
from edgedeploy.network import Network


class ConvertedFormat(Format):
    """A format that is translated into ONNX's terms in memory.

    So there is one importer to keep right, onnxruntime gives the reference of every build, and other engines can be
    measured on the same network.
    """

    packages = ("onnx", "onnxruntime")

    @abstractmethod
    def convert(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Converted:
        """The network in ONNX's terms; arguments and errors are those of `read`."""

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
