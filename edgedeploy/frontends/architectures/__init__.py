"""Architectures: networks whose form is published and whose weights are not in reach, with seeded random weights.

They serve to build, to time and to try decoders on the true layers; what they see means nothing. The file that
describes such a network is its entry in the zoo, which states an architecture instead of files, or beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgedeploy.frontends.format import Converted


def build(name: str) -> Converted:
    """An architecture in ONNX's terms; the same at every call."""
    return _builders()[name]()


def _builders() -> Mapping[str, Callable[[], Converted]]:
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
