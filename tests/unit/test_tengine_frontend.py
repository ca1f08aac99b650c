"""tmfiles: what each operator computes, names and shapes, and what is refused.

What is expected is computed in this file with numpy, from what Tengine-Lite's reference kernels (`*_ref.c`) do.
"""

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.agreement import computed, convolved, run_onnx
from support.fuzzing import peak_of, survive
from support.tmfiles import Field, TmFile, away, integers_of

from edgedeploy.errors import InputError, ModelError, OpenShapeError
from edgedeploy.frontends.format import Shapes
from edgedeploy.frontends.formats import describing
from edgedeploy.frontends.tengine import FORMAT
from edgedeploy.frontends.tengine.structure import read_structure

RELU, CONCAT, CONVOLUTION, DECONVOLUTION, POOLING, FULLY_CONNECTED = 20, 3, 5, 6, 16, 11
ELTWISE, RESHAPE, SLICE, SPLIT, REDUCTION, CROP, INTERP = 9, 23, 27, 29, 45, 56, 71


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def convert(file: TmFile, folder: Path, shapes: Shapes | None = None) -> onnx.ModelProto:
    return FORMAT.convert([file.save(folder / "net.tmfile")], shapes or {}).model


def run(file: TmFile, folder: Path, *tensors: np.ndarray) -> list[np.ndarray]:
    return list(run_onnx(convert(file, folder), *tensors).values())


class Case(NamedTuple):
    """An operator by its number, what it reads, and what it gives."""

    kind: int
    parameters: Sequence[Field]
    expected: Sequence[np.ndarray]
    data: Sequence[np.ndarray]
    weights: Sequence[np.ndarray] = ()

    def run(self, folder: Path) -> list[np.ndarray]:
        file = TmFile()
        inputs = [file.input(f"x{index}", tensor.shape) for index, tensor in enumerate(self.data)]
        inputs += [file.constant(values) for values in self.weights]
        node = file.node(self.kind, self.parameters, *inputs, outputs=len(self.expected))
        return run(file.output(node), folder, *self.data)


POSITIVE = np.abs(normal(2, 3, 4, 5)) + 0.5
ANY = normal(2, 3, 4, 5) * 4
THREE = [normal(2, 3, 4, seed=seed) for seed in range(3)]


def case(kind: int, fields: Sequence[Field], wanted: np.ndarray, *weights: np.ndarray, data: np.ndarray = ANY) -> Case:
    return Case(kind, fields, [wanted], [data], weights)


def each(kind: int, fields: Sequence[Field], of: Callable[[np.ndarray], np.ndarray], data: np.ndarray = ANY) -> Case:
    return case(kind, fields, of(data), data=data)


def eltwise(kind: int, scale: float = 0.0, power: float = 0.0, shift: float = 0.0) -> tuple[Field, ...]:
    return (kind, 0, shift, power, scale)


ONE_BY_ONE = {
    "Absval": each(68, (), np.abs),
    "Ceil": each(83, (), np.ceil),
    "Clip": each(87, (2.5, -1.5), lambda x: x.clip(-1.5, 2.5)),
    "Dropout": each(8, (), lambda x: x),
    "Elu": each(73, (0.7,), lambda x: np.where(x > 0, x, 0.7 * np.expm1(x))),
    "HardSwish": each(70, (1.0, 3.0), lambda x: x * (x + 3).clip(0, 6) / 6),
    "Hardsigmoid": each(64, (0.3, 0.4), lambda x: (0.3 * x + 0.4).clip(0, 1)),
    "Logistic": each(33, (), lambda x: 1 / (1 + np.exp(-x))),
    "Mish": each(97, (), lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "Noop": each(62, (), lambda x: x),
    "ReLU1": each(100, (), lambda x: x.clip(-1, 1)),
    "ReLu": each(RELU, (0.0,), lambda x: x.clip(0)),
    "ReLu with a slope": each(RELU, (0.1,), lambda x: np.where(x > 0, x, 0.1 * x)),
    "ReLu6": each(21, (), lambda x: x.clip(0, 6)),
    "Reciprocal": each(103, (), lambda x: 1 / x, POSITIVE),
    "Selu": each(72, (1.5, 1.1), lambda x: 1.1 * np.where(x > 0, x, 1.5 * np.expm1(x))),
    "Sigmoid": each(37, (), lambda x: 1 / (1 + np.exp(-x))),
    "Softplus": each(102, (), lambda x: np.log1p(np.exp(x))),
    "Tanh": each(36, (), np.tanh),
    "Eltwise rsqrt": each(ELTWISE, eltwise(7), lambda x: 1 / np.sqrt(x), POSITIVE),
    "Eltwise log": each(ELTWISE, eltwise(11), np.log, POSITIVE),
    "Eltwise exp": each(ELTWISE, eltwise(12), np.exp),
    "Eltwise sqrt": each(ELTWISE, eltwise(13), np.sqrt, POSITIVE),
    "Eltwise floor": each(ELTWISE, eltwise(14), np.floor),
    "Eltwise square": each(ELTWISE, eltwise(15), np.square),
    "Eltwise power": each(ELTWISE, eltwise(17, 2.0, 1.5, 0.5), lambda x: (0.5 + 2 * x) ** 1.5, POSITIVE),
    "Eltwise power of one": each(ELTWISE, eltwise(17, 2.0, 1.0, 0.5), lambda x: 0.5 + 2 * x),
    "Unary neg": each(59, (1,), np.negative),
    "Unary square": each(59, (4,), np.square),
    "Unary rsqrt": each(59, (6,), lambda x: 1 / np.sqrt(x), POSITIVE),
    "Unary exp": each(59, (7,), np.exp),
    "Unary log": each(59, (8,), np.log, POSITIVE),
    "Unary sin": each(59, (9,), np.sin),
    "Unary cos": each(59, (10,), np.cos),
    "Unary atan": each(59, (14,), np.arctan),
    "Unary tanh": each(59, (16,), np.tanh),
}

PAIRS = {0: np.multiply, 1: np.multiply, 2: np.add, 3: np.add, 4: np.subtract, 5: np.subtract, 6: np.maximum}
PAIRS |= {8: np.minimum, 10: np.divide, 16: np.power}


def several_tensors() -> Iterator[tuple[str, Case]]:
    one = POSITIVE[:1, :1, :1, :1]
    for kind, of in PAIRS.items():
        yield f"Eltwise {kind}", case(ELTWISE, eltwise(kind), of(POSITIVE, one), one.reshape(1), data=POSITIVE)
    for shape in [(2, 3, 4, 5), (3,), (1, 3, 1, 1), (3, 1), (1,), (1, 1, 4, 5), (120,)]:
        other = normal(*shape, seed=1)
        broadcast = other.reshape({3: (1, 3, 1, 1), ANY.size: ANY.shape}.get(other.size, other.shape))
        yield f"Eltwise with {shape}", Case(ELTWISE, eltwise(4), [ANY - broadcast], [ANY, other])
        yield f"Eltwise of {shape}", Case(ELTWISE, eltwise(4), [broadcast - ANY], [other, ANY])
    yield "Addn", Case(49, (0,), [np.sum(THREE, 0)], THREE)
    yield "Maximum", Case(46, (), [np.max(THREE, 0)], THREE)
    yield "Minimum", Case(47, (), [np.min(THREE, 0)], THREE)
    yield "Mean", Case(90, (), [np.mean(THREE, 0)], THREE)
    for axis in (1, -1):
        yield f"Concat of axis {axis}", Case(CONCAT, (axis,), [np.concatenate(THREE, axis)], THREE)


def per_channel(seed: int) -> np.ndarray:
    return normal(3, seed=seed) + 2


def channels() -> Iterator[tuple[str, Case]]:
    factor, shift = per_channel(1)[:, None, None], per_channel(2)[:, None, None]
    yield "PReLU", case(17, (), np.where(ANY > 0, ANY, ANY * factor), per_channel(1))
    vector = normal(2, 3)
    expected = np.where(vector > 0, vector, vector * per_channel(1))
    yield "PReLU of a vector", case(17, (), expected, per_channel(1), data=vector)
    yield "PReLU of all", case(17, (), np.where(ANY > 0, ANY, ANY * 0.2), np.float32([0.2]))
    statistics = [np.abs(per_channel(seed)) for seed in range(4)]
    gamma, beta, mean, variance = (values[:, None, None] for values in statistics)
    for rescale, caffe in product((1.0, 4.0, 0.0), (0, 1)):
        divided = 1 / rescale if rescale else 0
        scaled = (ANY - mean * divided) / np.sqrt(variance * divided + 0.01)
        expected = scaled if caffe else scaled * gamma + beta
        yield f"BatchNormalization {rescale} {caffe}", case(1, (rescale, 0.01, caffe), expected, *statistics)
    middle, spread = ANY.mean((2, 3), keepdims=True), ANY.var((2, 3), keepdims=True)
    normalised = (ANY - middle) / np.sqrt(spread + 0.01) * factor + shift
    yield "InstanceNorm", case(66, (0.01,), normalised, per_channel(1), per_channel(2))
    yield "Scale", case(26, (1, 1, 0), ANY * factor, per_channel(1))
    yield "Scale with a bias", case(26, (1, 1, 1), ANY * factor + shift, per_channel(1), per_channel(2))
    yield "Bias", case(61, (3,), ANY + factor, per_channel(1))
    six = normal(1, 6, 2, 2)
    yield "ShuffleChannel takes from each group in turn", case(55, (3,), six[:, [0, 2, 4, 1, 3, 5]], data=six)
    rows, offset = normal(5, 12, seed=1), normal(5, seed=2)
    for shape in ((2, 12), (2, 3, 4), (2, 3, 2, 2)):  # whose number of dimensions the output has
        data = normal(*shape)
        for bias in ([], [offset]):
            expected = (data.reshape(2, 12) @ rows.T + sum(bias)).reshape(2, 5, *(1 for _ in shape[2:]))
            yield f"FullyConnected {shape} {len(bias)}", case(FULLY_CONNECTED, (5,), expected, rows, *bias, data=data)
    powers = np.exp(ANY)
    for axis in (1, -1):
        softmax = powers / powers.sum(axis=axis, keepdims=True)
        yield f"Softmax of axis {axis}", case(28, (axis,), softmax)
        yield f"LogSoftmax of axis {axis}", case(99, (axis,), np.log(softmax))


def windows() -> Iterator[tuple[str, Case]]:
    forms = {
        "plain": {},
        "with pads and strides": {"pads": (1, 2, 0, 1), "stride": (2, 1)},
        "with dilation": {"dilation": (2, 1), "pads": (2, 0, 2, 0)},
    }
    for (title, form), groups in product(forms.items(), (1, 2, 4)):
        data, weights, bias = normal(2, 4, 7, 8), normal(8, 4 // groups, 3, 2, seed=1), normal(8, seed=2)
        parameters = convolution(8, kernel=(3, 2), groups=groups, **form)
        expected = convolved(data, weights, **form) + bias[:, None, None]
        # Biases come in several shapes.
        operands = weights, bias.reshape(1, 1, 1, 8)
        yield f"Convolution {title} in {groups} groups", case(CONVOLUTION, parameters, expected, *operands, data=data)
    data, weights = normal(1, 3, 5, 5) * 3, normal(4, 3, 3, 3, seed=1)
    for activation, (low, high) in {-1: (-math.inf, math.inf), 0: (0, math.inf), 1: (-1, 1), 6: (0, 6)}.items():
        expected = convolved(data, weights).clip(low, high)
        parameters = convolution(4, activation=activation)
        yield f"Convolution with activation {activation}", case(CONVOLUTION, parameters, expected, weights, data=data)
    half = weights.astype(np.float16)
    expected = convolved(data, half.astype(np.float32))
    yield "Convolution in half precision", case(CONVOLUTION, convolution(4), expected, half, data=data)
    data = normal(1, 3, 8, 8)
    for place, pad, pads in (("end", -1, (0, 0, 1, 1)), ("beginning", -2, (1, 1, 0, 0))):
        expected = convolved(data, weights, stride=(2, 2), pads=pads)
        parameters = convolution(4, stride=(2, 2), pads=(pad,) * 4)
        odd = case(CONVOLUTION, parameters, expected, weights, data=data)
        yield f"Convolution with SAME's odd pixel at the {place}", odd
    for groups, (activation, low, high) in product((1, 2), [(-1, -math.inf, math.inf), (0, 0, math.inf), (2, 0, 6)]):
        title = f"Deconvolution in {groups} groups with activation {activation}"
        yield title, deconvolution(groups, activation, low, high)
    image = normal(2, 3, 8, 9)
    for average, (flavour, kernel, stride, pad, begin, count) in product((0, 1), POOLS):
        parameters = (average, kernel, kernel, stride, stride, 0, flavour, pad, pad, pad, pad)
        if pad < 0:  # 9 columns need a pixel on each side, 8 rows one at their end
            padded = np.pad(image, ((0, 0), (0, 0), (0, 1), (1, 1)), constant_values=np.nan)
            parts = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
            expected = np.nanmean(parts, (4, 5)) if average else np.nanmax(parts, (4, 5))
        else:
            expected = pooled(image, bool(average), kernel, stride, begin, count, with_padding=flavour != 0)
        yield f"Pooling {parameters}", case(POOLING, parameters, expected, data=image)
    for average, (whole, *kernel) in product((0, 1), [(1, 2, 2), (0, 8, 9)]):
        parameters = (average, *kernel, 2, 2, whole, 0, 1, 1, 1, 1)
        expected = (image.mean if average else image.max)((2, 3), keepdims=True)
        yield f"Pooling of the whole {parameters}", case(POOLING, parameters, expected, data=image)
    data = normal(1, 3, 4, 5)
    yield "Upsample", case(51, (2.0,), nearest(data, 8, 10), data=data)
    yield "Resize", case(54, (2.0, 3.0, 0), nearest(data, 8, 15), data=data)
    yield "Interp by scales", case(INTERP, (1, 3.0, 2.0, 0, 0), nearest(data, 8, 15), data=data)
    yield "Interp to a size", case(INTERP, (1, 0.0, 0.0, 7, 9), nearest(data, 9, 7), data=data)
    expected = data
    for axis, size in ((2, 8), (3, 10)):  # from the corner on
        place = np.arange(size) * data.shape[axis] / size
        low = np.floor(place).astype(int)
        high = np.minimum(low + 1, data.shape[axis] - 1)
        part = (place - low).reshape((1, 1, -1, 1) if axis == 2 else (1, 1, 1, -1))
        expected = expected.take(low, axis) * (1 - part) + expected.take(high, axis) * part
    yield "Interp of two by two", case(INTERP, (2, 2.0, 2.0, 0, 0), expected, data=data)


def convolution(
    outputs: int,
    *,
    kernel: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    activation: int = -1,
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> tuple[int, ...]:
    # Some converters leave the number of input channels at 1.
    return (*kernel, *stride, *dilation, 1, outputs, groups, activation, *pads)


def deconvolution(groups: int, activation: int, low: float, high: float) -> Case:
    data, weights, bias = normal(2, 4, 3, 5), normal(4, 6 // groups, 3, 2, seed=1), normal(6, seed=2)
    top, left, bottom, right = pads = (1, 0, 0, 1)
    whole = np.zeros((2, 6, 2 * 2 + 3 + 1, 4 * 3 + 2))
    per_group = 6 // groups
    for i, o, r, c in product(range(4), range(per_group), range(3), range(2)):
        output = i // (4 // groups) * per_group + o
        whole[:, output, r : r + 5 : 2, c : c + 13 : 3] += data[:, i] * weights[i, o, r, c]
    expected = (whole[:, :, pads[0] :, : 14 - pads[3]] + bias[:, None, None]).clip(low, high)
    parameters = (6, 3, 2, 2, 3, left, top, right, bottom, 1, 1, groups, activation, 1, 0)
    return case(DECONVOLUTION, parameters, expected, weights, bias, data=data)


# Flavour, kernel, stride and padding; where the first window begins, and how many there are.
POOLS = [
    (0, 3, 2, 0, 0, (3, 4)),  # rounds down
    (0, 3, 2, 1, 1, (4, 5)),
    (1, 3, 2, 0, 0, (4, 4)),  # Caffe's rounds up
    (1, 3, 2, 1, 1, (5, 5)),
    (1, 2, 2, 1, 1, (5, 5)),  # the last window would lie in the padding
    (2, 3, 1, 2, 1, (8, 9)),  # the padding of both sides in one number
    (16, 3, 2, 1, 1, (4, 5)),  # rounds down, and padding counts
    (0, 3, 2, -1, 0, (4, 5)),  # as many as strides
]


def pooled(
    data: np.ndarray, average: bool, kernel: int, stride: int, pad: int, count: tuple[int, int], with_padding: bool
) -> np.ndarray:
    """Pooling window by window, as Tengine's pooling_ref_fp32.c does it."""
    size = data.shape[2:]
    result = np.zeros((*data.shape[:2], *count))
    for row, column in product(range(count[0]), range(count[1])):
        starts = [index * stride - pad for index in (row, column)]
        ends = [min(start + kernel, there + pad) for start, there in zip(starts, size, strict=True)]
        area = math.prod(end - start for start, end in zip(starts, ends, strict=True))
        inside = data[:, :, max(0, starts[0]) : min(ends[0], size[0]), max(0, starts[1]) : min(ends[1], size[1])]
        if average:
            result[:, :, row, column] = inside.sum((2, 3)) / (area if with_padding else inside[0, 0].size)
        else:
            result[:, :, row, column] = inside.max((2, 3))
    return result


def nearest(data: np.ndarray, height: int, width: int) -> np.ndarray:
    rows = np.arange(height) * data.shape[2] // height
    columns = np.arange(width) * data.shape[3] // width
    return data[:, :, rows][:, :, :, columns]


def shapes() -> Iterator[tuple[str, Case]]:
    for mxnet, wanted, shape in [
        (0, [2, 60], (2, 60)),
        (0, [0, -1], (2, 60)),
        (1, [0, 0, -1], (2, 3, 20)),
        (1, [0, -2], (2, 3, 4, 5)),
        (1, [0, -3, 0], (2, 12, 5)),
        (1, [0, -4, 3, 1, -2], (2, 3, 1, 4, 5)),
        (0, [-1], (120,)),
    ]:
        yield f"Reshape {mxnet} to {wanted}", case(RESHAPE, (mxnet, 0, wanted), ANY.reshape(shape))
    one = normal(1, 3, 4, 1)
    yield "Permute", case(15, (0, 0, 2, 3, 1), ANY.transpose(0, 2, 3, 1))
    yield "Permute of three axes", case(15, (0, 1, 0, 2, 3), ANY[0].transpose(1, 0, 2), data=ANY[0])
    yield "Transpose", case(77, ([3, 1, 0, 2],), ANY.transpose(3, 1, 0, 2))
    yield "SwapAxis", case(50, (1, 3), ANY.swapaxes(1, 3))
    yield "Flatten", case(10, (1, 3), ANY.reshape(2, 60))
    yield "Squeeze of stated axes", case(38, (0, 3, -2, -2), one[0, :, :, 0], data=one)
    yield "Squeeze of all axes", case(38, (-2, -2, -2, -2), one[0, :, :, 0], data=one)
    yield "Unsqueeze", case(88, ([0, 3],), ANY[0][None, :, :, None], data=ANY[0])
    widths = [(0, 1), (1, 0), (1, 2), (2, 1)]
    yield "Pad", case(40, (*sum(widths, ()), 0, 0.5), np.pad(ANY, widths, constant_values=0.5))
    widths = [(0, 0), (0, 0), (1, 2), (2, 1)]
    yield "Pad by edges", case(40, (*sum(widths, ()), 1, 0.5), np.pad(ANY, widths, "edge"))
    yield "Pad by reflection", case(40, (*sum(widths, ()), 2, 0.5), np.pad(ANY, widths, "reflect"))
    reductions = {
        "sum": np.sum,
        "mean": np.mean,
        "asum": lambda x, **axes: np.sum(np.abs(x), **axes),
        "sqsum": lambda x, **axes: np.sum(np.square(x), **axes),
        "max": np.max,
        "min": np.min,
        "prod": np.prod,
    }
    forms = [((2, 3, -2, -2), 1), ((1, -2, -2, -2), 0), ((-1, -2, -2, -2), 0)]
    for (kind, (name, reduce)), (axes, keep) in product(enumerate(reductions.items()), forms):
        expected = reduce(ANY, axis=tuple(axis for axis in axes if axis != -2), keepdims=bool(keep))
        yield f"Reduction {name} of {axes}", case(REDUCTION, (*axes, kind, keep), expected)
    yield "Reduction of everything to a vector of one", case(REDUCTION, (-2, -2, -2, -2, 1, 0), ANY.mean().reshape(1))


def slice_of(
    *,
    axis: int = 0,
    points: Sequence[int] = (),
    begins: Sequence[int] = (),
    sizes: Sequence[int] = (),
    caffe: int = 0,
    mxnet: int = 0,
    onnx: int = 0,
    cut: tuple[int, int, int] = (0, 0, 1),
) -> tuple[Field, ...]:
    vectors = [list(part) if part else 0 for part in (points, begins, sizes)]
    return (axis, *vectors, caffe, mxnet, onnx, *cut)


def parts() -> Iterator[tuple[str, Case]]:
    def divided(kind: int, parameters: Sequence[Field], *expected: np.ndarray) -> Case:
        return Case(kind, parameters, expected, [ANY])

    yield "Caffe's Slice at points", divided(SLICE, slice_of(axis=3, points=[1, 3], caffe=1), *np.split(ANY, [1, 3], 3))
    yield "Caffe's Slice into equal parts", divided(SLICE, slice_of(axis=2, caffe=1), *np.split(ANY, 2, 2))
    yield "MXNet's Slice", divided(SLICE, slice_of(axis=3, mxnet=1, cut=(1, 4, 1)), ANY[..., 1:4])
    for cut in [(1, 4, 2), (0, -1, 1), (1, 2**31 - 1, 3)]:
        yield f"ONNX's Slice {cut}", divided(SLICE, slice_of(axis=3, onnx=1, cut=cut), ANY[..., slice(*cut)])
    yield "TensorFlow's Slice", divided(SLICE, slice_of(begins=[0, 1, 1, 2], sizes=[2, 2, -1, 1]), ANY[:, 1:3, 1:, 2:3])
    yield "Split into sizes", divided(SPLIT, (-1, 2, False, True, [1, 4]), *np.split(ANY, [1], 3))
    yield "Split into equal parts", divided(SPLIT, (2, 2, False, True, 0), *np.split(ANY, 2, 2))
    yield "Caffe's Split gives its input to all", divided(SPLIT, (0, 1, True, False, 0), ANY, ANY)
    ends = (0, 0, 1, 1, 0, 1, 1, -1, 1, 0, 0, 2)
    yield "StridedSlice leaves out what its ends state", divided(41, ends, ANY[:, 1:, 1:-1, ::2])
    size, channels = np.zeros((2, 3, 2, 3), np.float32), np.zeros((2, 2, 2, 3), np.float32)
    for title, parameters, like, expected in [
        ("MXNet's Crop to another's size", (2, 0, 1, 2, 0, 0, False, 2, 1), size, ANY[:, :, 1:3, 2:5]),
        ("Caffe's Crop to another's size", (2, 0, 1, 2, 0, 0, False, 2, 0), size, ANY[:, :, 1:3, 2:5]),
        ("MXNet's Crop to the middle", (1, 0, 0, 0, 2, 3, True, 2, 1), size, ANY[:, :, 1:3, 1:4]),
        ("Caffe's Crop of channels", (2, 1, 1, 2, 0, 0, False, 1, 0), channels, ANY[:, 1:, 1:3, 2:]),
    ]:
        yield title, Case(CROP, parameters, [expected], [ANY, like])


CASES = ONE_BY_ONE | dict([*several_tensors(), *channels(), *windows(), *shapes(), *parts()])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_operator_computes_what_tengines_kernel_does(case: Case, tmp_path: Path) -> None:
    for found, expected in zip(case.run(tmp_path), case.expected, strict=True):
        assert found.shape == expected.shape
        assert np.allclose(found, expected, rtol=1e-4, atol=1e-5)


class TestNetworks:
    def tiny(self, shape: Sequence[int] | None = (1, 3, 4, 4), origin: int = 2) -> TmFile:
        file = TmFile(origin=origin)
        data = file.input("an image", shape)
        conv = file.node(CONVOLUTION, convolution(4), data, file.constant(normal(4, 3, 3, 3)), name="conv")
        return file.output(file.node(8, (), conv, name="drop"), file.node(RELU, (0.0,), conv, name="relu"))

    def test_inputs_and_outputs_keep_their_names_and_order(self, tmp_path: Path) -> None:
        graph = convert(self.tiny(), tmp_path).graph
        assert [value.name for value in graph.input] == ["an image"]
        assert [value.name for value in graph.output] == ["drop", "relu"]

    def test_nodes_may_stand_in_any_order(self, tmp_path: Path) -> None:
        file = TmFile()
        data = file.input("data", (1, 2))
        file.node(RELU, (0.0,), data + 2)
        file.node(68, (), data)
        assert run(file.output(data + 1), tmp_path, np.array([[-1, 2]], np.float32))[0].tolist() == [[1, 2]]

    def test_what_no_output_needs_is_left_out(self, tmp_path: Path) -> None:
        file = TmFile()
        data = file.input("data", (1, 2))
        file.node(18, (), data, name="priors")  # PriorBox
        file.output(file.node(RELU, (0.0,), data))
        assert [node.op_type for node in convert(file, tmp_path).graph.node] == ["Relu"]

    def test_a_darknet_networks_batch_of_training_is_one_image(self, tmp_path: Path) -> None:
        for origin, batch in ((7, 1), (2, 32)):
            [value] = convert(self.tiny((32, 3, 4, 4), origin), tmp_path).graph.input
            assert [size.dim_value for size in value.type.tensor_type.shape.dim] == [batch, 3, 4, 4]

    def test_a_shape_that_is_given_goes_first(self, tmp_path: Path) -> None:
        for stated in (None, (1, 3, 4, 4)):
            [value] = convert(self.tiny(stated), tmp_path, {"an image": [2, 3, 8, 6]}).graph.input
            assert [size.dim_value for size in value.type.tensor_type.shape.dim] == [2, 3, 8, 6]

    def test_an_open_shape_says_how_to_give_one(self, tmp_path: Path) -> None:
        with pytest.raises(OpenShapeError, match="'an image'") as raised:
            convert(self.tiny(None), tmp_path)
        assert raised.value.input == "an image"
        assert raised.value.hints == ("give it a shape: --input-shape an image:1,3,224,224",)
        assert FORMAT.open_input([tmp_path / "net.tmfile"], {}) == "an image"
        assert FORMAT.open_input([tmp_path / "net.tmfile"], {"an image": [1, 3, 8, 8]}) is None

    @pytest.mark.parametrize("shape", [[1, 3, 8], [1, 3, 0, 8], [1, 3, 8, 10**20]])
    def test_a_shape_that_does_not_fit_and_one_for_no_input_are_refused(self, shape: list[int], tmp_path: Path) -> None:
        with pytest.raises(InputError, match="does not fit"):
            convert(self.tiny(), tmp_path, {"an image": shape})
        with pytest.raises(InputError, match="its inputs: an image"):
            convert(self.tiny(), tmp_path, {"date": [1, 3, 8, 8]})

    def test_a_shape_that_an_operator_cannot_take_names_its_node(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="Convolution 'conv' cannot be imported"):
            convert(self.tiny(), tmp_path, {"an image": [1, 4, 8, 8]})


LOOSE = ("loose", RELU, (0.0,), [0], [])


class TestFiles:
    def test_they_are_known_by_their_content(self, tmp_path: Path) -> None:
        path = TestNetworks().tiny().save(tmp_path / "network.bin")
        assert describing(path) == (FORMAT, path)

    @pytest.mark.parametrize(
        "head", [b"", b"\x02\x00", b"\x08\x07\x12\x07pytorch", b"\x1c\x00\x00\x00TFL3" + bytes(8), b"7767517\n75 83\n"]
    )
    def test_other_files_are_not(self, head: bytes) -> None:
        assert not FORMAT.recognises(head)

    def test_weights_that_do_not_suit_the_input_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"4x3x3x3 are there, not 4x2x3x3"):
            case(CONVOLUTION, convolution(4), ANY, normal(4, 3, 3, 3), data=normal(1, 2, 5, 5)).run(tmp_path)

    def test_a_cycle_is_refused(self, tmp_path: Path) -> None:
        file = TmFile()
        data = file.input("data", (1, 3))
        loop = file.node(ELTWISE, (2, 0, 0.0, 0.0, 0.0), data, data + 2, name="loop")
        file.node(RELU, (0.0,), loop)
        with pytest.raises(ModelError, match="needs its own output"):
            convert(file.output(loop), tmp_path)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda file: file.outputs.clear(), "it has no outputs"),
            (lambda file: file.inputs.clear(), "its inputs are not those that it lists"),
            (lambda file: file.inputs.append(1), "its inputs are not those that it lists"),
            (lambda file: file.outputs.append(0), "output 'an image' is not computed"),
            (lambda file: file.outputs.append(1), "is not computed"),
            (lambda file: file.nodes.append(LOOSE) or file.outputs.append(5), "has no outputs"),
            (lambda file: file.outputs.append(77), "name number 77 of 5"),
            (lambda file: file.nodes.append(file.nodes[2]), "comes from two nodes"),
            (lambda file: file.nodes.pop(2), "comes from nowhere|name number"),
            (lambda file: setattr(file, "version", 3), "version 3 of Tengine's format: only version 2 can be read"),
            (lambda file: setattr(file, "layout", 1), "another order than NCHW"),
            (
                lambda file: file.output(file.node(31, (), file.node(34, (), 0, name="memory"), name="later")),
                "operator LSTM is not supported: node 'memory' needs it",
            ),
            (lambda file: file.output(file.node(4000, (), 0)), "operator number 4000 is not supported"),
            (lambda file: file.tensors.insert(1, (*file.tensors.pop(1)[:-1], b"")), "has no weights: its tensor 'w1'"),
        ],
    )
    def test_unsound_networks_are_refused(
        self, change: Callable[[TmFile], object], message: str, tmp_path: Path
    ) -> None:
        file = TestNetworks().tiny()
        change(file)
        assert FORMAT.recognises(file.content())
        with pytest.raises(ModelError, match=message):
            convert(file, tmp_path)

    def test_a_truncated_file_says_what_is_missing(self, tmp_path: Path) -> None:
        path = TestNetworks().tiny().save(tmp_path / "net.tmfile")
        path.write_bytes(path.read_bytes()[:-8])
        with pytest.raises(ModelError, match="is not complete: the model needs 16 bytes at"):
            FORMAT.convert([path], {})


# Hostile tmfiles: the frontend answers with a network or one of our errors, soon and in little memory.

SECONDS = 10  # for one file, on a busy machine; a sound one takes a hundredth
MEMORY = 2**22  # beyond four times the file's size, in bytes

# Numbers that files lie with: none, one, the largest, the smallest, minus one.
LIES = (0, 1, 2, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x00010000, 0x7F800000, 0x7FC00000)


def network() -> bytes:
    def weights(*shape: int) -> int:
        return file.constant(np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape))

    file = TmFile()
    data = file.input("data", (1, 4, 8, 8))
    conv = file.node(5, (3, 3, 2, 2, 1, 1, 4, 4, 2, 0, 1, 1, 1, 1), data, weights(4, 2, 3, 3), weights(4))
    pool = file.node(16, (1, 3, 3, 2, 2, 0, 1, 1, 1, 1, 1), conv)
    grown = file.node(6, (4, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, -1, 0, 0), pool, weights(4, 4, 2, 2))
    crop = file.node(56, (2, 0, 0, 0, 0, 0, False, 2, 1), grown, conv)
    total = file.node(9, (2, 0, 0.0, 0.0, 0.0), crop, file.node(17, (), conv, weights(4)))
    normal = file.node(1, (1.0, 0.001, 0), total, weights(4), weights(4), weights(4), weights(4))
    parts = file.node(29, (1, 2, False, True, [1, 3]), normal, outputs=2)
    joined = file.node(3, (1,), file.node(51, (2.0,), parts), file.node(71, (2, 2.0, 2.0, 0, 0), parts + 1))
    padded = file.node(40, (0, 0, 0, 0, 1, 0, 0, 1, 0, 0.5), joined)
    cut = file.node(27, (0, 0, [0, 0, 1, 0], [1, 4, 8, 8], 0, 0, 0, 0, 0, 0), padded)
    turned = file.node(77, ([0, 2, 3, 1],), file.node(8, (), cut))
    flat = file.node(23, (1, 0, [0, -3, -1]), turned)
    mean = file.node(45, (1, -2, -2, -2, 1, 0), flat)
    dense = file.node(11, (3,), mean, weights(3, 4), weights(3))
    return file.output(file.node(28, (1,), dense), total).content()


SOUND = network()


def attempt(content: bytes, path: Path) -> None:
    """Convert a file; only our errors are swallowed."""
    path.write_bytes(content)
    survive(lambda: FORMAT.convert([path], {}), seconds=SECONDS)


def damaged(content: bytes, random: np.random.Generator) -> bytes:
    """The file with a few bits, or a few of its numbers, changed, or cut off."""
    changed = bytearray(content)
    kind = random.integers(4)
    if kind == 0:
        return content[: random.integers(len(content))]
    for _ in range(random.integers(1, 5)):
        if kind == 1:
            changed[random.integers(len(changed))] ^= 1 << random.integers(8)
        else:
            # Any number may be taken for an offset: kind 2 has it lead to another table, or back.
            lie = int(random.integers(len(changed))) & ~3 if kind == 2 else int(random.choice(LIES))
            struct.pack_into("<I", changed, int(random.integers(len(changed) // 4)) * 4, lie)
    return bytes(changed)


def test_the_sound_network_is_converted(tmp_path: Path) -> None:
    (tmp_path / "net.tmfile").write_bytes(SOUND)
    assert len(FORMAT.convert([tmp_path / "net.tmfile"], {}).model.graph.node) > 15


@pytest.mark.parametrize(
    ("seed", "cases"), [(0, 400), pytest.param(1, 12_000, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_damaged_files_end_in_our_errors(seed: int, cases: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    for _ in range(cases):
        attempt(damaged(SOUND, random), tmp_path / "net.tmfile")


@pytest.mark.slow
def test_every_number_may_be_the_largest(tmp_path: Path) -> None:
    for place in range(0, len(SOUND) - 3, 4):
        changed = bytearray(SOUND)
        struct.pack_into("<I", changed, place, 0xFFFFFFFF)
        attempt(bytes(changed), tmp_path / "net.tmfile")


def vector_of(count: int, place: int) -> bytes:
    return struct.pack("<I", count) + struct.pack("<I", place) * count


def shared_tables() -> Iterator[bytes]:
    """A model of 16,384 tensors and nodes that are all the same table, with a long name."""
    content = bytearray(struct.pack("<HHHHI", 2, 0, 0, 0, 12))
    model = len(content)
    content += struct.pack("<iiII", 0, 0, 28, 0) + struct.pack("<II", 1, 36)
    assert model == 12
    lists = 36 + 40
    table = lists + 4 + 4 * 16384
    content += struct.pack("<Iii7I", 0, 0, 0, lists, lists, lists, lists, lists, 0, 0)
    content += vector_of(16384, table)
    content += struct.pack("<8I", 0, 0, 0, table + 32, 0, 0, 2, 0)
    content += struct.pack("<II", 1000, table + 40) + b"n" * 1000
    yield bytes(content)


def wide_weights() -> Iterator[bytes]:
    """A network that reads one constant, as large as the file, thousands of times in another shape."""
    file = TmFile()
    data = file.input("data", (1, 4096))
    weights = file.constant(np.zeros(4096, np.float32))
    for _ in range(500):
        data = file.node(17, (), data, weights)
    yield file.output(data).content()


def large_outputs() -> Iterator[bytes]:
    """Averages over an image whose padding alone is larger than any memory."""
    file = TmFile()
    data = file.input("data", (1, 1, 4, 4))
    yield file.output(file.node(16, (1, 2**30, 2, 1, 1, 0, 16, 2**30 - 1, 0, 0, 0), data)).content()


def many_dimensions() -> Iterator[bytes]:
    """Constants whose sizes multiply to zero, or to a little, in 64 bits."""
    file = TmFile()
    data = file.input("data", (2**16, 2**16, 2**16, 2**16))
    weights = file.constant(np.zeros(4, np.float32))
    name, _, kind, dtype, values = file.tensors[weights]
    file.tensors[weights] = (name, (2**31 - 1, 2**31 - 1, 2**31 - 1, 2**2), kind, dtype, values)
    yield file.output(file.node(9, (2, 0, 0.0, 0.0, 0.0), data, weights)).content()


def large_counts() -> Iterator[bytes]:
    """The sound file with some of what may be counts as large as the file, and far larger."""
    small = [place for place in range(0, len(SOUND) - 3, 4) if 0 < struct.unpack_from("<I", SOUND, place)[0] < 30]
    for place in np.random.default_rng(0).choice(small, 40, replace=False).tolist():
        for count in (len(SOUND) // 4, 2**14, 2**31):
            yield SOUND[:place] + struct.pack("<I", count) + SOUND[place + 4 :]


@pytest.mark.parametrize("make", [shared_tables, wide_weights, large_outputs, many_dimensions, large_counts])
def test_a_hostile_file_takes_little_memory(make: Callable[[], Iterator[bytes]], tmp_path: Path) -> None:
    attempt(SOUND, tmp_path / "net.tmfile")  # imports what is imported once
    for content in make():
        assert peak_of(partial(attempt, content, tmp_path / "net.tmfile")) < 4 * len(content) + MEMORY


# Quantised tmfiles, against the arithmetic of Tengine-Lite's int8 and uint8 kernels (`*_ref.c`), in numpy.

ADD = (2, 0, 0.0, 0.0, 0.0)  # of Eltwise's kinds
AVERAGE_OF_ALL = (1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0)
RANDOM = np.random.default_rng(5)


def steps_of(values: np.ndarray, scale: float, zero_point: int = 0, dtype: str = "int8") -> np.ndarray:
    low, high = (-127, 127) if dtype == "int8" else (0, 255)
    return np.clip(away((values / np.float32(scale)).astype(np.float32)) + zero_point, low, high)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_layers_compute_what_tengine_does(dtype: str, tmp_path: Path) -> None:
    """Convolution, ReLU, a sum, the average of all and a dense layer."""
    zero, middle = (0, 0) if dtype == "int8" else (3, 128)
    limits = (-127, 128) if dtype == "int8" else (0, 256)
    channels = 6
    scales = np.linspace(0.01, 0.03, channels).astype(np.float32) if dtype == "int8" else np.full(1, 0.02, np.float32)
    weights = RANDOM.integers(*limits, (channels, channels, 3, 3)).astype(dtype)
    bias = RANDOM.integers(-4000, 4000, channels).astype(np.int32)
    dense = RANDOM.integers(*limits, (10, channels)).astype(dtype)
    file = TmFile()
    data = file.quantise(file.input("data", (1, channels, 7, 9)), dtype, [0.05], middle)
    held = file.quantise(file.constant(weights, "weights"), dtype, scales.tolist(), middle)
    biased = file.quantise(file.constant(bias, "bias"), "int32", (0.05 * scales).tolist())
    convolution = (3, 3, 1, 1, 1, 1, channels, channels, 1, -1, 1, 1, 1, 1)
    filtered = file.quantise(file.node(CONVOLUTION, convolution, data, held, biased), dtype, [0.4], middle)
    positive = file.quantise(file.node(RELU, (0.0,), filtered), dtype, [0.4], middle)
    summed = file.quantise(file.node(ELTWISE, ADD, positive, data), dtype, [0.45], middle)
    pooled = file.quantise(file.node(POOLING, AVERAGE_OF_ALL, summed), dtype, [0.1], zero)
    inner = file.quantise(file.constant(dense, "dense"), dtype, [0.02], middle)
    scored = file.quantise(file.node(FULLY_CONNECTED, (10,), pooled, inner), dtype, [0.3], middle)
    model = convert(file.output(scored), tmp_path)

    image = RANDOM.uniform(-6.5, 6.5, (1, channels, 7, 9)).astype(np.float32)
    [(name, found)] = run_onnx(model, image).items()
    assert name == "n" + str(len(file.nodes) - 1)

    given = steps_of(image, 0.05, middle, dtype) - middle
    sums = convolved(given, weights.astype(np.int64) - middle, pads=(1, 1, 1, 1)) + bias.reshape(1, -1, 1, 1)
    real = sums.astype(np.float32) * (np.float32(0.05) * scales).reshape(1, -1, 1, 1)
    first = steps_of(real, 0.4, middle, dtype) - middle
    added = np.maximum(first, 0) * np.float32(0.4) + given * np.float32(0.05)
    total = (steps_of(added, 0.45, middle, dtype) - middle) * np.float32(0.45)
    mean = steps_of(total.mean(axis=(2, 3), dtype=np.float32), 0.1, zero, dtype) - zero
    products = (mean @ (dense.astype(np.int64) - middle).T).astype(np.float32) * (np.float32(0.1) * np.float32(0.02))
    wanted = (steps_of(products, 0.3, middle, dtype) - middle) * np.float32(0.3)
    assert len(np.unique(wanted)) > 5
    assert np.abs(found.reshape(wanted.shape) - wanted).max() <= 0.3 * 1.001
    assert (np.abs(found.reshape(wanted.shape) - wanted) > 1e-4).mean() <= 0.2


def random_layers(steps: dict[str, float]) -> TmFile:
    """Each operator of int8 that computes new values, one behind the other; the network has all of their results."""
    file = TmFile()
    channels, outputs = 8, 12

    def held(*shape: int) -> int:
        weights = RANDOM.integers(-127, 128, shape).astype(np.int8)
        scales = steps["weights"] * RANDOM.integers(1, 5, shape[0]).astype(np.float32)
        return file.quantise(file.constant(weights), "int8", scales.tolist())

    def bias(count: int) -> int:
        return file.constant(RANDOM.integers(-3000, 3000, count).astype(np.int32))

    def result(name: str, kind: int, parameters: tuple, *read: int) -> int:
        return file.quantise(file.node(kind, parameters, *read, name=name), "int8", [steps[name]])

    def convolution(activation: int, inputs: int, count: int, groups: int = 1) -> tuple:
        return (3, 3, 1, 1, 1, 1, inputs, count, groups, activation, 1, 1, 1, 1)

    data = file.quantise(file.input("data", (1, channels, 12, 10)), "int8", [steps["data"]])
    weights = held(outputs, channels, 3, 3)
    first = result("conv", CONVOLUTION, convolution(-1, channels, outputs), data, weights, bias(outputs))
    other = result("relu6", CONVOLUTION, convolution(6, channels, outputs), data, held(outputs, channels, 3, 3))
    depthwise = (CONVOLUTION, convolution(-1, outputs, outputs, outputs))
    deep = result("depthwise", *depthwise, first, held(outputs, 1, 3, 3), bias(outputs))
    summed = result("sum", ELTWISE, ADD, deep, other)
    leaky = result("leaky", RELU, (0.125,), summed)
    joined = result("concat", CONCAT, (1,), leaky, other)
    largest = result("max", POOLING, (0, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0), joined)
    average = result("average", POOLING, (1, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0), joined)
    pooled = result("mean", POOLING, AVERAGE_OF_ALL, average)
    scored = result("dense", FULLY_CONNECTED, (10,), pooled, held(10, 2 * outputs), bias(10))
    return file.output(first, other, deep, summed, leaky, joined, largest, average, pooled, scored)


# Powers of two: of many layers a good part of the values lies at a half, exactly.
HALVES = {
    "data": 2**-5, "weights": 2**-8, "conv": 2**-1, "relu6": 2**-4, "depthwise": 2**0, "sum": 2**0, "leaky": 2**-1,
    "concat": 2**0, "max": 2**1, "average": 2**0, "mean": 2**-1, "dense": 2**-1,
}  # fmt: skip
OTHERS = {name: step * 0.7 + 0.013 * place for place, (name, step) in enumerate(HALVES.items())}


@pytest.mark.compiles
@pytest.mark.parametrize("steps", [HALVES, OTHERS], ids=["values at a half", "any values"])
def test_compiled_networks_of_int8_give_the_integers_of_tengine_s_kernels(steps: dict, tmp_path: Path) -> None:
    path = random_layers(steps).save(tmp_path / "net.tmfile")
    structure, network = read_structure(path), FORMAT.read([path], {})
    data = RANDOM.uniform(-4.2, 4.2, (1, 8, 12, 10)).astype(np.float32)
    data[:, 4:] = RANDOM.integers(-200, 200, (1, 4, 12, 10)) * np.float32(steps["data"]) / 2
    integers = integers_of(structure, data)
    for found, number in zip(computed(network, {"data": data}), structure.outputs, strict=True):
        node = structure.nodes[number]
        [output] = node.outputs.tolist()
        wanted = integers[output].astype(np.float32) * np.float32(steps[node.name])
        assert (found.dtype, found.shape) == (np.float32, wanted.shape)
        assert len(np.unique(wanted)) > 5
        np.testing.assert_array_equal(found, wanted, err_msg=node.name)


def test_weights_stay_integers_with_a_scale_of_each_output(tmp_path: Path) -> None:
    file = TmFile()
    data = file.quantise(file.input("data", (1, 4)), "int8", [0.1])
    weights = file.quantise(file.constant(np.ones((3, 4), np.int8), "weights"), "int8", [0.1, 0.2, 0.3])
    # The scale that a file states of a bias is not looked at: it is added to the sums.
    bias = file.quantise(file.constant(np.array([1, 2, 3], np.int32), "bias"), "int32", [9.0])
    node = file.node(FULLY_CONNECTED, (3,), data, weights, bias, name="dense")
    model = convert(file.output(file.quantise(node, "int8", [0.5])), tmp_path)
    stored = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    assert stored["weights/integers"].dtype == np.int8
    assert stored["bias/integers"].dtype == np.int32
    np.testing.assert_array_equal(stored["bias/scale"], np.float32(0.1) * np.float32([0.1, 0.2, 0.3]))
    [(name, found)] = run_onnx(model, np.ones((1, 4), np.float32)).items()
    assert name == "dense"
    np.testing.assert_allclose(found, [[0.5, 1.0, 1.5]], rtol=1e-6)


def test_minus_128_does_not_occur(tmp_path: Path) -> None:
    file = TmFile()
    data = file.quantise(file.input("data", (1, 3)), "int8", [0.5])
    model = convert(file.output(file.quantise(file.node(ELTWISE, ADD, data, data), "int8", [0.5])), tmp_path)
    [found] = run_onnx(model, np.array([[-1000, 63.6, 1000]], np.float32)).values()
    np.testing.assert_array_equal(found, [[-63.5, 63.5, 63.5]])


@pytest.mark.compiles
def test_tensors_of_16_bits_are_what_their_scales_say(tmp_path: Path) -> None:
    """Weights of any scales become floats; results and inputs are rounded to their steps, and stay within the type."""
    weights = RANDOM.integers(-(2**15), 2**15, (3, 4)).astype(np.int16)
    scales, data_scale, scale = np.float32([1e-4, 2e-4, 5e-5]), np.float32(2e-3), np.float32(0.004)
    file = TmFile()
    data = file.quantise(file.input("data", (2, 4)), "int16", [float(data_scale)], 100)
    held = file.quantise(file.constant(weights, "weights"), "int16", scales.tolist())
    bias = file.constant(np.array([5000, -7000, 123], np.int32), "bias")
    dense = file.quantise(file.node(FULLY_CONNECTED, (3,), data, held, bias, name="dense"), "int16", [float(scale)], -9)
    path = file.output(dense).save(tmp_path / "net.tmfile")
    given = np.float32([[1.5, -40.25, 1e6, -1e6], [0.0, 0.3337, -2.0, 30.0]])
    [found] = computed(FORMAT.read([path], {}), {"data": given})
    integers = np.clip(np.rint(given / data_scale), -(2**15) - 100, 2**15 - 1 - 100)
    sums = integers.astype(np.float64) @ weights.T.astype(np.float64) + [5000, -7000, 123]
    wanted = np.clip(np.rint(sums * data_scale * scales / scale), -(2**15) + 9, 2**15 - 1 + 9) * scale
    assert np.abs(found - wanted).max() <= scale * 1.001
    assert (np.abs(found - wanted) < 1e-3 * scale).mean() > 0.5
    assert np.abs(wanted).max() > 1
