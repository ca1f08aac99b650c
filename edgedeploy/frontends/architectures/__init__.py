"""Architectures: networks whose form is published and whose weights are not in reach, with seeded random weights.

They serve to build, to time and to try decoders on the true layers; what they see means nothing. The file that
describes such a network is its entry in the zoo, which states an architecture instead of files, or beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from edgedeploy.documents import read_document
from edgedeploy.errors import ModelError
from edgedeploy.frontends.converted import ConvertedFormat
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Converted, ImportOptions, Shapes
from edgedeploy.zoo.entry import Architecture, ZooModel


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


def build(name: Architecture) -> Converted:
    """An architecture in ONNX's terms; the same at every call."""
    return _builders()[name]()


def _builders() -> Mapping[Architecture, Callable[[], Converted]]:
    """A function for each name; the modules import onnx, which takes a while."""
    from edgedeploy.frontends.architectures.efficientdet import efficientdet
    from edgedeploy.frontends.architectures.nanodet import nanodet_m
    from edgedeploy.frontends.architectures.resnet import resnet18, resnet50
    from edgedeploy.frontends.architectures.yolov3 import yolov3
    from edgedeploy.frontends.architectures.yolox import yolox

    return {
        "efficientdet-d0": lambda: efficientdet(0),
        "efficientdet-d1": lambda: efficientdet(1),
        "efficientdet-d2": lambda: efficientdet(2),
        "nanodet-m": nanodet_m,
        "resnet18": resnet18,
        "resnet50": resnet50,
        "yolov3": yolov3,
        "yolox-nano": lambda: yolox("nano"),
        "yolox-tiny": lambda: yolox("tiny"),
    }
