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
    from edgedeploy.frontends.architectures.convnext import convnext_tiny
    from edgedeploy.frontends.architectures.efficientdet import efficientdet
    from edgedeploy.frontends.architectures.inception import inception_v3
    from edgedeploy.frontends.architectures.mobilenet import mobilenet_v2, mobilenet_v3
    from edgedeploy.frontends.architectures.nanodet import nanodet_m
    from edgedeploy.frontends.architectures.resnet import resnet18, resnet34, resnet50, resnet101
    from edgedeploy.frontends.architectures.vgg import vgg16
    from edgedeploy.frontends.architectures.yolov3 import yolov3
    from edgedeploy.frontends.architectures.yolox import yolox

    return {
        "convnext_tiny": convnext_tiny,
        "efficientdet-d0": lambda: efficientdet(0),
        "efficientdet-d1": lambda: efficientdet(1),
        "efficientdet-d2": lambda: efficientdet(2),
        "inception_v3": inception_v3,
        "mobilenet_v2": mobilenet_v2,
        "mobilenet_v3_large": lambda: mobilenet_v3("large"),
        "mobilenet_v3_small": lambda: mobilenet_v3("small"),
        "nanodet-m": nanodet_m,
        "resnet18": resnet18,
        "resnet34": resnet34,
        "resnet50": resnet50,
        "resnet101": resnet101,
        "vgg16": vgg16,
        "yolov3": yolov3,
        "yolox-nano": lambda: yolox("nano"),
        "yolox-tiny": lambda: yolox("tiny"),
    }
