"""The Darknet frontend: a cfg file that describes the layers, and a file with their weights.

What cfg files mean is taken from the source of Darknet (J. Redmon, github.com/pjreddie/darknet) and of its fork by
A. Bochkovskiy (github.com/AlexeyAB/darknet), which share the format; where they differ, the modules here say so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from edgedeploy.frontends.converted import ConvertedFormat
from edgedeploy.frontends.darknet.configuration import read_sections
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Converted, ImportOptions, Shapes

# Comments and empty lines, then the section that every cfg file begins with.
_BEGINNING = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t\r]*(?:[#;][^\n]*)?\n)*[ \t]*\[(?:net|network)\]")


class Darknet(ConvertedFormat):
    """Darknet's cfg and weights."""

    name = "Darknet"
    suffixes = (".cfg", ".weights")

    def recognises(self, head: bytes) -> bool:
        """Whether its first section is [net] or [network]."""
        return _BEGINNING.match(head) is not None

    def convert(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Converted:
        """The network as an ONNX model; see `Format.read`.

        Its input is called `data`. Its outputs are the raw heads, the inputs of [yolo] and [region], or without any the
        last layer's output; they are named after their section with the layer's number as Darknet counts it, such as
        `yolo_121`.
        """
        from edgedeploy.frontends.darknet.graph import FileWeights, RandomWeights
        from edgedeploy.frontends.darknet.translation import translated

        graph = translated(files[0], read_sections(files[0]), shapes, options.epsilon)
        weights: FileWeights | RandomWeights = RandomWeights()
        if options.weights != "random":
            if len(files) < 2:
                raise self.without_weights(files[0])
            weights = FileWeights(files[1], graph.parameters, files[0].name)
        for parameter in graph.parameters:
            graph.define(parameter.name, weights.take(parameter))
        outputs = [graph.named(value, name) for name, value in graph.outputs.items()]
        return Converted(graph.model(outputs), graph.heads)


FORMAT = Darknet()
