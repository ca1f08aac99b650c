"""VGG-16 for ImageNet (Simonyan and Zisserman, 2014, arXiv:1409.1556), without batch normalisation."""

from __future__ import annotations

from edgedeploy.frontends.architectures.layers import Layers
from edgedeploy.frontends.architectures.resnet import CLASSES, SIZE
from edgedeploy.frontends.format import Converted

_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
_HIDDEN = 4096


def vgg16() -> Converted:
    """Input `input`, 1x3x224x224; logits `output`, 1x1000."""
    layers = Layers("vgg16", epsilon=1e-5)
    value = layers.image("input", (SIZE, SIZE), -2.1, 2.6)
    for channels, convolutions in _STAGES:
        for _ in range(convolutions):
            value = layers.node("Relu", layers.conv(value, channels, 3, bias=0.0, gain=2.0))
        value = layers.max_pool(value, 2, 2, padding=0)
    value = layers.node("Flatten", value)
    for _ in range(2):
        value = layers.node("Relu", layers.dense(value, _HIDDEN, gain=2.0))
    return Converted(layers.model([layers.output("output", layers.dense(value, CLASSES))]), [])
