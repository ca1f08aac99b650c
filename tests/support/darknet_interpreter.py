"""A second implementation of Darknet's layers, in numpy: one layer after the other, as the C code states them.

It shares nothing with the frontend: it reads the text and the stream of weights itself. It knows what correct files
hold, and refuses nothing.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from support.agreement import convolved

# The next weights of the file, of a shape; what they are is for those who make them up.
Take = Callable[[str, tuple[int, ...]], np.ndarray]

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda x: x,
    "leaky": lambda x: np.where(x > 0, x, 0.1 * x),
    "relie": lambda x: np.where(x > 0, x, 0.01 * x),
    "relu": lambda x: x * (x > 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "hardtan": lambda x: np.clip(x, -1, 1),
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "loggy": lambda x: 2 / (1 + np.exp(-x)) - 1,
    "tanh": np.tanh,
    "elu": lambda x: np.where(x >= 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: 1.0507 * np.where(x >= 0, x, 1.6732 * np.expm1(np.minimum(x, 0))),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(np.minimum(x, 30)))),
}


class Recorder:
    """Draws weights, and remembers them as a file of weights holds them."""

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self.stream: list[np.ndarray] = []

    def take(self, role: str, shape: tuple[int, ...]) -> np.ndarray:
        if role == "weights":
            drawn = self._random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        else:
            drawn = self._random.uniform(0.5, 1.5, shape)
        self.stream.append(drawn.astype(np.float32))
        return self.stream[-1]

    def save(self, path: Path, version: tuple[int, int] = (0, 2), seen: str = "<q") -> Path:
        """Write the weights; `seen` is how the number of images is packed."""
        header = struct.pack("<3i", *version, 0) + struct.pack(seen, 32013312)
        path.write_bytes(header + b"".join(array.tobytes() for array in self.stream))
        return path


def interpret(text: str, image: np.ndarray, take: Take, epsilon: float = 1e-5) -> list[np.ndarray]:
    sections = [
        (kind, dict(re.findall(r"^([a-z0-9_]+)=([^#;\n]*)", re.sub(r"[ \t]", "", body), re.M)))
        for kind, body in re.findall(r"^\[(\w+)\]([^\[]*)", text, re.M)
    ]
    outputs: list[np.ndarray] = []
    for kind, options in sections[1:]:
        before = outputs[-1] if outputs else image
        outputs.append(_LAYERS[kind](_Layer(options, before, outputs, take, epsilon)))
    return outputs


@dataclass
class _Layer:
    options: dict[str, str]
    before: np.ndarray
    outputs: list[np.ndarray]
    take: Take
    epsilon: float

    def number(self, name: str, default: float) -> int:
        return int(self.options.get(name, default))

    @property
    def steps(self) -> list[int]:
        return [self.number(name, self.number("stride", 1)) for name in ("stride_y", "stride_x")]

    def named(self, name: str) -> list[np.ndarray]:
        # A negative index of a list means what it means in a cfg file.
        return [self.outputs[int(index)] for index in self.options[name].split(",")]

    def activated(self, values: np.ndarray, default: str) -> np.ndarray:
        return FUNCTIONS[self.options.get("activation", default)](values).astype(np.float32)

    def normalised(self, values: np.ndarray, bias: np.ndarray, parts: list[np.ndarray]) -> np.ndarray:
        wide = (slice(None),) + (None,) * (values.ndim - 1)
        if parts:
            scale, mean, variance = parts
            values = scale[wide] * (values - mean[wide]) / np.sqrt(variance[wide] + self.epsilon)
        return values + bias[wide]

    def windows(self, fill: float) -> np.ndarray:
        size = self.number("size", self.number("stride", 1))
        steps, padding = self.steps, self.number("padding", size - 1)
        begin = -int(padding / 2)
        image = np.full([len(self.before), *(side + 3 * size + 2 * padding for side in self.before.shape[1:])], fill)
        image[:, -begin : self.before.shape[1] - begin, -begin : self.before.shape[2] - begin] = self.before
        counts = [(side + padding - size) // step + 1 for side, step in zip(self.before.shape[1:], steps, strict=True)]
        found = sliding_window_view(image, (size, size), axis=(1, 2))[:, :: steps[0], :: steps[1]]
        return found[:, : counts[0], : counts[1]]


def _convolutional(layer: _Layer) -> np.ndarray:
    filters, size, groups = layer.number("filters", 1), layer.number("size", 1), layer.number("groups", 1)
    apart = layer.number("dilation", 1) if size > 1 else 1
    padding = (size // 2 if layer.number("pad", 0) else layer.number("padding", 0)) * apart
    bias = layer.take("bias", (filters,))
    parts = [layer.take("statistics", (filters,)) for _ in range(3 * layer.number("batch_normalize", 0))]
    kernel = layer.take("weights", (filters, len(layer.before) // groups, size, size))
    pads, stride, dilation = (padding,) * 4, (layer.steps[0], layer.steps[1]), (apart, apart)
    values = convolved(layer.before[None], kernel, pads=pads, stride=stride, dilation=dilation)[0]
    return layer.activated(layer.normalised(values, bias, parts), "logistic")


def _connected(layer: _Layer) -> np.ndarray:
    count = layer.number("output", 1)
    bias = layer.take("bias", (count,))
    matrix = layer.take("weights", (count, layer.before.size))
    parts = [layer.take("statistics", (count,)) for _ in range(3 * layer.number("batch_normalize", 0))]
    values = layer.normalised(matrix @ layer.before.ravel(), bias, parts)
    return layer.activated(values, "logistic").reshape(count, 1, 1)


def _batchnorm(layer: _Layer) -> np.ndarray:
    channels = (len(layer.before),)
    bias = layer.take("bias", channels)
    return layer.normalised(layer.before, bias, [layer.take("statistics", channels) for _ in range(3)])


def _upsample(layer: _Layer) -> np.ndarray:
    stride, scale = layer.number("stride", 2), float(layer.options.get("scale", 1))
    if stride > 0:
        return scale * layer.before.repeat(stride, axis=1).repeat(stride, axis=2)
    channels, height, width = layer.before.shape
    squares = layer.before.reshape(channels, height // -stride, -stride, width // -stride, -stride)
    return scale * squares.sum(axis=(2, 4))


def _reorg_cpu(values: np.ndarray, shape: tuple[int, int, int], stride: int, forward: bool) -> np.ndarray:
    """`reorg_cpu` of src/blas.c, index by index; `shape` is what it is called with."""
    channels, height, width = shape
    result, given = np.zeros(values.size, np.float32), values.ravel()
    inner = channels // (stride * stride)
    for k, j, i in np.ndindex(channels, height, width):
        near = i + width * (j + height * k)
        offset = k // inner
        column, row = i * stride + offset % stride, j * stride + offset // stride
        far = column + width * stride * (row + height * stride * (k % inner))
        target, source = (far, near) if forward else (near, far)
        result[target] = given[source]
    return result


def _reorg(layer: _Layer) -> np.ndarray:
    channels, height, width = layer.before.shape
    stride, reverse = layer.number("stride", 1), bool(layer.number("reverse", 0))
    values = _reorg_cpu(layer.before, (channels, height, width), stride, reverse)
    return values.reshape(-1, *((height * stride, width * stride) if reverse else (height // stride, width // stride)))


def _reorg3d(layer: _Layer) -> np.ndarray:
    channels, height, width = layer.before.shape
    stride = layer.number("stride", 1)
    shape = (channels * stride**2, height // stride, width // stride)
    return _reorg_cpu(layer.before, shape, stride, False).reshape(shape)


def _route(layer: _Layer) -> np.ndarray:
    groups, part = layer.number("groups", 1), layer.number("group_id", 0)
    return np.concatenate([np.split(values, groups)[part] for values in layer.named("layers")])


def _shortcut(layer: _Layer) -> np.ndarray:
    """`shortcut_cpu` of src/blas.c for each layer."""
    total = layer.before.copy()
    for values in layer.named("from"):
        stride = max(1, values.shape[2] // total.shape[2])
        sample = max(1, total.shape[2] // values.shape[2])
        for k, j, i in np.ndindex(*np.minimum(values.shape, total.shape).tolist()):
            total[k, j * sample, i * sample] += values[k, j * stride, i * stride]
    return layer.activated(total, "linear")


def _softmax(layer: _Layer) -> np.ndarray:
    values = layer.before.reshape(layer.number("groups", 1), -1) / float(layer.options.get("temperature", 1))
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return (powers / powers.sum(axis=1, keepdims=True)).reshape(layer.before.shape)


_LAYERS: dict[str, Callable[[_Layer], np.ndarray]] = {
    "activation": lambda layer: layer.activated(layer.before, "linear"),
    "avgpool": lambda layer: layer.before.mean(axis=(1, 2), keepdims=True),
    "batchnorm": _batchnorm,
    "connected": _connected,
    "convolutional": _convolutional,
    "local_avgpool": lambda layer: np.nanmean(layer.windows(np.nan), axis=(3, 4)),
    "maxpool": lambda layer: layer.windows(-np.inf).max(axis=(3, 4)),
    "reorg": _reorg,
    "reorg3d": _reorg3d,
    "route": _route,
    "shortcut": _shortcut,
    "softmax": _softmax,
    "upsample": _upsample,
    **dict.fromkeys(("cost", "dropout", "region", "yolo"), lambda layer: layer.before),
    **dict.fromkeys(
        ("sam", "scale_channels"), lambda layer: layer.activated(layer.named("from")[0] * layer.before, "linear")
    ),
}
