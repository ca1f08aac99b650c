"""NanoDet-m (github.com/RangiLyu/nanodet): ShuffleNet v2, a pyramid of sums, and light heads."""

from __future__ import annotations

from edgedeploy.frontends.architectures.layers import Layers, Value, prior
from edgedeploy.frontends.format import Converted

SIZE = 320
CLASSES = 80
_BINS = 8
_PYRAMID_CHANNELS = 96
# ShuffleNet v2 1.0x (Ma et al., 2018, arXiv:1807.11164): channels and blocks of its stages.
_STAGES = [(116, 4), (232, 8), (464, 4)]
# Of the scores before their sigmoid; with it a few places exceed the usual thresholds.
_SPREAD = 1.0


def nanodet_m() -> Converted:
    """NanoDet-m for COCO: input `data`, 1x3x320x320.

    Outputs for each stride s of 8, 16 and 32: `cls_pred_stride_s`, 1 x cells x 80, after a sigmoid, and
    `dis_pred_stride_s`, 1 x cells x 32.
    """
    layers = Layers("nanodet-m", epsilon=1e-5)
    value = layers.leaky(layers.normalise(layers.conv(layers.image("data", (SIZE, SIZE), -2, 2), 24, 3, 2)))
    value = layers.max_pool(value, 3, 2)
    levels = []
    for channels, blocks in _STAGES:
        value = _reduction(layers, value, channels)
        for _ in range(blocks - 1):
            value = _unit(layers, value)
        levels.append(value)
    outputs = []
    for stride, level in zip((8, 16, 32), _fuse(layers, levels), strict=True):
        scores, distances = _head(layers, level)
        outputs.append(layers.output(f"cls_pred_stride_{stride}", layers.rows(scores, CLASSES)))
        outputs.append(layers.output(f"dis_pred_stride_{stride}", layers.rows(distances, 4 * _BINS)))
    return Converted(layers.model(outputs))


def _reduction(layers: Layers, value: Value, channels: int) -> Value:
    """The block that halves height and width: both branches take all channels."""
    past = _pointwise(layers, layers.normalise(layers.depthwise(value, 3, 2)), channels // 2)
    return _shuffle(layers, layers.concat(past, _branch(layers, value, channels // 2, 2)))


def _unit(layers: Layers, value: Value) -> Value:
    """A block that passes half of the channels on as they are."""
    half = value.channels // 2
    past, through = layers.split(value, half, half)
    return _shuffle(layers, layers.concat(past, _branch(layers, through, half, 1)))


def _branch(layers: Layers, value: Value, channels: int, stride: int) -> Value:
    value = layers.normalise(layers.depthwise(_pointwise(layers, value, channels), 3, stride))
    return _pointwise(layers, value, channels)


def _pointwise(layers: Layers, value: Value, channels: int) -> Value:
    return layers.leaky(layers.normalise(layers.conv(value, channels, 1)))


def _shuffle(layers: Layers, value: Value) -> Value:
    """Channels of the first and of the second half in turn."""
    (height, width), channels = value.size, value.channels
    halves = layers.reshape(value, 1, 2, channels // 2, height, width)
    return layers.reshape(layers.node("Transpose", halves, perm=[0, 2, 1, 3, 4]), 1, channels, height, width)


def _fuse(layers: Layers, levels: list[Value]) -> list[Value]:
    """The pyramid: levels are added from coarse to fine, then from fine to coarse."""
    fused = [layers.conv(level, _PYRAMID_CHANNELS, 1, bias=0.0) for level in levels]
    for index in (1, 0):
        fused[index] = layers.sum(fused[index], layers.resize(fused[index + 1], 2, "linear"))
    for index in (1, 2):
        fused[index] = layers.sum(fused[index], layers.resize(fused[index - 1], 0.5, "linear"))
    return fused


def _head(layers: Layers, value: Value) -> tuple[Value, Value]:
    """Scores and distributions of each cell, which share all layers."""
    for _ in range(2):
        value = layers.leaky(layers.normalise(layers.depthwise(value, 3)))
        value = _pointwise(layers, value, _PYRAMID_CHANNELS)
    bias = [prior(0.01)] * CLASSES + [0.0] * (4 * _BINS)
    [both] = layers.predict([value], len(bias), bias=bias, spread=_SPREAD)
    scores, distances = layers.split(both, CLASSES, 4 * _BINS)
    return layers.node("Sigmoid", scores), distances
