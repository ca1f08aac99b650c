"""ConvNeXt-Tiny for ImageNet (Liu et al., "A ConvNet for the 2020s", 2022, arXiv:2201.03545), as torchvision has it."""

from __future__ import annotations

from edgedeploy.frontends.architectures.layers import Layers, Value
from edgedeploy.frontends.architectures.resnet import CLASSES, SIZE
from edgedeploy.frontends.format import Converted

_STAGES = ((96, 3), (192, 3), (384, 9), (768, 3))
_EPSILON = 1e-6
# Of the factors of a block's branch after training; they begin at 1e-6.
_LAYER_SCALE = 0.1


def convnext_tiny() -> Converted:
    """Input `input`, 1x3x224x224; logits `output`, 1x1000."""
    layers = Layers("convnext_tiny", epsilon=_EPSILON)
    value = layers.conv(layers.image("input", (SIZE, SIZE), -2.1, 2.6), _STAGES[0][0], 4, 4, bias=0.0, padding=0)
    value = _normalised(layers, value)
    for channels, blocks in _STAGES:
        if value.channels != channels:
            value = layers.conv(_normalised(layers, value), channels, 2, 2, bias=0.0, padding=0)
        for _ in range(blocks):
            value = _block(layers, value)
    value = layers.node("Flatten", _normalised(layers, layers.node("GlobalAveragePool", value)))
    return Converted(layers.model([layers.output("output", layers.dense(value, CLASSES))]), [])


def _block(layers: Layers, value: Value) -> Value:
    """A depthwise convolution and two dense layers at each place, beside a shortcut."""
    channels = value.channels
    branch = layers.node("Transpose", layers.depthwise(value, 7, bias=0.0), perm=[0, 2, 3, 1])
    branch = layers.gelu(layers.product(layers.layer_norm(branch, _EPSILON), 4 * channels))
    branch = layers.node("Transpose", layers.product(branch, channels), perm=[0, 3, 1, 2])
    return layers.sum(layers.scaled(branch, (channels, 1, 1), _LAYER_SCALE), value)


def _normalised(layers: Layers, value: Value) -> Value:
    """Layer normalisation over the channels of each place."""
    value = layers.layer_norm(layers.node("Transpose", value, perm=[0, 2, 3, 1]), _EPSILON)
    return layers.node("Transpose", value, perm=[0, 3, 1, 2])
