"""Architectures: networks with a published form, whose weights are not available, with seeded random weights.

They serve to build, to time and to try decoders on the true layers; their results mean nothing. The file that
describes such a network is its entry in the zoo, which states an architecture instead of files, or besides them.
"""

from __future__ import annotations

from edgedeploy.frontends.format import Converted


def build(name: str) -> Converted:
    """An architecture as an ONNX model; the same at every call."""
    from edgedeploy.frontends.architectures import classifiers, detectors  # they import onnx, which takes a while

    if name.startswith("efficientdet-d"):
        return detectors.efficientdet(int(name[-1]))
    if name.startswith("mobilenet_v3_"):
        return classifiers.mobilenet_v3(name.removeprefix("mobilenet_v3_"))
    builders = {
        "convnext_tiny": classifiers.convnext_tiny,
        "inception_v3": classifiers.inception_v3,
        "mobilenet_v2": classifiers.mobilenet_v2,
        "nanodet-m": detectors.nanodet_m,
        "resnet18": classifiers.resnet18,
        "resnet34": classifiers.resnet34,
        "resnet50": classifiers.resnet50,
        "resnet101": classifiers.resnet101,
        "vgg16": classifiers.vgg16,
        "yolov3": detectors.yolov3,
        "yolox-nano": lambda: detectors.yolox("nano", 0.25, depthwise=True),
        "yolox-tiny": lambda: detectors.yolox("tiny", 0.375, depthwise=False),
    }
    return builders[name]()
