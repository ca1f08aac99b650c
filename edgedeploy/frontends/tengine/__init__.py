"""The Tengine frontend: tmfiles, the format tm2 of Tengine-Lite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgedeploy.frontends.converted import ConvertedFormat
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Converted, ImportOptions, Shapes
from edgedeploy.frontends.tengine.structure import HEADER, read_structure


class Tengine(ConvertedFormat):
    """One file with the network and its weights, in float32, float16, int8 or uint8."""

    name = "Tengine"
    suffixes = (".tmfile",)

    def recognises(self, head: bytes) -> bool:
        """Whether it begins with the header of a tmfile, of this version or of a later one."""
        if len(head) < HEADER.itemsize:
            return False
        header = np.frombuffer(head, HEADER, 1)[0]
        # Versions are small numbers; the root table comes last, after at least one other.
        return (
            1 <= header["main"] <= 9 and header["sub"] == header["compiled"] == 0 and header["root"] > HEADER.itemsize
        )

    def convert(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Converted:
        """The network as an ONNX model; its values have the names of the file's tensors."""
        from edgedeploy.frontends.tengine.translation import translated

        return Converted(translated(read_structure(files[0]), shapes))


FORMAT = Tengine()
