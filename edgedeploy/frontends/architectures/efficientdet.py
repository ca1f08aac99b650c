"""EfficientDet (Tan et al., 2020, arXiv:1911.09070), D0 to D2, as github.com/google/automl defines it.

The backbone is EfficientNet (Tan and Le, 2019, arXiv:1905.11946).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgedeploy.frontends.architectures.layers import Layers, Value, prior
from edgedeploy.frontends.format import Converted

CLASSES = 90
_ANCHORS = 9
_LEVELS = 5  # 3 to 7
# Of the scores before their sigmoid; with it a few places exceed the usual thresholds.
_SPREAD = 0.8


@dataclass(frozen=True)
class _Scale:
    """One of the sizes of table 1 of the paper, and its backbone's factors of width and depth."""

    size: int
    channels: int
    cells: int
    width: float
    depth: float
    head_layers: int = 3


_SCALES = [
    _Scale(size=512, channels=64, cells=3, width=1.0, depth=1.0),
    _Scale(size=640, channels=88, cells=4, width=1.0, depth=1.1),
    _Scale(size=768, channels=112, cells=5, width=1.1, depth=1.2),
]


@dataclass(frozen=True)
class _Stage:
    """A stage of EfficientNet-B0: blocks, kernel, stride, expansion and channels."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    channels: int


_STAGES = [
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
]
# The last stages of levels 3, 4 and 5.
_ENDS = (2, 4, 6)


def efficientdet(number: int) -> Converted:
    """EfficientDet-D0, D1 or D2 for the 90 classes of COCO.

    Input `data`: 1x3xSxS, S 512, 640 or 768. Outputs: `regression`, 1 x anchors x 4, and `classification`,
    1 x anchors x 90, after a sigmoid.
    """
    scale = _SCALES[number]
    layers = Layers(f"efficientdet-d{number}", epsilon=1e-3, tensorflow=True)
    levels = _backbone(layers, layers.image("data", (scale.size, scale.size), -2, 2), scale)
    # Level 6 is made from level 5, and level 7 from level 6.
    levels.append(layers.max_pool(_resample(layers, levels[2], scale.channels), 3, 2))
    levels.append(layers.max_pool(levels[3], 3, 2))
    for _ in range(scale.cells):
        levels = _cell(layers, levels, scale.channels)
    boxes = _head(layers, levels, scale.head_layers, 4, bias=0.0, spread=0.2)
    scores = _head(layers, levels, scale.head_layers, CLASSES, bias=prior(0.01), spread=_SPREAD)
    outputs = [layers.output("regression", boxes)]
    outputs.append(layers.output("classification", layers.node("Sigmoid", scores)))
    return Converted(layers.model(outputs))


def _backbone(layers: Layers, image: Value, scale: _Scale) -> list[Value]:
    """EfficientNet's levels 3, 4 and 5."""
    value = layers.swish(layers.normalise(layers.conv(image, _rounded(32 * scale.width), 3, 2)))
    levels = []
    for index, stage in enumerate(_STAGES):
        for block in range(math.ceil(stage.blocks * scale.depth)):
            stride = 1 if block else stage.stride
            value = _block(layers, value, stage, stride, _rounded(stage.channels * scale.width))
        if index in _ENDS:
            levels.append(value)
    return levels


def _rounded(channels: float) -> int:
    """The nearest multiple of 8 that is not less than 0.9 of it."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


def _block(layers: Layers, value: Value, stage: _Stage, stride: int, channels: int) -> Value:
    """An inverted bottleneck with squeeze and excitation."""
    inner = value
    if stage.expansion > 1:
        inner = layers.swish(layers.normalise(layers.conv(value, stage.expansion * value.channels, 1)))
    inner = layers.swish(layers.normalise(layers.depthwise(inner, stage.kernel, stride)))
    squeezed = layers.conv(layers.node("GlobalAveragePool", inner), max(1, value.channels // 4), 1, bias=0.0)
    gates = layers.node("Sigmoid", layers.conv(layers.swish(squeezed), inner.channels, 1, bias=0.0))
    after = layers.normalise(layers.conv(layers.node("Mul", inner, gates), channels, 1))
    return layers.sum(after, value) if stride == 1 and channels == value.channels else after


def _resample(layers: Layers, value: Value, channels: int) -> Value:
    """A level of the backbone with the pyramid's number of channels; those of the pyramid have it."""
    return value if value.channels == channels else layers.normalise(layers.conv(value, channels, 1, bias=0.0))


def _cell(layers: Layers, levels: list[Value], channels: int) -> list[Value]:
    """One repeat of the bidirectional pyramid: from coarse to fine and back."""

    def own(level: int) -> Value:
        # Each use of a backbone's level has weights of its own.
        return _resample(layers, levels[level], channels)

    down = {_LEVELS - 1: levels[-1]}
    for level in range(_LEVELS - 2, -1, -1):
        down[level] = _node(layers, [own(level), layers.resize(down[level + 1], 2)], channels)
    up = [down[0]]
    for level in range(1, _LEVELS):
        middle = [down[level]] if level < _LEVELS - 1 else []
        up.append(_node(layers, [own(level), *middle, layers.max_pool(up[-1], 3, 2)], channels))
    return up


def _node(layers: Layers, inputs: list[Value], channels: int) -> Value:
    """Fast normalised fusion, then a separable convolution."""
    # Weights are one at the beginning of training; equation 2 of the paper.
    weights = [layers.constant(np.array(1 / (len(inputs) + 1e-4))) for _ in inputs]
    fused = layers.sum(*(layers.node("Mul", value, weight) for value, weight in zip(inputs, weights, strict=True)))
    value = layers.depthwise(layers.swish(fused), 3)
    return layers.normalise(layers.conv(value, channels, 1, bias=0.0))


def _head(layers: Layers, levels: list[Value], depth: int, values: int, *, bias: float, spread: float) -> Value:
    """The values of all anchors, 1 x anchors x values. Levels share filters, but not normalisation."""
    channels = levels[0].channels
    for _ in range(depth):
        depthwise = layers.filters(channels, channels, 3, groups=channels)
        pointwise = layers.filters(channels, channels, 1, bias=0.0)
        found = [layers.apply(pointwise, layers.apply(depthwise, level)) for level in levels]
        levels = [layers.swish(layers.normalise(level)) for level in found]
    depthwise = layers.filters(channels, channels, 3, groups=channels)
    last = [layers.apply(depthwise, level) for level in levels]
    raw = layers.predict(last, _ANCHORS * values, bias=bias, spread=spread)
    return layers.concat(*(layers.rows(level, values) for level in raw))
