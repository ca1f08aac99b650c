"""Layers with seeded random weights, one after another on an ONNX graph.

Each layer is run on a sample image as it is added. So the statistics of batch normalisation are those of its input, as
they are after training, and activations neither vanish nor overflow however deep the network is.
Filters are drawn as in He et al., "Delving Deep into Rectifiers" (2015, arXiv:1502.01852).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgedeploy.frontends.graph import Graph, Value, operator
from edgedeploy.frontends.importing import halves, same_padding
from edgedeploy.model.onnxruntime_session import cpu_session

# Plain patches along each side of the sample image, and the noise on them, as a fraction of the range of values.
_PATCHES = 12
_NOISE = 0.3

Size = int | tuple[int, int]  # one side, or height and width
Padding = int | None  # on all sides; None is the network's own
Activation = Callable[[Any, Value], Value]  # a function of a graph and a value

RELU: Activation = operator("Relu")


class Layers(Graph):
    """A network that grows layer by layer.

    Layers have the activation unless they have another one, and normalisation adds `epsilon` to the variance.
    With `tensorflow`, convolutions and pools of stride 2 pad as TensorFlow's SAME does, at the right and bottom first;
    else by half of the kernel on all sides.
    """

    def __init__(self, name: str, activation: Activation = RELU, *, epsilon: float, tensorflow: bool = False) -> None:
        super().__init__(name)
        self.activation = activation
        self._epsilon = epsilon
        self._tensorflow = tensorflow
        self._random = np.random.default_rng(0)
        self._samples: dict[str, np.ndarray] = {}  # of each value, for the sample image

    def image(self, name: str, size: int, low: float, high: float) -> Value:
        """The input: an image of 3 x size x size, with values about between `low` and `high`."""
        patches = self._random.random((_PATCHES, _PATCHES, 3), np.float32)
        places = np.arange(size) * _PATCHES // size
        sample = patches[places][:, places] + _NOISE * self._random.standard_normal((size, size, 3), np.float32)
        value = self.input(name, [1, 3, size, size])
        self._samples[value] = (low + (high - low) * sample.transpose(2, 0, 1)[None]).astype(np.float32)
        return value

    def nodes(self, operator: str, *inputs: str, names: Sequence[str], **attributes: Any) -> list[Value]:
        """See `Graph.nodes`."""
        outputs = super().nodes(operator, *inputs, names=names, **attributes)
        samples = [self._samples[value] if value else None for value in inputs]
        self._samples |= zip(outputs, _run(operator, samples, len(outputs), **attributes), strict=True)
        return outputs

    def constant(self, values: np.ndarray, name: str = "weights") -> Value:
        """A constant, float32 or int64."""
        values = values if values.dtype == np.int64 else values.astype(np.float32)
        value = super().constant(values, name)
        self._samples[value] = values
        return value

    def filters(
        self, inputs: int, channels: int, kernel: Size, *, groups: int = 1, bias: bool = False, gain: float = 1.0
    ) -> list[Value]:
        """Filters, and perhaps a bias, of a convolution that multiplies the mean square of values by `gain`.

        Before a ReLU without normalisation, it should be 2.
        """
        shape = (channels, inputs // groups, *([kernel] * 2 if isinstance(kernel, int) else kernel))
        weights = self._random.standard_normal(shape, np.float32) / np.float32(math.sqrt(math.prod(shape[1:]) / gain))
        return [self.constant(weights), *([self.constant(np.zeros(channels), "bias")] if bias else [])]

    def apply(self, filters: Sequence[Value], value: Value, stride: int = 1, *, padding: Padding = None) -> Value:
        """A convolution with these filters and perhaps a bias."""
        _, channels, *kernel = filters[0].shape
        pads, groups = self._padding(value, kernel, stride, padding), value.shape[1] // channels
        shape: dict[str, Any] = {"kernel_shape": kernel, "strides": [stride] * 2, "pads": pads}
        return self.node("Conv", value, *filters, **shape, group=groups)

    def conv(
        self, value: Value, channels: int, kernel: Size, stride: int = 1, *, bias: bool = False, padding: Padding = None
    ) -> Value:
        """A convolution with weights of its own."""
        return self.apply(self.filters(value.shape[1], channels, kernel, bias=bias), value, stride, padding=padding)

    def depthwise(self, value: Value, kernel: int, stride: int = 1, *, bias: bool = False) -> Value:
        """A convolution of each channel on its own."""
        channels = value.shape[1]
        return self.apply(self.filters(channels, channels, kernel, groups=channels, bias=bias), value, stride)

    def unit(self, value: Value, channels: int, kernel: Size = 1, stride: int = 1, *, padding: Padding = None) -> Value:
        """A convolution, its normalisation and the network's activation."""
        return self.activated(self.conv(value, channels, kernel, stride, padding=padding))

    def activated(self, value: Value) -> Value:
        """A value after normalisation and the network's activation."""
        return self.activation(self, self.normalise(value))

    def dense(self, value: Value, count: int, *, gain: float = 1.0) -> Value:
        """A matrix product with a row of values, and a bias: 1 x count."""
        inputs = value.shape[1]
        weights = self._random.standard_normal((count, inputs), np.float32) / np.float32(math.sqrt(inputs / gain))
        bias = self._random.normal(0, 0.01, count)
        return self.node("Gemm", value, self.constant(weights), self.constant(bias, "bias"), transB=1)

    def predict(
        self, values: Sequence[Value], channels: int, *, bias: float | Sequence[float], spread: float
    ) -> list[Value]:
        """The last convolution, of 1x1, whose weights all levels share, with a bias of all channels, or of each.

        The `spread` is the root mean square of its outputs for the sample, before the bias.
        """
        drawn = self._random.standard_normal((channels, values[0].shape[1], 1, 1), np.float32)
        squares = [np.square(_run("Conv", [self._samples[value], drawn], 1)[0]) for value in values]
        power = sum(float(square.sum()) for square in squares) / sum(square.size for square in squares)
        weights = self.constant(_rounded(np.array(spread / math.sqrt(power))) * drawn)
        filters = weights, self.constant(np.full(channels, bias), "bias")
        return [self.apply(filters, value) for value in values]

    def normalise(self, value: Value) -> Value:
        """Batch normalisation, after which each channel has a mean of about 0 and a mean square of about 1."""
        channels, sample = value.shape[1], self._samples[value]
        mean, variance = sample.mean(axis=(0, 2, 3)), sample.var(axis=(0, 2, 3))
        # A channel that hardly changes over the sample may do so over another image.
        variance = np.maximum(variance, 0.5 * variance.mean())
        scale, shift = self._random.uniform(0.8, 1.2, channels), self._random.normal(0, 0.1, channels)
        parts = {"scale": scale, "shift": shift, "mean": _rounded(mean), "variance": _rounded(variance)}
        weights = [self.constant(array, name) for name, array in parts.items()]
        return self.node("BatchNormalization", value, *weights, epsilon=self._epsilon)

    def product(self, value: Value, count: int) -> Value:
        """A matrix product of the last dimension with weights, and a bias, as exporters write dense layers of maps."""
        inputs = value.shape[-1]
        weights = self._random.standard_normal((inputs, count), np.float32) / np.float32(math.sqrt(inputs))
        bias = self.constant(self._random.normal(0, 0.01, count), "bias")
        return self.node("Add", self.node("MatMul", value, self.constant(weights)), bias)

    def layer_norm(self, value: Value) -> Value:
        """Layer normalisation of the channels of each place; the result is in NHWC."""
        value = self.transpose(value, [0, 2, 3, 1])
        count = value.shape[-1]
        scale, shift = self._random.uniform(0.8, 1.2, (count,)), self._random.normal(0, 0.1, (count,))
        weights = [self.constant(scale, "scale"), self.constant(shift, "shift")]
        return self.node("LayerNormalization", value, *weights, axis=-1, epsilon=self._epsilon)

    def gelu(self, value: Value) -> Value:
        """x times the normal distribution's function of x, written out as exporters do."""
        root, one, half = map(self.floats, (math.sqrt(2), 1, 0.5))
        share = self.node("Add", self.node("Erf", self.node("Div", value, root)), one)
        return self.node("Mul", self.node("Mul", value, share), half)

    def learned_factors(self, value: Value, shape: Sequence[int], size: float) -> Value:
        """Values multiplied by learned factors of about this size."""
        return self.node("Mul", value, self.constant(self._random.uniform(0.5 * size, 1.5 * size, shape), "factors"))

    def sum(self, *values: Value) -> Value:
        """The sum of tensors of one size."""
        return functools.reduce(lambda total, value: self.node("Add", total, value), values)

    def concat(self, *values: Value) -> Value:
        """The channels of tensors of one size, one after another."""
        return self.node("Concat", *values, axis=1)

    def max_pool(self, value: Value, kernel: int, stride: int = 1, *, padding: Padding = None) -> Value:
        """The largest of kernel x kernel values."""
        pads = self._padding(value, [kernel] * 2, stride, padding)
        return self.node("MaxPool", value, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)

    def mean_pool(self, value: Value, kernel: int) -> Value:
        """The mean of kernel x kernel values, with those of the padding."""
        pads = self._padding(value, [kernel] * 2, 1)
        return self.node("AveragePool", value, kernel_shape=[kernel] * 2, pads=pads, count_include_pad=1)

    def global_mean(self, value: Value) -> Value:
        """The mean of each channel, 1 x channels."""
        return self.node("Flatten", self.node("GlobalAveragePool", value))

    def excited(self, value: Value, hidden: int, activation: Activation, gate: Activation) -> Value:
        """A factor for each channel, from the means of all: squeeze and excitation."""
        squeezed = self.conv(self.node("GlobalAveragePool", value), hidden, 1, bias=True)
        return gate(self, self.conv(activation(self, squeezed), value.shape[1], 1, bias=True))

    def inverted(
        self, value: Value, kernel: int, expanded: int, channels: int, stride: int, excite: Activation | None = None
    ) -> Value:
        """The branch of an inverted bottleneck: a depthwise convolution between two of 1x1."""
        branch = value if expanded == value.shape[1] else self.unit(value, expanded)
        branch = self.activated(self.depthwise(branch, kernel, stride))
        return self.normalise(self.conv(excite(self, branch) if excite else branch, channels, 1))

    def upsample(self, value: Value) -> Value:
        """The feature map with each pixel as two by two."""
        return self.resize_nearest(value, self.floats([1, 1, 2, 2]))

    def rows(self, value: Value, columns: int) -> Value:
        """The values of each pixel, pixel by pixel, as rows: 1 x rows x columns."""
        return self.reshape(self.transpose(value, [0, 2, 3, 1]), [1, -1, columns])

    def _padding(self, value: Value, kernel: Sequence[int], stride: int, padding: Padding = None) -> list[int]:
        """Padding at the top, left, bottom and right."""
        if padding is not None:
            return [padding] * 4
        if not self._tensorflow:
            return [side // 2 for side in kernel] * 2
        before, after = halves(same_padding(value.shape[2:], kernel, [stride] * 2))
        return before + after


def prior(probability: float) -> float:
    """The bias with which a sigmoid gives this probability, by which detectors begin their training."""
    return -math.log((1 - probability) / probability)


def multiple_of_eight(channels: float) -> int:
    """The nearest multiple of 8 that is not less than 0.9 of it."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


def _rounded(values: np.ndarray) -> np.ndarray:
    """Values with 8 bits after the first: other machines' last bits then make no other weights, as a rule."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 512) / 512, exponent)


def _run(operator: str, inputs: Sequence[np.ndarray | None], outputs: int, **attributes: Any) -> list[np.ndarray]:
    """The results of an operator by onnxruntime; None stands for an optional input that is left out."""
    graph = Graph(operator)
    names, feeds = [], {}
    for index, values in enumerate(inputs):
        if values is None:
            names.append("")
        elif values.ndim <= 1:  # numbers, counts, shapes and scales, which are constants
            names.append(graph.constant(values))
        else:
            names.append(graph.input(f"input{index}", values.shape))
            feeds[names[-1]] = values
    results = graph.nodes(operator, *names, names=[""] * outputs, **attributes)
    arrays: list[np.ndarray] = cpu_session(graph.model(results).SerializeToString()).run(results, feeds)
    return arrays
