"""YOLOX (Ge et al., 2021, arXiv:2107.08430), nano and tiny, as github.com/Megvii-BaseDetection/YOLOX defines them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx

from edgedeploy.frontends.architectures.layers import Layers, Value, prior
from edgedeploy.frontends.format import Converted

SIZE = 416
CLASSES = 80
# Of the scores before their sigmoid; with it a few places exceed the usual thresholds.
_SPREAD = 1.6


@dataclass(frozen=True)
class _Scale:
    """How a variant differs: its width relative to YOLOX-L, and whether large kernels are depthwise."""

    width: float
    depthwise: bool


_SCALES = {"nano": _Scale(0.25, True), "tiny": _Scale(0.375, False)}


def yolox(variant: Literal["nano", "tiny"]) -> Converted:
    """YOLOX for COCO: input `images`, 1x3x416x416 in 0..255; output `output`, 1x3549x85."""
    # A third of the depth of YOLOX-L: blocks that are repeated 3 and 9 times there, 1 and 3 times here.
    return Converted(_Yolox(variant, _SCALES[variant]).model())


class _Yolox:
    """The parts of the network, which share its width and its kind of convolution."""

    def __init__(self, variant: str, scale: _Scale) -> None:
        self._layers = Layers(f"yolox-{variant}", epsilon=1e-3)
        self._base = int(64 * scale.width)
        self._conv: Callable[..., Value] = self._separable if scale.depthwise else self._plain

    def model(self) -> onnx.ModelProto:
        """The whole network."""
        layers, base = self._layers, self._base
        image = layers.image("images", (SIZE, SIZE), 0, 255)
        value = self._plain(self._focus(image), base, 3)
        stages = []
        for stage, blocks in enumerate((1, 3, 3, 1)):
            channels = base << (stage + 1)
            value = self._conv(value, channels, 3, 2)
            if stage == 3:
                value = self._pyramid_pooling(value)
            value = self._csp(value, channels, blocks, shortcut=stage < 3)
            stages.append(value)
        levels = self._fuse(*stages[1:])
        rows = [layers.rows(self._head(level), 5 + CLASSES) for level in levels]
        return layers.model([layers.output("output", layers.concat(*rows))])

    def _plain(self, value: Value, channels: int, kernel: int, stride: int = 1) -> Value:
        layers = self._layers
        return layers.swish(layers.normalise(layers.conv(value, channels, kernel, stride)))

    def _separable(self, value: Value, channels: int, kernel: int, stride: int = 1) -> Value:
        layers = self._layers
        return self._plain(layers.swish(layers.normalise(layers.depthwise(value, kernel, stride))), channels, 1)

    def _focus(self, value: Value) -> Value:
        """Each two by two pixels as four times as many channels."""
        layers, (height, width) = self._layers, value.size
        parts = []
        for column, row in ((0, 0), (0, 1), (1, 0), (1, 1)):
            numbers = [row, column], [height, width], [2, 3], [2, 2]
            starts, ends, axes, steps = (layers.constant(np.array(each, np.int64), "slice") for each in numbers)
            parts.append(layers.node("Slice", value, starts, ends, axes, steps))
        return layers.concat(*parts)

    def _pyramid_pooling(self, value: Value) -> Value:
        half = self._plain(value, value.channels // 2, 1)
        pools = [self._layers.max_pool(half, kernel) for kernel in (5, 9, 13)]
        return self._plain(self._layers.concat(half, *pools), value.channels, 1)

    def _csp(self, value: Value, channels: int, blocks: int, *, shortcut: bool) -> Value:
        """Half of the channels through bottlenecks, half past them."""
        inner, past = self._plain(value, channels // 2, 1), self._plain(value, channels // 2, 1)
        for _ in range(blocks):
            after = self._conv(self._plain(inner, channels // 2, 1), channels // 2, 3)
            inner = self._layers.sum(after, inner) if shortcut else after
        return self._plain(self._layers.concat(inner, past), channels, 1)

    def _fuse(self, fine: Value, middle: Value, coarse: Value) -> list[Value]:
        """The path aggregation network: from coarse to fine and back."""
        layers, blocks = self._layers, 1
        down = self._plain(coarse, middle.channels, 1)
        both = self._csp(layers.concat(layers.resize(down, 2), middle), middle.channels, blocks, shortcut=False)
        across = self._plain(both, fine.channels, 1)
        first = self._csp(layers.concat(layers.resize(across, 2), fine), fine.channels, blocks, shortcut=False)
        joined = layers.concat(self._conv(first, fine.channels, 3, 2), across)
        second = self._csp(joined, middle.channels, blocks, shortcut=False)
        joined = layers.concat(self._conv(second, middle.channels, 3, 2), down)
        return [first, second, self._csp(joined, coarse.channels, blocks, shortcut=False)]

    def _head(self, value: Value) -> Value:
        """Box, objectness and classes of each cell, from two branches of equal width."""
        layers, channels = self._layers, 4 * self._base
        stem = self._plain(value, channels, 1)
        classes = self._conv(self._conv(stem, channels, 3), channels, 3)
        places = self._conv(self._conv(stem, channels, 3), channels, 3)
        [scores] = layers.predict([classes], CLASSES, bias=prior(0.01), spread=_SPREAD)
        [box] = layers.predict([places], 4, bias=0.0, spread=0.2)
        [objectness] = layers.predict([places], 1, bias=prior(0.01), spread=_SPREAD)
        return layers.concat(box, layers.node("Sigmoid", objectness), layers.node("Sigmoid", scores))
