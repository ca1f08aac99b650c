"""Architectures: networks whose form is published and whose weights are not in reach, with seeded random weights.

They serve to build, to time and to try decoders on the true layers; what they see means nothing. `ARCHITECTURES`
has a function for each name that entries of the zoo may state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgedeploy.frontends.format import Converted
    from edgedeploy.zoo.entry import Architecture


def build(name: Architecture) -> Converted:
    """The architecture `name` in ONNX's terms; the same at every call."""
    return _architectures()[name]()


def _architectures() -> Mapping[Architecture, Callable[[], Converted]]:
    """A function for each name; the modules import onnx, which takes a while."""
    from edgedeploy.zoo.architectures.efficientdet import efficientdet
    from edgedeploy.zoo.architectures.nanodet import nanodet_m
    from edgedeploy.zoo.architectures.yolov3 import yolov3
    from edgedeploy.zoo.architectures.yolox import yolox

    return {
        "efficientdet-d0": lambda: efficientdet(0),
        "efficientdet-d1": lambda: efficientdet(1),
        "efficientdet-d2": lambda: efficientdet(2),
        "nanodet-m": nanodet_m,
        "yolov3": yolov3,
        "yolox-nano": lambda: yolox("nano"),
        "yolox-tiny": lambda: yolox("tiny"),
    }
