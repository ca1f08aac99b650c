"""MobileNet v2 and v3 for ImageNet, as torchvision has them.

Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (2018, arXiv:1801.04381); Howard et al.,
"Searching for MobileNetV3" (2019, arXiv:1905.02244).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from edgedeploy.frontends.architectures.layers import Layers, Value
from edgedeploy.frontends.architectures.resnet import CLASSES, SIZE
from edgedeploy.frontends.format import Converted

_RANGE = (-2.1, 2.6)

# Of v2's stages: by how much they widen, their channels, their blocks, and the stride of the first one.
_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

# Of v3's blocks: kernel, channels inside, channels, whether channels are weighed, the activation, and the stride.
_Block = tuple[int, int, int, bool, Literal["Relu", "HardSwish"], int]
_LARGE: tuple[_Block, ...] = (
    (3, 16, 16, False, "Relu", 1),
    (3, 64, 24, False, "Relu", 2),
    (3, 72, 24, False, "Relu", 1),
    (5, 72, 40, True, "Relu", 2),
    (5, 120, 40, True, "Relu", 1),
    (5, 120, 40, True, "Relu", 1),
    (3, 240, 80, False, "HardSwish", 2),
    (3, 200, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1),
    (3, 480, 112, True, "HardSwish", 1),
    (3, 672, 112, True, "HardSwish", 1),
    (5, 672, 160, True, "HardSwish", 2),
    (5, 960, 160, True, "HardSwish", 1),
    (5, 960, 160, True, "HardSwish", 1),
)
_SMALL: tuple[_Block, ...] = (
    (3, 16, 16, True, "Relu", 2),
    (3, 72, 24, False, "Relu", 2),
    (3, 88, 24, False, "Relu", 1),
    (5, 96, 40, True, "HardSwish", 2),
    (5, 240, 40, True, "HardSwish", 1),
    (5, 240, 40, True, "HardSwish", 1),
    (5, 120, 48, True, "HardSwish", 1),
    (5, 144, 48, True, "HardSwish", 1),
    (5, 288, 96, True, "HardSwish", 2),
    (5, 576, 96, True, "HardSwish", 1),
    (5, 576, 96, True, "HardSwish", 1),
)
_HIDDEN = {"large": 1280, "small": 1024}


def mobilenet_v2() -> Converted:
    """MobileNet v2: input `input`, 1x3x224x224; logits `output`, 1x1000."""
    layers = Layers("mobilenet_v2", epsilon=1e-5)
    value = layers.conv(layers.image("input", (SIZE, SIZE), *_RANGE), 32, 3, 2)
    value = layers.relu6(layers.normalise(value))
    for widening, channels, blocks, stride in _V2:
        for block in range(blocks):
            inside, step = widening * value.channels, 1 if block else stride
            value = _inverted(layers, value, 3, inside, channels, step, layers.relu6)
    value = layers.relu6(layers.normalise(layers.conv(value, 1280, 1)))
    return _end(layers, layers.node("Flatten", layers.node("GlobalAveragePool", value)))


def mobilenet_v3(size: Literal["large", "small"]) -> Converted:
    """MobileNet v3: input `input`, 1x3x224x224; logits `output`, 1x1000."""
    layers = Layers(f"mobilenet_v3_{size}", epsilon=1e-3)
    swish = partial(layers.node, "HardSwish")
    value = layers.conv(layers.image("input", (SIZE, SIZE), *_RANGE), 16, 3, 2)
    value = swish(layers.normalise(value))
    for kernel, inside, channels, weighed, activation, stride in _LARGE if size == "large" else _SMALL:
        activate = partial(layers.node, activation)
        value = _inverted(layers, value, kernel, inside, channels, stride, activate, weighed=weighed)
    value = swish(layers.normalise(layers.conv(value, 6 * value.channels, 1)))
    value = layers.node("Flatten", layers.node("GlobalAveragePool", value))
    return _end(layers, swish(layers.dense(value, _HIDDEN[size])))


def _inverted(
    layers: Layers,
    value: Value,
    kernel: int,
    inside: int,
    channels: int,
    stride: int,
    activate: Callable[[Value], Value],
    *,
    weighed: bool = False,
) -> Value:
    """A depthwise convolution between two of 1x1, the first of which widens; a shortcut where nothing else changes."""
    branch = value
    if inside != value.channels:
        branch = activate(layers.normalise(layers.conv(branch, inside, 1)))
    branch = activate(layers.normalise(layers.depthwise(branch, kernel, stride)))
    if weighed:
        branch = _weighed(layers, branch)
    branch = layers.normalise(layers.conv(branch, channels, 1))
    return layers.sum(value, branch) if stride == 1 and channels == value.channels else branch


def _weighed(layers: Layers, value: Value) -> Value:
    """Channels, each times a factor that follows from the means of all: squeeze and excitation."""
    squeezed = layers.conv(layers.node("GlobalAveragePool", value), _rounded_to_eight(value.channels // 4), 1, bias=0.0)
    factors = layers.conv(layers.node("Relu", squeezed), value.channels, 1, bias=0.0)
    return layers.node("Mul", layers.node("HardSigmoid", factors, alpha=1 / 6), value)


def _rounded_to_eight(channels: int) -> int:
    """The nearest multiple of eight that is not smaller by more than a tenth."""
    rounded = max(8, (channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def _end(layers: Layers, value: Value) -> Converted:
    return Converted(layers.model([layers.output("output", layers.dense(value, CLASSES))]), [])
