"""Layers with seeded random weights, one after another on an ONNX graph.

Each layer is run on a sample image as it is added. So the statistics of batch normalisation are what the layers
before it output, as they are after training, and activations neither vanish nor overflow however deep the network is.
Filters are drawn as in He et al., "Delving Deep into Rectifiers" (2015, arXiv:1502.01852).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from edgedeploy.frontends.graph import Attribute, Graph
from edgedeploy.frontends.importing import halves, same_padding
from edgedeploy.onnxruntime_session import cpu_session

# Plain patches along each side of the sample image, and the noise on them, as a fraction of the range of values.
_PATCHES = 12
_NOISE = 0.3


@dataclass(frozen=True)
class Value:
    """A tensor of the graph.

    Attributes:
        name: its name there.
        sample: its values for the sample image.
    """

    name: str
    sample: np.ndarray

    @property
    def channels(self) -> int:
        """Channels of the feature map."""
        return self.sample.shape[1]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the feature map."""
        height, width = self.sample.shape[2:]
        return height, width


# One side, or height and width.
Size = int | tuple[int, int]


@dataclass(frozen=True)
class Filters:
    """The weights of a convolution, which several may share.

    Attributes:
        weights: the filters and, if there is one, the bias.
        kernel: height and width of a filter.
        groups: into how many groups channels are divided.
    """

    weights: tuple[Value, ...]
    kernel: Size
    groups: int


class Layers:
    """A network that grows layer by layer.

    Args:
        name: the network's.
        epsilon: what batch normalisation adds to the variance.
        tensorflow: whether convolutions and pools of stride 2 pad as TensorFlow's SAME does, at the right and bottom
            first; else by half of the kernel on all sides.
        seed: of the weights and of the sample image.
    """

    def __init__(self, name: str, *, epsilon: float, tensorflow: bool = False, seed: int = 0) -> None:
        self._graph = Graph(name)
        self._epsilon = epsilon
        self._tensorflow = tensorflow
        self._random = np.random.default_rng(seed)

    def image(self, name: str, size: tuple[int, int], low: float, high: float) -> Value:
        """The input: an image of three channels, with values about between `low` and `high`."""
        height, width = size
        patches = self._random.random((_PATCHES, _PATCHES, 3), np.float32)
        rows, columns = (np.arange(length) * _PATCHES // length for length in size)
        sample = patches[rows][:, columns] + _NOISE * self._random.standard_normal((*size, 3), np.float32)
        sample = (low + (high - low) * sample.transpose(2, 0, 1)[None]).astype(np.float32)
        return Value(self._graph.input(name, [1, 3, height, width]), sample)

    def node(self, operator: str, *inputs: Value | None, name: str = "", **attributes: Attribute) -> Value:
        """Any operator of one output; None leaves an optional input out."""
        return self.nodes(operator, *inputs, names=[name or operator.lower()], **attributes)[0]

    def nodes(self, operator: str, *inputs: Value | None, names: Sequence[str], **attributes: Attribute) -> list[Value]:
        """Any operator of several outputs."""
        outputs = self._graph.nodes(
            operator, *("" if value is None else value.name for value in inputs), names=names, **attributes
        )
        samples = _run(
            operator, [None if value is None else value.sample for value in inputs], len(outputs), **attributes
        )
        return [Value(output, sample) for output, sample in zip(outputs, samples, strict=True)]

    def constant(self, values: np.ndarray, name: str = "weights") -> Value:
        """A constant, float32 or int64."""
        values = values if values.dtype == np.int64 else values.astype(np.float32)
        return Value(self._graph.constant(values, name), values)

    def filters(
        self,
        inputs: int,
        channels: int,
        kernel: Size,
        *,
        groups: int = 1,
        bias: float | Sequence[float] | None = None,
        gain: float = 1.0,
    ) -> Filters:
        """Weights of a convolution that keeps the mean square of values, or multiplies it by `gain`.

        Args:
            inputs: channels that it is applied to.
            channels: channels that it gives.
            kernel: height and width of a filter.
            groups: into how many groups channels are divided; as many as there are channels is depthwise.
            bias: the bias of all channels, or of each; none unless given.
            gain: 2 before a ReLU, where nothing normalises values.
        """
        shape = (channels, inputs // groups, *_sides(kernel))
        weights = self._random.standard_normal(shape, np.float32) / np.float32(math.sqrt(math.prod(shape[1:]) / gain))
        parts = [self.constant(weights)]
        if bias is not None:
            parts.append(self.constant(np.full(channels, bias), "bias"))
        return Filters(tuple(parts), kernel, groups)

    def apply(self, filters: Filters, value: Value, stride: int = 1, *, padding: int | None = None) -> Value:
        """A convolution with these weights."""
        sides, pads = _sides(filters.kernel), self._padding(value.size, filters.kernel, stride, padding)
        strides = [stride, stride]
        return self.node(
            "Conv", value, *filters.weights, kernel_shape=sides, strides=strides, pads=pads, group=filters.groups
        )

    def conv(
        self,
        value: Value,
        channels: int,
        kernel: Size,
        stride: int = 1,
        *,
        groups: int = 1,
        bias: float | Sequence[float] | None = None,
        gain: float = 1.0,
        padding: int | None = None,
    ) -> Value:
        """A convolution with weights of its own, and with this padding on all sides instead of the network's."""
        filters = self.filters(value.channels, channels, kernel, groups=groups, bias=bias, gain=gain)
        return self.apply(filters, value, stride, padding=padding)

    def depthwise(self, value: Value, kernel: int, stride: int = 1, *, bias: float | None = None) -> Value:
        """A convolution of each channel for itself."""
        return self.conv(value, value.channels, kernel, stride, groups=value.channels, bias=bias)

    def dense(self, value: Value, count: int, *, gain: float = 1.0) -> Value:
        """A matrix product with a row of values, and a bias: 1 x count."""
        inputs = value.sample.shape[1]
        weights = self._random.standard_normal((count, inputs), np.float32) / np.float32(math.sqrt(inputs / gain))
        bias = self._random.normal(0, 0.01, count)
        return self.node("Gemm", value, self.constant(weights), self.constant(bias, "bias"), transB=1)

    def predict(
        self, values: Sequence[Value], channels: int, *, bias: float | Sequence[float], spread: float
    ) -> list[Value]:
        """The last convolution, of 1x1, whose weights all levels share.

        Args:
            values: what it is applied to.
            channels: channels that it gives.
            bias: the bias of all channels, or of each.
            spread: the root mean square of what it gives for the sample, before the bias.
        """
        drawn = self._random.standard_normal((channels, values[0].channels, 1, 1), np.float32)
        squares = [np.square(_run("Conv", [value.sample, drawn], 1)[0]) for value in values]
        power = sum(float(square.sum()) for square in squares) / sum(square.size for square in squares)
        weights = self.constant(_rounded(np.array(spread / math.sqrt(power))) * drawn)
        filters = Filters((weights, self.constant(np.full(channels, bias), "bias")), 1, 1)
        return [self.apply(filters, value) for value in values]

    def normalise(self, value: Value) -> Value:
        """Batch normalisation, after which each channel has a mean of about 0 and a mean square of about 1."""
        channels = value.channels
        mean, variance = value.sample.mean(axis=(0, 2, 3)), value.sample.var(axis=(0, 2, 3))
        # A channel that hardly changes over the sample may do so over another image.
        variance = np.maximum(variance, 0.5 * variance.mean())
        scale, shift = self._random.uniform(0.8, 1.2, channels), self._random.normal(0, 0.1, channels)
        parts = (("scale", scale), ("shift", shift), ("mean", _rounded(mean)), ("variance", _rounded(variance)))
        weights = [self.constant(array, what) for what, array in parts]
        return self.node("BatchNormalization", value, *weights, epsilon=self._epsilon)

    def product(self, value: Value, count: int) -> Value:
        """A matrix product of the last dimension with weights, and a bias, as exporters write dense layers of maps."""
        inputs = value.sample.shape[-1]
        weights = self._random.standard_normal((inputs, count), np.float32) / np.float32(math.sqrt(inputs))
        bias = self.constant(self._random.normal(0, 0.01, count), "bias")
        return self.node("Add", self.node("MatMul", value, self.constant(weights)), bias)

    def layer_norm(self, value: Value, epsilon: float) -> Value:
        """Layer normalisation of the last dimension."""
        count = value.sample.shape[-1]
        scale, shift = self._random.uniform(0.8, 1.2, (count,)), self._random.normal(0, 0.1, (count,))
        weights = [self.constant(scale, "scale"), self.constant(shift, "shift")]
        return self.node("LayerNormalization", value, *weights, axis=-1, epsilon=epsilon)

    def gelu(self, value: Value) -> Value:
        """x times the normal distribution's function of x, written out as exporters do."""
        root, one, half = (self.constant(np.array(each, np.float32), "number") for each in (math.sqrt(2), 1, 0.5))
        share = self.node("Add", self.node("Erf", self.node("Div", value, root)), one)
        return self.node("Mul", self.node("Mul", value, share), half)

    def relu6(self, value: Value) -> Value:
        """Values between 0 and 6."""
        low, high = (self.constant(np.array(each, np.float32), "bound") for each in (0, 6))
        return self.node("Clip", value, low, high)

    def scaled(self, value: Value, shape: Sequence[int], size: float) -> Value:
        """Values multiplied by learned factors of about this size."""
        return self.node("Mul", value, self.constant(self._random.uniform(0.5 * size, 1.5 * size, shape), "factors"))

    def leaky(self, value: Value, slope: float = 0.1) -> Value:
        """A leaky ReLU."""
        return self.node("LeakyRelu", value, alpha=slope)

    def swish(self, value: Value) -> Value:
        """x times its sigmoid, also called SiLU."""
        return self.node("Mul", value, self.node("Sigmoid", value))

    def sum(self, *values: Value) -> Value:
        """The sum of tensors of one size."""
        total = values[0]
        for value in values[1:]:
            total = self.node("Add", total, value)
        return total

    def concat(self, *values: Value, axis: int = 1) -> Value:
        """Tensors of one size, one after another."""
        return self.node("Concat", *values, axis=axis)

    def max_pool(self, value: Value, kernel: int, stride: int = 1, *, padding: int | None = None) -> Value:
        """The largest of kernel x kernel values."""
        pads = self._padding(value.size, kernel, stride, padding)
        return self.node("MaxPool", value, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)

    def mean_pool(self, value: Value, kernel: int) -> Value:
        """The mean of kernel x kernel values, those of the padding among them."""
        pads, sides = self._padding(value.size, kernel, 1), [kernel] * 2
        return self.node("AveragePool", value, kernel_shape=sides, pads=pads, count_include_pad=1)

    def resize(self, value: Value, factor: float, mode: str = "nearest") -> Value:
        """The feature map made larger or smaller, by repeating pixels (`nearest`) or between them (`linear`)."""
        scales = self.constant(np.array([1, 1, factor, factor], np.float32), "scales")
        if mode == "nearest":
            how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        else:
            how = {"coordinate_transformation_mode": "pytorch_half_pixel"}
        return self.node("Resize", value, None, scales, mode=mode, **how)

    def split(self, value: Value, *channels: int) -> list[Value]:
        """The channels divided into parts."""
        counts = self.constant(np.array(channels, np.int64), "counts")
        return self.nodes("Split", value, counts, names=["split"] * len(channels), axis=1)

    def rows(self, value: Value, columns: int) -> Value:
        """The values of each pixel, pixel by pixel, as rows of so many values: 1 x rows x columns."""
        return self.reshape(self.node("Transpose", value, perm=[0, 2, 3, 1]), 1, -1, columns)

    def reshape(self, value: Value, *shape: int) -> Value:
        """The same values in another shape."""
        return self.node("Reshape", value, self.constant(np.array(shape, np.int64), "shape"))

    def output(self, name: str, value: Value) -> str:
        """Name a value, to make it an output."""
        return self.node("Identity", value, name=name).name

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The network with these outputs."""
        return self._graph.model(outputs)

    def _padding(self, size: tuple[int, int], kernel: Size, stride: int, padding: int | None = None) -> list[int]:
        """Padding at the top, left, bottom and right."""
        if padding is not None:
            return [padding] * 4
        if not self._tensorflow:
            return [side // 2 for side in _sides(kernel)] * 2
        before, after = halves(same_padding(size, _sides(kernel), [stride] * 2))
        return before + after


def _sides(kernel: Size) -> list[int]:
    return [kernel, kernel] if isinstance(kernel, int) else list(kernel)


def _rounded(values: np.ndarray) -> np.ndarray:
    """Values with 8 bits after the first: other machines' last bits then make no other weights, as a rule."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 512) / 512, exponent)


def prior(probability: float) -> float:
    """The bias with which a sigmoid gives this probability, by which detectors begin their training."""
    return -math.log((1 - probability) / probability)


def _run(operator: str, inputs: Sequence[np.ndarray | None], outputs: int, **attributes: Attribute) -> list[np.ndarray]:
    """What an operator makes of its inputs, by onnxruntime; None stands for an optional input that is left out."""
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
    results = graph.nodes(operator, *names, names=["output"] * outputs, **attributes)
    arrays: list[np.ndarray] = cpu_session(graph.model(results).SerializeToString()).run(results, feeds)
    return arrays
