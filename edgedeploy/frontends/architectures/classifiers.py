"""Classifiers for the 1000 classes of ImageNet: layer by layer as the ONNX model zoo or torchvision has them.

ResNet-18 and ResNet-50 are those of the model zoo, which come from GluonCV; all others are torchvision's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from edgedeploy.frontends.architectures.layers import RELU, Layers, Size, multiple_of_eight
from edgedeploy.frontends.format import Converted
from edgedeploy.frontends.graph import Value, operator

CLASSES = 1000


def _image(layers: Layers, name: str = "input", size: int = 224) -> Value:
    """The input, with the values of pixels after the usual mean and scale."""
    return layers.image(name, size, -2.1, 2.6)


def _classified(layers: Layers, value: Value, output: str = "output") -> Converted:
    """The network, whose output is a dense layer's, 1x1000."""
    return Converted(layers.model([layers.named(layers.dense(value, CLASSES), output)]))


def _plain_block(layers: Layers, value: Value, channels: int, stride: int) -> Value:
    """Two convolutions next to a shortcut, which is a convolution if the size changes."""
    branch = layers.normalise(layers.conv(layers.unit(value, channels, 3, stride), channels, 3))
    return _joined(layers, branch, value, stride)


def _bottleneck(layers: Layers, value: Value, channels: int, stride: int) -> Value:
    """Three convolutions, the middle one with a quarter of the channels, next to a shortcut."""
    branch = layers.unit(layers.unit(value, channels // 4), channels // 4, 3, stride)
    return _joined(layers, layers.normalise(layers.conv(branch, channels, 1)), value, stride)


def _bottleneck_v2(layers: Layers, value: Value, channels: int, stride: int) -> Value:
    """The same three convolutions in the second version."""
    begin = layers.activated(value)
    branch = layers.unit(layers.unit(begin, channels // 4), channels // 4, 3, stride)
    branch = layers.conv(branch, channels, 1)
    return layers.sum(branch, layers.conv(begin, channels, 1, stride) if value.shape[1] != channels else value)


def _joined(layers: Layers, branch: Value, value: Value, stride: int) -> Value:
    if branch.shape != value.shape:
        value = layers.normalise(layers.conv(value, branch.shape[1], 1, stride))
    return RELU(layers, layers.sum(branch, value))


# By name: the block, the channels of the first stage (each later one has twice as many), the number of blocks of each
# stage, and the names of input and output.
_RESNETS = {
    "resnet18": (_plain_block, 64, (2, 2, 2, 2), "data", "resnetv15_dense0_fwd"),
    "resnet34": (_plain_block, 64, (3, 4, 6, 3), "input", "output"),
    "resnet50": (_bottleneck_v2, 256, (3, 4, 6, 3), "data", "resnetv24_dense0_fwd"),
    "resnet101": (_bottleneck, 256, (3, 4, 23, 3), "input", "output"),
}


def resnet(name: str) -> Converted:
    """ResNet v1 (He et al., "Deep Residual Learning for Image Recognition", 2015, arXiv:1512.03385).

    ResNet-50 is v2, which normalises before each convolution (He et al., 2016, arXiv:1603.05027). ResNet-101 halves
    maps in 3x3 convolutions.
    """
    block, channels, stages, image, output = _RESNETS[name]
    second_version = block is _bottleneck_v2
    layers = Layers(name, epsilon=1e-5)
    value = _image(layers, image)
    value = layers.conv(layers.normalise(value) if second_version else value, 64, 7, 2)
    value = layers.max_pool(layers.activated(value), 3, 2)
    for stage, blocks in enumerate(stages):
        for number in range(blocks):
            value = block(layers, value, channels << stage, 2 if stage and not number else 1)
    if second_version:
        value = layers.activated(value)
    return _classified(layers, layers.global_mean(value), output)


def vgg16() -> Converted:
    """VGG-16 (Simonyan and Zisserman, 2014, arXiv:1409.1556), without batch normalisation."""
    layers = Layers("vgg16", epsilon=1e-5)
    value = _image(layers)
    for channels, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            filters = layers.filters(value.shape[1], channels, 3, bias=True, gain=2.0)
            value = RELU(layers, layers.apply(filters, value))
        value = layers.max_pool(value, 2, 2, padding=0)
    value = layers.node("Flatten", value)
    for _ in range(2):
        value = RELU(layers, layers.dense(value, 4096, gain=2.0))
    return _classified(layers, value)


# A convolution: channels, kernel, and stride and padding unless they are 1 and half of the kernel.
_Step = tuple[int, Size] | tuple[int, Size, int, int]


def inception_v3() -> Converted:
    """Inception v3 (Szegedy et al., 2015, arXiv:1512.00567) for inference; its input is 1x3x299x299."""
    layers = Layers("inception_v3", epsilon=1e-3)
    value = _chain(layers, _image(layers, size=299), [(32, 3, 2, 0), (32, 3, 1, 0), (64, 3)])
    value = _chain(layers, layers.max_pool(value, 3, 2, padding=0), [(80, 1), (192, 3, 1, 0)])
    value = layers.max_pool(value, 3, 2, padding=0)
    for after_pool in (32, 64, 64):
        value = _mixed(layers, value, [[(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)]], after_pool)
    value = _mixed(layers, value, [[(384, 3, 2, 0)], [(64, 1), (96, 3), (96, 3, 2, 0)]])
    across, down = (1, 7), (7, 1)  # 7x7 convolutions are pairs of these
    for inside in (128, 160, 160, 192):
        once: list[_Step] = [(inside, 1), (inside, across), (192, down)]
        twice: list[_Step] = [(inside, 1), (inside, down), (inside, across), (inside, down), (192, across)]
        value = _mixed(layers, value, [[(192, 1)], once, twice], 192)
    value = _mixed(layers, value, [[(192, 1), (320, 3, 2, 0)], [(192, 1), (192, across), (192, down), (192, 3, 2, 0)]])
    for _ in range(2):
        value = _widest(layers, value)
    return _classified(layers, layers.global_mean(value))


def _chain(layers: Layers, value: Value, steps: list[_Step]) -> Value:
    for channels, kernel, *how in steps:
        stride, padding = how or (1, None)
        value = layers.unit(value, channels, kernel, stride, padding=padding)
    return value


def _mixed(layers: Layers, value: Value, branches: list[list[_Step]], after_pool: int = 0) -> Value:
    """Branches next to each other, and a mean with a convolution after it; without that, all halve height and width."""
    parts = [_chain(layers, value, steps) for steps in branches]
    if after_pool:
        return layers.concat(*parts, _chain(layers, layers.mean_pool(value, 3), [(after_pool, 1)]))
    return layers.concat(*parts, layers.max_pool(value, 3, 2, padding=0))


def _widest(layers: Layers, value: Value) -> Value:
    """The block at 8 x 8, whose branches end in a 1x3 and a 3x1 convolution next to each other."""
    parts = [_chain(layers, value, [(320, 1)])]
    begins: list[list[_Step]] = [[(384, 1)], [(448, 1), (384, 3)]]
    for steps in begins:
        begin = _chain(layers, value, steps)
        parts += [_chain(layers, begin, [(384, kernel)]) for kernel in ((1, 3), (3, 1))]
    return layers.concat(*parts, _chain(layers, layers.mean_pool(value, 3), [(192, 1)]))


# Of MobileNet v2's stages: factor of expansion, channels, blocks, and stride of the first block.
_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

# Of v3's stages: kernel, channels, squeeze and excitation or not, HardSwish or ReLU, stride
# of the first block, and expanded channels of each block.
_LARGE = (
    (3, 16, False, False, 1, (16,)),
    (3, 24, False, False, 2, (64, 72)),
    (5, 40, True, False, 2, (72, 120, 120)),
    (3, 80, False, True, 2, (240, 200, 184, 184)),
    (3, 112, True, True, 1, (480, 672)),
    (5, 160, True, True, 2, (672, 960, 960)),
)
_SMALL = (
    (3, 16, True, False, 2, (16,)),
    (3, 24, False, False, 2, (72, 88)),
    (5, 40, True, True, 2, (96, 240, 240)),
    (5, 48, True, True, 1, (120, 144)),
    (5, 96, True, True, 2, (288, 576, 576)),
)


def mobilenet_v2() -> Converted:
    """MobileNet v2 (Sandler et al., 2018, arXiv:1801.04381)."""
    layers = Layers("mobilenet_v2", lambda graph, value: graph.clip(value, 0, 6), epsilon=1e-5)
    value = layers.unit(_image(layers), 32, 3, 2)
    for expansion, channels, blocks, stride in _V2:
        for block in range(blocks):
            branch = layers.inverted(value, 3, expansion * value.shape[1], channels, 1 if block else stride)
            value = layers.sum(value, branch) if branch.shape == value.shape else branch
    return _classified(layers, layers.global_mean(layers.unit(value, 1280)))


def mobilenet_v3(size: str) -> Converted:
    """MobileNet v3 (Howard et al., "Searching for MobileNetV3", 2019, arXiv:1905.02244), `large` or `small`."""
    swish = operator("HardSwish")
    layers = Layers(f"mobilenet_v3_{size}", swish, epsilon=1e-3)
    value = layers.unit(_image(layers), 16, 3, 2)
    for kernel, channels, excited, swished, stride, widths in _LARGE if size == "large" else _SMALL:
        layers.activation = swish if swished else RELU
        for block, expanded in enumerate(widths):
            step, excite = 1 if block else stride, _excite if excited else None
            branch = layers.inverted(value, kernel, expanded, channels, step, excite)
            value = layers.sum(value, branch) if branch.shape == value.shape else branch
    mean = layers.global_mean(layers.unit(value, 6 * value.shape[1]))
    return _classified(layers, swish(layers, layers.dense(mean, 1280 if size == "large" else 1024)))


def _excite(layers: Layers, value: Value) -> Value:
    gate = operator("HardSigmoid", "alpha")
    factors = layers.excited(value, multiple_of_eight(value.shape[1] // 4), RELU, lambda *of: gate(*of, 1 / 6))
    return layers.node("Mul", factors, value)


_LAYER_SCALE = 0.1  # of the factors of a block's branch after training; they begin at 1e-6


def convnext_tiny() -> Converted:
    """ConvNeXt-Tiny (Liu et al., "A ConvNet for the 2020s", 2022, arXiv:2201.03545)."""
    layers = Layers("convnext_tiny", epsilon=1e-6)
    value = _layer_norm(layers, layers.conv(_image(layers), 96, 4, 4, bias=True, padding=0))
    for channels, blocks in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if value.shape[1] != channels:
            value = layers.conv(_layer_norm(layers, value), channels, 2, 2, bias=True, padding=0)
        for _ in range(blocks):
            # A depthwise convolution and two dense layers at each place, next to a shortcut.
            branch = layers.layer_norm(layers.depthwise(value, 7, bias=True))
            branch = layers.product(layers.gelu(layers.product(branch, 4 * channels)), channels)
            branch = layers.transpose(branch, [0, 3, 1, 2])
            value = layers.sum(layers.learned_factors(branch, (channels, 1, 1), _LAYER_SCALE), value)
    value = _layer_norm(layers, layers.node("GlobalAveragePool", value))
    return _classified(layers, layers.node("Flatten", value))


def _layer_norm(layers: Layers, value: Value) -> Value:
    return layers.transpose(layers.layer_norm(value), [0, 3, 1, 2])


BUILDERS: dict[str, Callable[[], Converted]] = {
    **{name: partial(resnet, name) for name in _RESNETS},
    "convnext_tiny": convnext_tiny,
    "inception_v3": inception_v3,
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3_large": partial(mobilenet_v3, "large"),
    "mobilenet_v3_small": partial(mobilenet_v3, "small"),
    "vgg16": vgg16,
}
