"""The Tengine frontend: tmfiles, the format tm2 of Tengine-Lite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Converted, ConvertedFormat, ImportOptions, Shapes
from edgedeploy.frontends.tengine.structure import read_structure, recognised


class Tengine(ConvertedFormat):
    """One file with the network and its weights, in float32, float16, int8 or uint8."""

    name = "Tengine"
    suffixes = (".tmfile",)

    def recognises(self, head: bytes) -> bool:
        """Whether it begins with the header of a tmfile."""
        return recognised(head)

    def convert(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Converted:
        """The network as an ONNX model; its values have the names of the file's tensors."""
        from edgedeploy.frontends.tengine.translation import translated

        return Converted(translated(read_structure(files[0]), shapes))


FORMAT = Tengine()
