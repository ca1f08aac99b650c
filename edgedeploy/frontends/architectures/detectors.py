"""Detectors for the classes of COCO: EfficientDet, NanoDet, YOLO v3 and YOLOX.

The spreads of scores before their sigmoid are chosen so that a few places exceed the usual thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from edgedeploy.frontends.architectures.layers import Layers, multiple_of_eight, prior
from edgedeploy.frontends.format import Converted
from edgedeploy.frontends.graph import Graph, Value, operator
from edgedeploy.model.heads import Head

CLASSES = 80

# Of EfficientDet-D0, D1 and D2 (table 1 of the paper): the image's side, channels and cells of the pyramid, and the
# factors of width and depth of the backbone.
_EFFICIENTDETS = [(512, 64, 3, 1.0, 1.0), (640, 88, 4, 1.0, 1.1), (768, 112, 5, 1.1, 1.2)]
_EFFICIENTDET_CLASSES = 90
_ANCHORS_PER_PLACE = 9
_HEAD_LAYERS = 3
_LEVELS = 5  # 3 to 7

# Of the stages of EfficientNet-B0: blocks, kernel, stride, expansion, channels, and whether a level ends there.
_EFFICIENTNET = [
    (1, 3, 1, 1, 16, False),
    (2, 3, 2, 6, 24, False),
    (2, 5, 2, 6, 40, True),
    (3, 3, 2, 6, 80, False),
    (3, 5, 1, 6, 112, True),
    (4, 5, 2, 6, 192, False),
    (1, 3, 1, 6, 320, True),
]


def efficientdet(number: int) -> Converted:
    """EfficientDet (Tan et al., 2020, arXiv:1911.09070), D0 to D2, as github.com/google/automl defines it.

    Input `data`: 1x3xSxS, S 512, 640 or 768. Outputs: `regression`, 1 x anchors x 4, and `classification`,
    1 x anchors x 90, after a sigmoid.
    """
    size, channels, cells, width, depth = _EFFICIENTDETS[number]
    layers = Layers(f"efficientdet-d{number}", Graph.swish, epsilon=1e-3, tensorflow=True)
    levels = _efficientnet(layers, layers.image("data", size, -2, 2), width, depth)
    # Level 6 is computed from level 5, and level 7 from level 6.
    levels.append(layers.max_pool(_resampled(layers, levels[2], channels), 3, 2))
    levels.append(layers.max_pool(levels[3], 3, 2))
    for _ in range(cells):
        levels = _cell(layers, levels, channels)
    boxes = _efficientdet_head(layers, levels, 4, bias=0.0, spread=0.2)
    scores = _efficientdet_head(layers, levels, _EFFICIENTDET_CLASSES, bias=prior(0.01), spread=0.8)
    outputs = [layers.named(boxes, "regression"), layers.named(layers.node("Sigmoid", scores), "classification")]
    return Converted(layers.model(outputs))


def _efficientnet(layers: Layers, image: Value, width: float, depth: float) -> list[Value]:
    """Levels 3, 4 and 5 of EfficientNet (Tan and Le, 2019, arXiv:1905.11946)."""
    value = layers.unit(image, multiple_of_eight(32 * width), 3, 2)
    levels = []
    for blocks, kernel, stride, expansion, channels, ends in _EFFICIENTNET:
        for block in range(math.ceil(blocks * depth)):
            excite = partial(_excite, hidden=max(1, value.shape[1] // 4))
            expanded, rounded = expansion * value.shape[1], multiple_of_eight(channels * width)
            branch = layers.inverted(value, kernel, expanded, rounded, 1 if block else stride, excite)
            value = layers.sum(branch, value) if branch.shape == value.shape else branch
        if ends:
            levels.append(value)
    return levels


def _excite(layers: Layers, value: Value, hidden: int) -> Value:
    return layers.node("Mul", value, layers.excited(value, hidden, Graph.swish, operator("Sigmoid")))


def _resampled(layers: Layers, value: Value, channels: int) -> Value:
    """A level of the backbone with the pyramid's number of channels."""
    return value if value.shape[1] == channels else layers.normalise(layers.conv(value, channels, 1, bias=True))


def _cell(layers: Layers, levels: list[Value], channels: int) -> list[Value]:
    """One repeat of the bidirectional pyramid: from coarse to fine and back."""

    def own(level: int) -> Value:
        return _resampled(layers, levels[level], channels)  # each use of a backbone's level has weights of its own

    down = {_LEVELS - 1: levels[-1]}
    for level in range(_LEVELS - 2, -1, -1):
        down[level] = _fused(layers, [own(level), layers.upsample(down[level + 1])], channels)
    up = [down[0]]
    for level in range(1, _LEVELS):
        middle = [down[level]] if level < _LEVELS - 1 else []
        up.append(_fused(layers, [own(level), *middle, layers.max_pool(up[-1], 3, 2)], channels))
    return up


def _fused(layers: Layers, inputs: list[Value], channels: int) -> Value:
    """Fast normalised fusion, then a separable convolution."""
    # Weights are one at the beginning of training; equation 2 of the paper.
    weights = [layers.floats(1 / (len(inputs) + 1e-4)) for _ in inputs]
    fused = layers.sum(*(layers.node("Mul", value, weight) for value, weight in zip(inputs, weights, strict=True)))
    value = layers.depthwise(layers.swish(fused), 3)
    return layers.normalise(layers.conv(value, channels, 1, bias=True))


def _efficientdet_head(layers: Layers, levels: list[Value], values: int, *, bias: float, spread: float) -> Value:
    """The values of all anchors, 1 x anchors x values. Levels share filters, but not normalisation."""
    channels = levels[0].shape[1]
    for _ in range(_HEAD_LAYERS):
        depthwise = layers.filters(channels, channels, 3, groups=channels)
        pointwise = layers.filters(channels, channels, 1, bias=True)
        found = [layers.apply(pointwise, layers.apply(depthwise, level)) for level in levels]
        levels = [layers.activated(level) for level in found]
    depthwise = layers.filters(channels, channels, 3, groups=channels)
    last = [layers.apply(depthwise, level) for level in levels]
    raw = layers.predict(last, _ANCHORS_PER_PLACE * values, bias=bias, spread=spread)
    return layers.concat(*(layers.rows(level, values) for level in raw))


_LEAKY = partial(Graph.leaky_relu, slope=0.1)
_BINS = 8
_PYRAMID_CHANNELS = 96


def nanodet_m() -> Converted:
    """NanoDet-m (github.com/RangiLyu/nanodet): ShuffleNet v2, a pyramid of sums, and light heads.

    Input `data`, 1x3x320x320. Outputs for each stride s of 8, 16 and 32: `cls_pred_stride_s`, 1 x cells x 80, after a
    sigmoid, and `dis_pred_stride_s`, 1 x cells x 32.
    """
    layers = Layers("nanodet-m", _LEAKY, epsilon=1e-5)
    value = layers.max_pool(layers.unit(layers.image("data", 320, -2, 2), 24, 3, 2), 3, 2)
    levels = []
    # Channels and blocks of the stages of ShuffleNet v2 1.0x (Ma et al., 2018, arXiv:1807.11164).
    for channels, blocks in ((116, 4), (232, 8), (464, 4)):
        half = channels // 2
        # The first block halves height and width, and both of its branches take all channels.
        past = layers.unit(layers.normalise(layers.depthwise(value, 3, 2)), half)
        value = layers.shuffle_channels(layers.concat(past, _shufflenet_branch(layers, value, half, 2)), 2)
        for _ in range(blocks - 1):
            past, through = layers.split(value, [half, half], axis=1)
            value = layers.shuffle_channels(layers.concat(past, _shufflenet_branch(layers, through, half, 1)), 2)
        levels.append(value)
    # The pyramid: levels are added from coarse to fine, then from fine to coarse.
    levels = [layers.conv(level, _PYRAMID_CHANNELS, 1, bias=True) for level in levels]
    for index, other, factor in ((1, 2, 2), (0, 1, 2), (1, 0, 0.5), (2, 1, 0.5)):
        scales = layers.floats([1, 1, factor, factor])
        resized = layers.resize(levels[other], scales, mode="linear", transform="pytorch_half_pixel")
        levels[index] = layers.sum(levels[index], resized)
    outputs = []
    for stride, level in zip((8, 16, 32), levels, strict=True):
        # Scores and distributions of each cell share all layers.
        for _ in range(2):
            level = layers.unit(layers.activated(layers.depthwise(level, 3)), _PYRAMID_CHANNELS)
        bias = [prior(0.01)] * CLASSES + [0.0] * (4 * _BINS)
        [both] = layers.predict([level], len(bias), bias=bias, spread=1.0)
        scores, distances = layers.split(both, [CLASSES, 4 * _BINS], axis=1)
        scores = layers.rows(layers.node("Sigmoid", scores), CLASSES)
        outputs.append(layers.named(scores, f"cls_pred_stride_{stride}"))
        outputs.append(layers.named(layers.rows(distances, 4 * _BINS), f"dis_pred_stride_{stride}"))
    return Converted(layers.model(outputs))


def _shufflenet_branch(layers: Layers, value: Value, channels: int, stride: int) -> Value:
    return layers.unit(layers.normalise(layers.depthwise(layers.unit(value, channels), 3, stride)), channels)


# Width and height in pixels, three for each head.
_YOLOV3_ANCHORS = [
    [(116.0, 90.0), (156.0, 198.0), (373.0, 326.0)],
    [(30.0, 61.0), (62.0, 45.0), (59.0, 119.0)],
    [(10.0, 13.0), (16.0, 30.0), (33.0, 23.0)],
]


def yolov3() -> Converted:
    """YOLO v3 (Redmon and Farhadi, 2018, arXiv:1804.02767): Darknet-53 and three heads.

    Input `data`, 1x3x416x416; outputs `stride32`, `stride16`, `stride8`, each 1x255xHxW.
    """
    layers = Layers("yolov3", _LEAKY, epsilon=1e-5)
    unit = layers.unit
    value = unit(layers.image("data", 416, 0, 1), 32, 3)
    stages = []
    # Channels of a stage and its residual blocks (table 1 of the paper); each begins by halving height and width.
    for channels, blocks in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        value = unit(value, channels, 3, stride=2)
        for _ in range(blocks):
            value = layers.sum(value, unit(unit(value, channels // 2), channels, 3))
        stages.append(value)
    outputs, heads = [], []
    for index, anchors in enumerate(_YOLOV3_ANCHORS):
        channels, stride = 512 >> index, 32 >> index
        if index:
            value = layers.concat(layers.upsample(unit(value, channels)), stages[-1 - index])
        for _ in range(2):
            value = unit(unit(value, channels), 2 * channels, 3)
        value = unit(value, channels)
        bias = [0.0, 0, 0, 0, prior(0.02), *[0.0] * CLASSES] * len(anchors)
        [raw] = layers.predict([unit(value, 2 * channels, 3)], len(bias), bias=bias, spread=1.5)
        outputs.append(layers.named(raw, f"stride{stride}"))
        heads.append(Head(output=str(outputs[-1]), anchors=anchors, classes=CLASSES))
    return Converted(layers.model(outputs), heads)


_YOLOX_SPREAD = 1.6


class _Yolox(Layers):
    """YOLOX (Ge et al., 2021, arXiv:2107.08430), as github.com/Megvii-BaseDetection/YOLOX defines it.

    Input `images`, 1x3x416x416 in 0..255; output `output`, 1x3549x85. It has a third of the depth of YOLOX-L, and a
    `width` relative to it. Large kernels may be depthwise.
    """

    def __init__(self, variant: str, width: float, *, depthwise: bool) -> None:
        super().__init__(f"yolox-{variant}", Graph.swish, epsilon=1e-3)
        self._base = int(64 * width)
        self._conv: Callable[..., Value] = self._separable if depthwise else self.unit

    def whole(self) -> Converted:
        value = self.unit(self._focus(self.image("images", 416, 0, 255)), self._base, 3)
        stages = []
        for stage, blocks in enumerate((1, 3, 3, 1)):
            channels = self._base << (stage + 1)
            value = self._conv(value, channels, 3, 2)
            if stage == 3:
                value = self._pyramid_pooling(value)
            value = self._csp(value, channels, blocks, shortcut=stage < 3)
            stages.append(value)
        rows = [self.rows(self._head(level), 5 + CLASSES) for level in self._fuse(*stages[1:])]
        return Converted(self.model([self.named(self.concat(*rows), "output")]))

    def _separable(self, value: Value, channels: int, kernel: int, stride: int = 1) -> Value:
        return self.unit(self.activated(self.depthwise(value, kernel, stride)), channels)

    def _focus(self, value: Value) -> Value:
        """Each two by two pixels as four times as many channels."""
        ends = [np.array(value.shape[2:], np.int64), *np.array([[2, 3], [2, 2]], np.int64)]
        parts = []
        for column, row in ((0, 0), (0, 1), (1, 0), (1, 1)):
            bounds = [self.constant(each, "slice") for each in (np.array([row, column], np.int64), *ends)]
            parts.append(self.node("Slice", value, *bounds))
        return self.concat(*parts)

    def _pyramid_pooling(self, value: Value) -> Value:
        half = self.unit(value, value.shape[1] // 2)
        return self.unit(self.concat(half, *[self.max_pool(half, kernel) for kernel in (5, 9, 13)]), value.shape[1])

    def _csp(self, value: Value, channels: int, blocks: int = 1, *, shortcut: bool = False) -> Value:
        """Half of the channels through bottlenecks, half past them."""
        inner, past = self.unit(value, channels // 2), self.unit(value, channels // 2)
        for _ in range(blocks):
            after = self._conv(self.unit(inner, channels // 2), channels // 2, 3)
            inner = self.sum(after, inner) if shortcut else after
        return self.unit(self.concat(inner, past), channels)

    def _fuse(self, fine: Value, middle: Value, coarse: Value) -> list[Value]:
        """The path aggregation network: from coarse to fine and back."""
        down = self.unit(coarse, middle.shape[1])
        both = self._csp(self.concat(self.upsample(down), middle), middle.shape[1])
        across = self.unit(both, fine.shape[1])
        first = self._csp(self.concat(self.upsample(across), fine), fine.shape[1])
        second = self._csp(self.concat(self._conv(first, fine.shape[1], 3, 2), across), middle.shape[1])
        third = self._csp(self.concat(self._conv(second, middle.shape[1], 3, 2), down), coarse.shape[1])
        return [first, second, third]

    def _head(self, value: Value) -> Value:
        """Box, objectness and classes of each cell, from two branches of equal width."""
        channels = 4 * self._base
        stem = self.unit(value, channels)
        classes = self._conv(self._conv(stem, channels, 3), channels, 3)
        places = self._conv(self._conv(stem, channels, 3), channels, 3)
        [scores] = self.predict([classes], CLASSES, bias=prior(0.01), spread=_YOLOX_SPREAD)
        [box] = self.predict([places], 4, bias=0.0, spread=0.2)
        [objectness] = self.predict([places], 1, bias=prior(0.01), spread=_YOLOX_SPREAD)
        return self.concat(box, self.node("Sigmoid", objectness), self.node("Sigmoid", scores))


BUILDERS: dict[str, Callable[[], Converted]] = {
    **{f"efficientdet-d{number}": partial(efficientdet, number) for number in range(len(_EFFICIENTDETS))},
    "nanodet-m": nanodet_m,
    "yolov3": yolov3,
    "yolox-nano": lambda: _Yolox("nano", 0.25, depthwise=True).whole(),
    "yolox-tiny": lambda: _Yolox("tiny", 0.375, depthwise=False).whole(),
}
