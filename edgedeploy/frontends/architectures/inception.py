"""Inception v3 for ImageNet (Szegedy et al., 2015, arXiv:1512.00567), as torchvision has it for inference."""

from __future__ import annotations

from edgedeploy.frontends.architectures.layers import Layers, Size, Value
from edgedeploy.frontends.architectures.resnet import CLASSES
from edgedeploy.frontends.format import Converted

SIZE = 299

# A convolution: channels, kernel, and stride and padding where those are not 1 and half of the kernel.
_Step = tuple[int, Size] | tuple[int, Size, int, int]

_BEGIN: list[_Step] = [(32, 3, 2, 0), (32, 3, 1, 0), (64, 3)]
_MIDDLE: list[_Step] = [(80, 1), (192, 3, 1, 0)]
# Channels after the pool of each block at 35 x 35, and of the 1x7 and 7x1 convolutions inside of each at 17 x 17.
_AFTER_POOLS, _INSIDE = (32, 64, 64), (128, 160, 160, 192)


def inception_v3() -> Converted:
    """Input `input`, 1x3x299x299; logits `output`, 1x1000."""
    layers = Layers("inception_v3", epsilon=1e-3)
    value = _chain(layers, layers.image("input", (SIZE, SIZE), -2.1, 2.6), _BEGIN)
    value = _chain(layers, layers.max_pool(value, 3, 2, padding=0), _MIDDLE)
    value = layers.max_pool(value, 3, 2, padding=0)
    for channels in _AFTER_POOLS:
        value = _block(layers, value, [[(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)]], channels)
    value = _reduction(layers, value, [[(384, 3, 2, 0)], [(64, 1), (96, 3), (96, 3, 2, 0)]])
    for inside in _INSIDE:
        value = _block(layers, value, _crosses(inside), 192)
    seven: list[_Step] = [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2, 0)]
    value = _reduction(layers, value, [[(192, 1), (320, 3, 2, 0)], seven])
    for _ in range(2):
        value = _widest(layers, value)
    value = layers.node("Flatten", layers.node("GlobalAveragePool", value))
    return Converted(layers.model([layers.output("output", layers.dense(value, CLASSES))]), [])


def _crosses(inside: int) -> list[list[_Step]]:
    """The branches with 7x7 convolutions, each as one of 1x7 and one of 7x1."""
    across, down = (1, 7), (7, 1)
    once: list[_Step] = [(inside, 1), (inside, across), (192, down)]
    twice: list[_Step] = [(inside, 1), (inside, down), (inside, across), (inside, down), (192, across)]
    return [[(192, 1)], once, twice]


def _chain(layers: Layers, value: Value, steps: list[_Step]) -> Value:
    for channels, kernel, *how in steps:
        stride, padding = how or (1, None)
        value = layers.conv(value, channels, kernel, stride, padding=padding)
        value = layers.node("Relu", layers.normalise(value))
    return value


def _block(layers: Layers, value: Value, branches: list[list[_Step]], after_pool: int) -> Value:
    """Branches beside each other, and a mean with a convolution after it."""
    parts = [_chain(layers, value, steps) for steps in branches]
    return layers.concat(*parts, _chain(layers, layers.mean_pool(value, 3), [(after_pool, 1)]))


def _reduction(layers: Layers, value: Value, branches: list[list[_Step]]) -> Value:
    """Branches that halve height and width, and a pool that does."""
    parts = [_chain(layers, value, steps) for steps in branches]
    return layers.concat(*parts, layers.max_pool(value, 3, 2, padding=0))


def _widest(layers: Layers, value: Value) -> Value:
    """The block at 8 x 8, whose branches end in a 1x3 and a 3x1 convolution beside each other."""
    parts = [_chain(layers, value, [(320, 1)])]
    begins: list[list[_Step]] = [[(384, 1)], [(448, 1), (384, 3)]]
    for steps in begins:
        begin = _chain(layers, value, steps)
        parts += [_chain(layers, begin, [(384, kernel)]) for kernel in ((1, 3), (3, 1))]
    return layers.concat(*parts, _chain(layers, layers.mean_pool(value, 3), [(192, 1)]))
