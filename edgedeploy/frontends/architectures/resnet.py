"""ResNets for ImageNet, layer by layer as the files of the ONNX model zoo have them, which come from GluonCV.

ResNet-34 and ResNet-101 are torchvision's.

The first version is that of He et al., "Deep Residual Learning for Image Recognition" (2015, arXiv:1512.03385), the
second, which normalises before each convolution, that of "Identity Mappings in Deep Residual Networks" (2016,
arXiv:1603.05027).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from edgedeploy.frontends.architectures.layers import Layers, Value
from edgedeploy.frontends.format import Converted

_Block = Callable[[Layers, Value, int, int], Value]

SIZE = 224
CLASSES = 1000
# Values of pixels after the usual mean and scale.
_RANGE = (-2.1, 2.6)


def resnet18() -> Converted:
    """ResNet-18 v1: input `data`, 1x3x224x224; logits, 1x1000."""
    layers, value = _begin("resnet18")
    value = layers.max_pool(_normalised(layers, value), 3, 2)
    value = _staged(layers, value, _plain_block, ((64, 1, 2), (128, 2, 2), (256, 2, 2), (512, 2, 2)))
    return _end(layers, value, "resnetv15_dense0_fwd")


def resnet50() -> Converted:
    """ResNet-50 v2: input `data`, 1x3x224x224; logits, 1x1000."""
    layers, value = _begin("resnet50", normalise=True)
    value = layers.max_pool(_normalised(layers, value), 3, 2)
    value = _staged(layers, value, _bottleneck, ((256, 1, 3), (512, 2, 4), (1024, 2, 6), (2048, 2, 3)))
    return _end(layers, _normalised(layers, value), "resnetv24_dense0_fwd")


def resnet34() -> Converted:
    """ResNet-34 v1 as torchvision has it: input `input`, 1x3x224x224; logits `output`, 1x1000."""
    layers, value = _begin("resnet34", "input")
    value = layers.max_pool(_normalised(layers, value), 3, 2)
    value = _staged(layers, value, _plain_block, ((64, 1, 3), (128, 2, 4), (256, 2, 6), (512, 2, 3)))
    return _end(layers, value, "output")


def resnet101() -> Converted:
    """ResNet-101 v1 as torchvision has it, which halves maps in 3x3 convolutions; names as those of ResNet-34."""
    layers, value = _begin("resnet101", "input")
    value = layers.max_pool(_normalised(layers, value), 3, 2)
    value = _staged(layers, value, _first_bottleneck, ((256, 1, 3), (512, 2, 4), (1024, 2, 23), (2048, 2, 3)))
    return _end(layers, value, "output")


def _staged(layers: Layers, value: Value, block: _Block, stages: Iterable[tuple[int, int, int]]) -> Value:
    """Blocks of each stage, of which its channels, the stride of the first block and their number are given."""
    for channels, stride, blocks in stages:
        for number in range(blocks):
            value = block(layers, value, channels, 1 if number else stride)
    return value


def _plain_block(layers: Layers, value: Value, channels: int, stride: int) -> Value:
    """Two convolutions beside a shortcut; it is a convolution where the size changes."""
    branch = _normalised(layers, layers.conv(value, channels, 3, stride))
    branch = layers.normalise(layers.conv(branch, channels, 3))
    if stride > 1 or value.channels != channels:
        value = layers.normalise(layers.conv(value, channels, 1, stride))
    return layers.node("Relu", layers.sum(branch, value))


def _bottleneck(layers: Layers, value: Value, channels: int, stride: int) -> Value:
    """Three convolutions, of which the middle one has a quarter of the channels, beside a shortcut."""
    begin = _normalised(layers, value)
    branch = _normalised(layers, layers.conv(begin, channels // 4, 1))
    branch = _normalised(layers, layers.conv(branch, channels // 4, 3, stride))
    branch = layers.conv(branch, channels, 1)
    return layers.sum(branch, layers.conv(begin, channels, 1, stride) if value.channels != channels else value)


def _first_bottleneck(layers: Layers, value: Value, channels: int, stride: int) -> Value:
    """The same three convolutions in the first version, which normalises after each."""
    branch = _normalised(layers, layers.conv(value, channels // 4, 1))
    branch = _normalised(layers, layers.conv(branch, channels // 4, 3, stride))
    branch = layers.normalise(layers.conv(branch, channels, 1))
    if value.channels != channels:
        value = layers.normalise(layers.conv(value, channels, 1, stride))
    return layers.node("Relu", layers.sum(branch, value))


def _normalised(layers: Layers, value: Value) -> Value:
    return layers.node("Relu", layers.normalise(value))


def _begin(name: str, image_name: str = "data", *, normalise: bool = False) -> tuple[Layers, Value]:
    """The image and the first convolution."""
    layers = Layers(name, epsilon=1e-5)
    image = layers.image(image_name, (SIZE, SIZE), *_RANGE)
    return layers, layers.conv(layers.normalise(image) if normalise else image, 64, 7, 2)


def _end(layers: Layers, value: Value, output: str) -> Converted:
    """The classes of the mean of all pixels."""
    value = layers.node("Flatten", layers.node("GlobalAveragePool", value))
    return Converted(layers.model([layers.output(output, layers.dense(value, CLASSES))]), [])
