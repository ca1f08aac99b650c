"""YOLO v3 (Redmon and Farhadi, 2018, arXiv:1804.02767): Darknet-53 and three heads."""

from __future__ import annotations

from edgedeploy.frontends.architectures.layers import Layers, Value, prior
from edgedeploy.frontends.format import Converted
from edgedeploy.heads import Head

SIZE = 416
CLASSES = 80
# Channels of a stage and its residual blocks (table 1 of the paper); each begins by halving height and width.
_STAGES = [(64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)]
# Width and height in pixels, three for each head.
_ANCHORS = [
    [(116.0, 90.0), (156.0, 198.0), (373.0, 326.0)],
    [(30.0, 61.0), (62.0, 45.0), (59.0, 119.0)],
    [(10.0, 13.0), (16.0, 30.0), (33.0, 23.0)],
]
# With these a few places exceed the usual thresholds.
_OBJECTNESS = prior(0.02)
_SPREAD = 1.5


def yolov3() -> Converted:
    """YOLO v3 for COCO: input `data`, 1x3x416x416; outputs `stride32`, `stride16`, `stride8`, each 1x255xHxW."""
    layers = Layers("yolov3", epsilon=1e-5)
    value = _conv(layers, layers.image("data", (SIZE, SIZE), 0, 1), 32, 3)
    stages = []
    for channels, blocks in _STAGES:
        value = _conv(layers, value, channels, 3, stride=2)
        for _ in range(blocks):
            value = layers.sum(value, _conv(layers, _conv(layers, value, channels // 2, 1), channels, 3))
        stages.append(value)
    outputs, heads = [], []
    for index, anchors in enumerate(_ANCHORS):
        channels, stride = 512 >> index, 32 >> index
        if index:
            above = layers.resize(_conv(layers, value, channels, 1), 2)
            value = layers.concat(above, stages[-1 - index])
        for _ in range(2):
            value = _conv(layers, _conv(layers, value, channels, 1), 2 * channels, 3)
        value = _conv(layers, value, channels, 1)
        bias = [0.0, 0, 0, 0, _OBJECTNESS, *[0.0] * CLASSES] * len(anchors)
        [raw] = layers.predict([_conv(layers, value, 2 * channels, 3)], len(bias), bias=bias, spread=_SPREAD)
        outputs.append(layers.output(f"stride{stride}", raw))
        heads.append(Head(output=outputs[-1], anchors=anchors, classes=CLASSES))
    return Converted(layers.model(outputs), heads)


def _conv(layers: Layers, value: Value, channels: int, kernel: int, stride: int = 1) -> Value:
    return layers.leaky(layers.normalise(layers.conv(value, channels, kernel, stride)))
