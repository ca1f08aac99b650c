"""tmfiles: what each operator computes, names and shapes, and what is refused.

What is expected is computed in this file with numpy, from what Tengine-Lite's reference kernels (`*_ref.c`) do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from support.tmfiles import Field, TmFile

from edgedeploy.errors import InputError, ModelError, OpenShapeError
from edgedeploy.frontends.format import Shapes
from edgedeploy.frontends.formats import describing
from edgedeploy.frontends.tengine import FORMAT

RELU, CONCAT, CONVOLUTION, DECONVOLUTION, POOLING, FULLY_CONNECTED = 20, 3, 5, 6, 16, 11
ELTWISE, RESHAPE, SLICE, SPLIT, REDUCTION = 9, 23, 27, 29, 45


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def convert(file: TmFile, folder: Path, shapes: Shapes | None = None) -> onnx.ModelProto:
    return FORMAT.convert([file.save(folder / "net.tmfile")], shapes or {}).model


def run(file: TmFile, folder: Path, *tensors: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(convert(file, folder).SerializeToString())
    names = [value.name for value in session.get_inputs()]
    return list(session.run(None, dict(zip(names, tensors, strict=True))))


def of_one(kind: int, parameters: Sequence[Field], data: np.ndarray, folder: Path, *weights: np.ndarray) -> np.ndarray:
    """What an operator makes of one input and constants."""
    file = TmFile()
    inputs = [file.input("data", data.shape), *(file.constant(values) for values in weights)]
    [output] = run(file.output(file.node(kind, parameters, *inputs)), folder, data)
    return output


def close(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.shape == expected.shape and np.allclose(found, expected, rtol=1e-4, atol=1e-5)


POSITIVE = np.abs(normal(2, 3, 4, 5)) + 0.5
ANY = normal(2, 3, 4, 5) * 4

ONE_BY_ONE: dict[str, tuple[int, Sequence[Field], np.ndarray, Callable[[np.ndarray], np.ndarray]]] = {
    "Absval": (68, (), ANY, np.abs),
    "Ceil": (83, (), ANY, np.ceil),
    "Clip": (87, (2.5, -1.5), ANY, lambda x: x.clip(-1.5, 2.5)),
    "Dropout": (8, (), ANY, lambda x: x),
    "Elu": (73, (0.7,), ANY, lambda x: np.where(x > 0, x, 0.7 * np.expm1(x))),
    "HardSwish": (70, (1.0, 3.0), ANY, lambda x: x * (x + 3).clip(0, 6) / 6),
    "Hardsigmoid": (64, (0.3, 0.4), ANY, lambda x: (0.3 * x + 0.4).clip(0, 1)),
    "Logistic": (33, (), ANY, lambda x: 1 / (1 + np.exp(-x))),
    "Mish": (97, (), ANY, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "Noop": (62, (), ANY, lambda x: x),
    "ReLU1": (100, (), ANY, lambda x: x.clip(-1, 1)),
    "ReLu": (RELU, (0.0,), ANY, lambda x: x.clip(0)),
    "ReLu with a slope": (RELU, (0.1,), ANY, lambda x: np.where(x > 0, x, 0.1 * x)),
    "ReLu6": (21, (), ANY, lambda x: x.clip(0, 6)),
    "Reciprocal": (103, (), POSITIVE, lambda x: 1 / x),
    "Selu": (72, (1.5, 1.1), ANY, lambda x: 1.1 * np.where(x > 0, x, 1.5 * np.expm1(x))),
    "Sigmoid": (37, (), ANY, lambda x: 1 / (1 + np.exp(-x))),
    "Softplus": (102, (), ANY, lambda x: np.log1p(np.exp(x))),
    "Tanh": (36, (), ANY, np.tanh),
    "Eltwise rsqrt": (ELTWISE, (7, 0, 0.0, 0.0, 0.0), POSITIVE, lambda x: 1 / np.sqrt(x)),
    "Eltwise log": (ELTWISE, (11, 0, 0.0, 0.0, 0.0), POSITIVE, np.log),
    "Eltwise exp": (ELTWISE, (12, 0, 0.0, 0.0, 0.0), ANY, np.exp),
    "Eltwise sqrt": (ELTWISE, (13, 0, 0.0, 0.0, 0.0), POSITIVE, np.sqrt),
    "Eltwise floor": (ELTWISE, (14, 0, 0.0, 0.0, 0.0), ANY, np.floor),
    "Eltwise square": (ELTWISE, (15, 0, 0.0, 0.0, 0.0), ANY, np.square),
    "Eltwise power": (ELTWISE, (17, 0, 0.5, 1.5, 2.0), POSITIVE, lambda x: (0.5 + 2 * x) ** 1.5),
    "Eltwise power of one": (ELTWISE, (17, 0, 0.5, 1.0, 2.0), ANY, lambda x: 0.5 + 2 * x),
    "Unary neg": (59, (1,), ANY, np.negative),
    "Unary square": (59, (4,), ANY, np.square),
    "Unary rsqrt": (59, (6,), POSITIVE, lambda x: 1 / np.sqrt(x)),
    "Unary exp": (59, (7,), ANY, np.exp),
    "Unary log": (59, (8,), POSITIVE, np.log),
    "Unary sin": (59, (9,), ANY, np.sin),
    "Unary cos": (59, (10,), ANY, np.cos),
    "Unary atan": (59, (14,), ANY, np.arctan),
    "Unary tanh": (59, (16,), ANY, np.tanh),
}


@pytest.mark.parametrize("case", ONE_BY_ONE)
def test_operators_of_single_values(case: str, tmp_path: Path) -> None:
    kind, parameters, data, expected = ONE_BY_ONE[case]
    assert close(of_one(kind, parameters, data, tmp_path), expected(data))


@pytest.mark.parametrize(("kind", "log"), [(28, False), (99, True)])
@pytest.mark.parametrize("axis", [1, -1])
def test_softmax(kind: int, log: bool, axis: int, tmp_path: Path) -> None:
    powers = np.exp(ANY)
    expected = powers / powers.sum(axis=axis, keepdims=True)
    assert close(of_one(kind, (axis,), ANY, tmp_path), np.log(expected) if log else expected)


PAIRS = {0: np.multiply, 1: np.multiply, 2: np.add, 3: np.add, 4: np.subtract, 5: np.subtract, 6: np.maximum}
PAIRS |= {8: np.minimum, 10: np.divide, 16: np.power}


class TestTwoTensors:
    @pytest.mark.parametrize("kind", PAIRS)
    def test_eltwise_of_a_constant(self, kind: int, tmp_path: Path) -> None:
        one = POSITIVE[:1, :1, :1, :1]
        found = of_one(ELTWISE, (kind, 0, 0.0, 0.0, 0.0), POSITIVE, tmp_path, one.reshape(1))
        assert close(found, PAIRS[kind](POSITIVE, one))

    @pytest.mark.parametrize("shape", [(2, 3, 4, 5), (3,), (1, 3, 1, 1), (3, 1), (1,), (1, 1, 4, 5), (120,)])
    def test_eltwise_of_shapes_with_fewer_values(self, shape: tuple[int, ...], tmp_path: Path) -> None:
        other = normal(*shape, seed=1)
        broadcast = other.reshape(1, 3, 1, 1) if other.size == 3 else other
        broadcast = other.reshape(ANY.shape) if other.size == ANY.size else broadcast
        for first, second in ((ANY, other), (other, ANY)):
            file = TmFile()
            inputs = [file.input("a", first.shape), file.input("b", second.shape)]
            [found] = run(file.output(file.node(ELTWISE, (4, 0, 0.0, 0.0, 0.0), *inputs)), tmp_path, first, second)
            assert close(found, ANY - broadcast if first is ANY else broadcast - ANY)

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            (49, lambda a, b, c: a + b + c),
            (46, lambda a, b, c: np.maximum(np.maximum(a, b), c)),
            (47, lambda a, b, c: np.minimum(np.minimum(a, b), c)),
            (90, lambda a, b, c: (a + b + c) / 3),
        ],
        ids=["Addn", "Maximum", "Minimum", "Mean"],
    )
    def test_any_number_of_tensors(self, kind: int, expected: Callable[..., np.ndarray], tmp_path: Path) -> None:
        tensors = [normal(2, 3, 4, seed=seed) for seed in range(3)]
        file = TmFile()
        inputs = [file.input(f"x{index}", tensor.shape) for index, tensor in enumerate(tensors)]
        parameters = (0,) if kind == 49 else ()
        assert close(run(file.output(file.node(kind, parameters, *inputs)), tmp_path, *tensors)[0], expected(*tensors))

    @pytest.mark.parametrize("axis", [1, -1])
    def test_concat(self, axis: int, tmp_path: Path) -> None:
        tensors = [normal(2, 3, 4, seed=seed) for seed in range(3)]
        file = TmFile()
        inputs = [file.input(f"x{index}", tensor.shape) for index, tensor in enumerate(tensors)]
        [found] = run(file.output(file.node(CONCAT, (axis,), *inputs)), tmp_path, *tensors)
        assert close(found, np.concatenate(tensors, axis))


class TestChannels:
    def per_channel(self, seed: int) -> np.ndarray:
        return normal(3, seed=seed) + 2

    def test_prelu_of_each_channel(self, tmp_path: Path) -> None:
        slopes = self.per_channel(1)
        expected = np.where(ANY > 0, ANY, ANY * slopes[:, None, None])
        assert close(of_one(17, (), ANY, tmp_path, slopes), expected)

    def test_prelu_of_a_vector(self, tmp_path: Path) -> None:
        data, slopes = normal(2, 3), self.per_channel(1)
        assert close(of_one(17, (), data, tmp_path, slopes), np.where(data > 0, data, data * slopes))

    def test_prelu_of_all(self, tmp_path: Path) -> None:
        found = of_one(17, (), ANY, tmp_path, np.array([0.2], np.float32))
        assert close(found, np.where(ANY > 0, ANY, ANY * 0.2))

    @pytest.mark.parametrize("caffe", [0, 1])
    @pytest.mark.parametrize("rescale", [1.0, 4.0, 0.0])
    def test_batch_normalisation(self, caffe: int, rescale: float, tmp_path: Path) -> None:
        gamma, beta, mean, variance = (np.abs(self.per_channel(seed)) for seed in range(4))
        found = of_one(1, (rescale, 0.01, caffe), ANY, tmp_path, gamma, beta, mean, variance)
        factor = 1 / rescale if rescale else 0
        scaled = (ANY - mean[:, None, None] * factor) / np.sqrt(variance * factor + 0.01)[:, None, None]
        expected = scaled if caffe else scaled * gamma[:, None, None] + beta[:, None, None]
        assert close(found, expected)

    def test_instance_normalisation(self, tmp_path: Path) -> None:
        gamma, beta = self.per_channel(1), self.per_channel(2)
        mean, variance = ANY.mean((2, 3), keepdims=True), ANY.var((2, 3), keepdims=True)
        expected = (ANY - mean) / np.sqrt(variance + 0.01) * gamma[:, None, None] + beta[:, None, None]
        assert close(of_one(66, (0.01,), ANY, tmp_path, gamma, beta), expected)

    @pytest.mark.parametrize("bias", [False, True])
    def test_scale(self, bias: bool, tmp_path: Path) -> None:
        weights = [self.per_channel(1), self.per_channel(2)][: 1 + bias]
        expected = ANY * weights[0][:, None, None] + (weights[1][:, None, None] if bias else 0)
        assert close(of_one(26, (1, 1, int(bias)), ANY, tmp_path, *weights), expected)

    def test_bias(self, tmp_path: Path) -> None:
        assert close(of_one(61, (3,), ANY, tmp_path, self.per_channel(1)), ANY + self.per_channel(1)[:, None, None])

    def test_shuffled_channels_come_from_each_group_in_turn(self, tmp_path: Path) -> None:
        data = normal(1, 6, 2, 2)
        assert close(of_one(55, (3,), data, tmp_path), data[:, [0, 2, 4, 1, 3, 5]])

    @pytest.mark.parametrize("shape", [(2, 12), (2, 3, 4), (2, 3, 2, 2)])
    @pytest.mark.parametrize("bias", [False, True])
    def test_fully_connected_keeps_the_number_of_dimensions(
        self, shape: tuple[int, ...], bias: bool, tmp_path: Path
    ) -> None:
        data, rows, offset = normal(*shape), normal(5, 12, seed=1), normal(5, seed=2)
        expected = data.reshape(2, 12) @ rows.T + (offset if bias else 0)
        found = of_one(FULLY_CONNECTED, (5,), data, tmp_path, rows, *([offset] if bias else []))
        assert close(found, expected.reshape(2, 5, *(1 for _ in shape[2:])))


def convolved(
    data: np.ndarray,
    weights: np.ndarray,
    *,
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
) -> np.ndarray:
    """A convolution by its definition; the groups follow from the weights' shape."""
    top, left, bottom, right = pads
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)))
    outputs, inputs, rows, columns = weights.shape
    groups = data.shape[1] // inputs
    height = (padded.shape[2] - dilation[0] * (rows - 1) - 1) // stride[0] + 1
    width = (padded.shape[3] - dilation[1] * (columns - 1) - 1) // stride[1] + 1
    result = np.zeros((len(data), outputs, height, width))
    for o, i, r, c in product(range(outputs), range(inputs), range(rows), range(columns)):
        plane = padded[:, o // (outputs // groups) * inputs + i, r * dilation[0] :, c * dilation[1] :]
        result[:, o] += plane[:, :: stride[0], :: stride[1]][:, :height, :width] * weights[o, i, r, c]
    return result


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


class TestConvolution:
    @pytest.mark.parametrize(
        "form",
        [
            {},
            {"pads": (1, 2, 0, 1), "stride": (2, 1)},
            {"dilation": (2, 1), "pads": (2, 0, 2, 0)},
        ],
        ids=["plain", "pads and strides", "dilation"],
    )
    @pytest.mark.parametrize(("groups", "inputs"), [(1, 4), (2, 2), (4, 1)])
    def test_convolution(self, form: dict[str, tuple[int, ...]], groups: int, inputs: int, tmp_path: Path) -> None:
        data, weights, bias = normal(2, 4, 7, 8), normal(8, inputs, 3, 2, seed=1), normal(8, seed=2)
        parameters = convolution(8, kernel=(3, 2), groups=groups, **form)
        expected = convolved(data, weights, **form) + bias[:, None, None]
        # Biases come in several shapes.
        assert close(of_one(CONVOLUTION, parameters, data, tmp_path, weights, bias.reshape(1, 1, 1, 8)), expected)

    @pytest.mark.parametrize(
        ("activation", "low", "high"), [(-1, -math.inf, math.inf), (0, 0, math.inf), (1, -1, 1), (6, 0, 6)]
    )
    def test_activations_are_part_of_it(self, activation: int, low: float, high: float, tmp_path: Path) -> None:
        data, weights = normal(1, 3, 5, 5) * 3, normal(4, 3, 3, 3, seed=1)
        found = of_one(CONVOLUTION, convolution(4, activation=activation), data, tmp_path, weights)
        assert close(found, convolved(data, weights).clip(low, high))

    @pytest.mark.parametrize(("pad", "before", "after"), [(-1, 0, 1), (-2, 1, 0)])
    def test_same_padding_puts_the_odd_pixel_at_the_end_or_at_the_beginning(
        self, pad: int, before: int, after: int, tmp_path: Path
    ) -> None:
        data, weights = normal(1, 3, 8, 8), normal(4, 3, 3, 3, seed=1)
        found = of_one(CONVOLUTION, convolution(4, stride=(2, 2), pads=(pad,) * 4), data, tmp_path, weights)
        assert close(found, convolved(data, weights, stride=(2, 2), pads=(before, before, after, after)))

    def test_weights_in_half_precision(self, tmp_path: Path) -> None:
        data, weights = normal(1, 3, 5, 5), normal(4, 3, 3, 3, seed=1).astype(np.float16)
        found = of_one(CONVOLUTION, convolution(4), data, tmp_path, weights)
        assert close(found, convolved(data, weights.astype(np.float32)))

    @pytest.mark.parametrize("groups", [1, 2])
    @pytest.mark.parametrize(("activation", "low", "high"), [(-1, -math.inf, math.inf), (0, 0, math.inf), (2, 0, 6)])
    def test_deconvolution(self, groups: int, activation: int, low: float, high: float, tmp_path: Path) -> None:
        data, weights, bias = normal(2, 4, 3, 5), normal(4, 6 // groups, 3, 2, seed=1), normal(6, seed=2)
        pads = (1, 0, 0, 1)  # top, left, bottom, right
        parameters = (6, 3, 2, 2, 3, pads[1], pads[0], pads[3], pads[2], 1, 1, groups, activation, 1, 0)
        found = of_one(DECONVOLUTION, parameters, data, tmp_path, weights, bias)
        whole = np.zeros((2, 6, 2 * 2 + 3 + 1, 4 * 3 + 2))
        per_group = 6 // groups
        for i, o, r, c in product(range(4), range(per_group), range(3), range(2)):
            output = i // (4 // groups) * per_group + o
            whole[:, output, r : r + 5 : 2, c : c + 13 : 3] += data[:, i] * weights[i, o, r, c]
        expected = whole[:, :, pads[0] :, : 14 - pads[3]] + bias[:, None, None]
        assert close(found, expected.clip(low, high))


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


class TestPooling:
    @pytest.mark.parametrize("average", [0, 1], ids=["maximum", "average"])
    @pytest.mark.parametrize(
        ("flavour", "kernel", "stride", "pad", "begin", "count"),
        [
            (0, 3, 2, 0, 0, (3, 4)),  # rounds down
            (0, 3, 2, 1, 1, (4, 5)),
            (1, 3, 2, 0, 0, (4, 4)),  # Caffe's rounds up
            (1, 3, 2, 1, 1, (5, 5)),
            (1, 2, 2, 1, 1, (5, 5)),  # the last window would lie in the padding
            (2, 3, 1, 2, 1, (8, 9)),  # the padding of both sides in one number
            (16, 3, 2, 1, 1, (4, 5)),  # rounds down, and padding counts
            (0, 3, 2, -1, 0, (4, 5)),  # as many as strides
        ],
    )
    def test_rounding_and_padding(
        self,
        average: int,
        flavour: int,
        kernel: int,
        stride: int,
        pad: int,
        begin: int,
        count: tuple[int, int],
        tmp_path: Path,
    ) -> None:
        data = normal(2, 3, 8, 9)
        parameters = (average, kernel, kernel, stride, stride, 0, flavour, pad, pad, pad, pad)
        found = of_one(POOLING, parameters, data, tmp_path)
        if pad < 0:  # 9 columns need a pixel on each side, 8 rows one at their end
            data = np.pad(data, ((0, 0), (0, 0), (0, 1), (1, 1)), constant_values=np.nan)
            windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3), (2, 3))[:, :, ::2, ::2]
            expected = np.nanmean(windows, (4, 5)) if average else np.nanmax(windows, (4, 5))
        else:
            expected = pooled(data, bool(average), kernel, stride, begin, count, with_padding=flavour != 0)
        assert close(found, expected)

    @pytest.mark.parametrize("average", [0, 1], ids=["maximum", "average"])
    @pytest.mark.parametrize("whole", [(1, 2, 2), (0, 8, 9)], ids=["stated", "by the kernel's size"])
    def test_the_whole_image(self, average: int, whole: tuple[int, int, int], tmp_path: Path) -> None:
        data = normal(2, 3, 8, 9)
        found = of_one(POOLING, (average, *whole[1:], 2, 2, whole[0], 0, 1, 1, 1, 1), data, tmp_path)
        assert close(found, (data.mean if average else data.max)((2, 3), keepdims=True))


class TestResizing:
    def nearest(self, data: np.ndarray, height: int, width: int) -> np.ndarray:
        rows = np.arange(height) * data.shape[2] // height
        columns = np.arange(width) * data.shape[3] // width
        return data[:, :, rows][:, :, :, columns]

    @pytest.mark.parametrize(
        ("kind", "parameters", "size"),
        [
            (51, (2.0,), (8, 10)),
            (54, (2.0, 3.0, 0), (8, 15)),
            (71, (1, 3.0, 2.0, 0, 0), (8, 15)),
            (71, (1, 0.0, 0.0, 7, 9), (9, 7)),
        ],
        ids=["Upsample", "Resize", "Interp by scales", "Interp to a size"],
    )
    def test_nearest(self, kind: int, parameters: tuple[Field, ...], size: tuple[int, int], tmp_path: Path) -> None:
        data = normal(1, 3, 4, 5)
        assert close(of_one(kind, parameters, data, tmp_path), self.nearest(data, *size))

    def test_bilinear_starts_at_the_corner(self, tmp_path: Path) -> None:
        data = normal(1, 2, 4, 5)
        expected = data
        for axis, size in ((2, 8), (3, 10)):
            place = np.arange(size) * data.shape[axis] / size
            low = np.floor(place).astype(int)
            high = np.minimum(low + 1, data.shape[axis] - 1)
            part = (place - low).reshape((1, 1, -1, 1) if axis == 2 else (1, 1, 1, -1))
            expected = expected.take(low, axis) * (1 - part) + expected.take(high, axis) * part
        assert close(of_one(71, (2, 2.0, 2.0, 0, 0), data, tmp_path), expected)


class TestShapes:
    @pytest.mark.parametrize(
        ("mxnet", "wanted", "expected"),
        [
            (0, [2, 60], (2, 60)),
            (0, [0, -1], (2, 60)),
            (1, [0, 0, -1], (2, 3, 20)),
            (1, [0, -2], (2, 3, 4, 5)),
            (1, [0, -3, 0], (2, 12, 5)),
            (1, [0, -4, 3, 1, -2], (2, 3, 1, 4, 5)),
            (0, [-1], (120,)),
        ],
    )
    def test_reshape(self, mxnet: int, wanted: list[int], expected: tuple[int, ...], tmp_path: Path) -> None:
        assert close(of_one(RESHAPE, (mxnet, 0, wanted), ANY, tmp_path), ANY.reshape(expected))

    def test_permute(self, tmp_path: Path) -> None:
        assert close(of_one(15, (0, 0, 2, 3, 1), ANY, tmp_path), ANY.transpose(0, 2, 3, 1))

    def test_permute_of_three_axes(self, tmp_path: Path) -> None:
        assert close(of_one(15, (0, 1, 0, 2, 3), ANY[0], tmp_path), ANY[0].transpose(1, 0, 2))

    def test_transpose(self, tmp_path: Path) -> None:
        assert close(of_one(77, ([3, 1, 0, 2],), ANY, tmp_path), ANY.transpose(3, 1, 0, 2))

    def test_swap_axis(self, tmp_path: Path) -> None:
        assert close(of_one(50, (1, 3), ANY, tmp_path), ANY.swapaxes(1, 3))

    def test_flatten(self, tmp_path: Path) -> None:
        assert close(of_one(10, (1, 3), ANY, tmp_path), ANY.reshape(2, 60))

    @pytest.mark.parametrize("axes", [(0, 3, -2, -2), (-2, -2, -2, -2)], ids=["stated", "all"])
    def test_squeeze(self, axes: tuple[int, ...], tmp_path: Path) -> None:
        data = normal(1, 3, 4, 1)
        assert close(of_one(38, axes, data, tmp_path), data[0, :, :, 0])

    def test_unsqueeze(self, tmp_path: Path) -> None:
        assert close(of_one(88, ([0, 3],), ANY[0], tmp_path), ANY[0][None, :, :, None])

    @pytest.mark.parametrize(("mode", "name"), list(enumerate(["constant", "edge", "reflect"])))
    def test_pad(self, mode: int, name: str, tmp_path: Path) -> None:
        widths = [(0, 0), (0, 0), (1, 2), (2, 1)] if mode else [(0, 1), (1, 0), (1, 2), (2, 1)]
        options = {} if mode else {"constant_values": 0.5}
        found = of_one(40, (*sum(widths, ()), mode, 0.5), ANY, tmp_path)
        assert close(found, np.pad(ANY, widths, name, **options))

    @pytest.mark.parametrize(
        ("kind", "reduce"), list(enumerate([np.sum, np.mean, None, None, np.max, np.min, np.prod]))
    )
    @pytest.mark.parametrize(("axes", "keep"), [((2, 3, -2, -2), 1), ((1, -2, -2, -2), 0), ((-1, -2, -2, -2), 0)])
    def test_reduction(
        self, kind: int, reduce: Callable[..., np.ndarray] | None, axes: tuple[int, ...], keep: int, tmp_path: Path
    ) -> None:
        used = tuple(axis for axis in axes if axis != -2)
        data = {2: np.abs(ANY), 3: np.square(ANY)}.get(kind, ANY)
        expected = (reduce or np.sum)(data, axis=used, keepdims=bool(keep))
        assert close(of_one(REDUCTION, (*axes, kind, keep), ANY, tmp_path), expected)

    def test_reduction_of_everything_is_a_vector_of_one(self, tmp_path: Path) -> None:
        assert close(of_one(REDUCTION, (-2, -2, -2, -2, 1, 0), ANY, tmp_path), ANY.mean().reshape(1))


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


class TestParts:
    def parts(self, kind: int, parameters: Sequence[Field], count: int, folder: Path) -> list[np.ndarray]:
        file = TmFile()
        first = file.node(kind, parameters, file.input("data", ANY.shape), outputs=count)
        return run(file.output(first), folder, ANY)

    def test_caffes_slice_at_points(self, tmp_path: Path) -> None:
        found = self.parts(SLICE, slice_of(axis=3, points=[1, 3], caffe=1), 3, tmp_path)
        assert all(close(*pair) for pair in zip(found, np.split(ANY, [1, 3], 3), strict=True))

    def test_caffes_slice_into_equal_parts(self, tmp_path: Path) -> None:
        found = self.parts(SLICE, slice_of(axis=2, caffe=1), 2, tmp_path)
        assert all(close(*pair) for pair in zip(found, np.split(ANY, 2, 2), strict=True))

    def test_mxnets_slice(self, tmp_path: Path) -> None:
        [found] = self.parts(SLICE, slice_of(axis=3, mxnet=1, cut=(1, 4, 1)), 1, tmp_path)
        assert close(found, ANY[..., 1:4])

    @pytest.mark.parametrize("cut", [(1, 4, 2), (0, -1, 1), (1, 2**31 - 1, 3)])
    def test_onnxs_slice(self, cut: tuple[int, int, int], tmp_path: Path) -> None:
        [found] = self.parts(SLICE, slice_of(axis=3, onnx=1, cut=cut), 1, tmp_path)
        assert close(found, ANY[..., slice(*cut)])

    def test_tensorflows_slice(self, tmp_path: Path) -> None:
        [found] = self.parts(SLICE, slice_of(begins=[0, 1, 1, 2], sizes=[2, 2, -1, 1]), 1, tmp_path)
        assert close(found, ANY[:, 1:3, 1:, 2:3])

    def test_split_into_sizes(self, tmp_path: Path) -> None:
        found = self.parts(SPLIT, (-1, 2, False, True, [1, 4]), 2, tmp_path)
        assert all(close(*pair) for pair in zip(found, np.split(ANY, [1], 3), strict=True))

    def test_split_into_equal_parts(self, tmp_path: Path) -> None:
        found = self.parts(SPLIT, (2, 2, False, True, 0), 2, tmp_path)
        assert all(close(*pair) for pair in zip(found, np.split(ANY, 2, 2), strict=True))

    def test_caffes_split_gives_its_input_to_all(self, tmp_path: Path) -> None:
        found = self.parts(SPLIT, (0, 1, True, False, 0), 2, tmp_path)
        assert close(found[0], ANY)
        assert close(found[1], ANY)

    def test_strided_slice_leaves_out_what_its_ends_state(self, tmp_path: Path) -> None:
        parameters = (0, 0, 1, 1, 0, 1, 1, -1, 1, 0, 0, 2)
        assert close(of_one(41, parameters, ANY, tmp_path), ANY[:, 1:, 1:-1, ::2])

    @pytest.mark.parametrize(
        ("parameters", "expected"),
        [
            ((2, 0, 1, 2, 0, 0, False, 2, 1), ANY[:, :, 1:3, 2:5]),
            ((2, 0, 1, 2, 0, 0, False, 2, 0), ANY[:, :, 1:3, 2:5]),
            ((1, 0, 0, 0, 2, 3, True, 2, 1), ANY[:, :, 1:3, 1:4]),
        ],
        ids=["MXNet's to another's size", "Caffe's to another's size", "MXNet's to the middle"],
    )
    def test_crop(self, parameters: Sequence[Field], expected: np.ndarray, tmp_path: Path) -> None:
        file = TmFile()
        inputs = [file.input("data", ANY.shape), file.input("like", (2, 3, 2, 3))]
        size = np.zeros((2, 3, 2, 3), np.float32)
        assert close(run(file.output(file.node(56, parameters, *inputs)), tmp_path, ANY, size)[0], expected)

    def test_caffes_crop_of_channels(self, tmp_path: Path) -> None:
        file = TmFile()
        inputs = [file.input("data", ANY.shape), file.input("like", (2, 2, 2, 3))]
        node = file.node(56, (2, 1, 1, 2, 0, 0, False, 1, 0), *inputs)
        assert close(run(file.output(node), tmp_path, ANY, np.zeros((2, 2, 2, 3), np.float32))[0], ANY[:, 1:, 1:3, 2:])


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
    def test_a_shape_that_does_not_fit_is_refused(self, shape: list[int], tmp_path: Path) -> None:
        with pytest.raises(InputError, match="does not fit"):
            convert(self.tiny(), tmp_path, {"an image": shape})

    def test_a_shape_for_no_input_lists_the_inputs(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="its inputs: an image"):
            convert(self.tiny(), tmp_path, {"date": [1, 3, 8, 8]})

    def test_a_shape_that_an_operator_cannot_take_names_its_node(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="Convolution 'conv' cannot be imported"):
            convert(self.tiny(), tmp_path, {"an image": [1, 4, 8, 8]})


class TestFiles:
    def test_they_are_known_by_their_content(self, tmp_path: Path) -> None:
        path = TestNetworks().tiny().save(tmp_path / "network.bin")
        assert describing(path) == (FORMAT, path)

    @pytest.mark.parametrize(
        "head", [b"", b"\x02\x00", b"\x08\x07\x12\x07pytorch", b"\x1c\x00\x00\x00TFL3" + bytes(8), b"7767517\n75 83\n"]
    )
    def test_other_files_are_not(self, head: bytes) -> None:
        assert not FORMAT.recognises(head)

    def test_another_version_is_refused(self, tmp_path: Path) -> None:
        path = TmFile(version=3).save(tmp_path / "net.tmfile")
        assert FORMAT.recognises(path.read_bytes())
        with pytest.raises(ModelError, match="version 3 of Tengine's format: only version 2 can be read"):
            FORMAT.convert([path], {})

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
    def test_a_quantised_network_is_refused(self, dtype: str, tmp_path: Path) -> None:
        file = TmFile()
        data = file.input("data", (1, 3))
        weights = file.constant(np.ones((2, 3), dtype), "weights")
        with pytest.raises(ModelError, match=f"quantised, .* 'weights' is {dtype}") as raised:
            convert(file.output(file.node(FULLY_CONNECTED, (2,), data, weights)), tmp_path)
        assert raised.value.hints == ("build from the float network that it was made from",)

    def test_an_unknown_operator_names_its_first_node(self, tmp_path: Path) -> None:
        file = TmFile()
        data = file.input("data", (1, 3, 4, 4))
        file.output(file.node(31, (), file.node(34, (), data, name="memory"), name="later"))
        with pytest.raises(ModelError, match="operator LSTM is not supported: node 'memory' needs it"):
            convert(file, tmp_path)

    def test_an_operator_without_a_name_is_called_by_its_number(self, tmp_path: Path) -> None:
        file = TmFile()
        with pytest.raises(ModelError, match="operator number 4000 is not supported"):
            convert(file.output(file.node(4000, (), file.input("data", (1, 3)))), tmp_path)

    def test_values_in_tensorflows_order_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="another order than NCHW"):
            convert(TmFile(layout=1), tmp_path)

    def test_weights_that_are_not_there_are_refused(self, tmp_path: Path) -> None:
        file = TmFile()
        data, weights = file.input("data", (1, 3)), file.constant(np.ones((2, 3), np.float32), "weights")
        name, shape, kind, dtype, _ = file.tensors[weights]
        file.tensors[weights] = (name, shape, kind, dtype, b"")
        with pytest.raises(ModelError, match="has no weights: its tensor 'weights'"):
            convert(file.output(file.node(FULLY_CONNECTED, (2,), data, weights)), tmp_path)

    def test_weights_that_do_not_suit_the_input_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"4x3x3x3 are there, not 4x2x3x3"):
            of_one(CONVOLUTION, convolution(4), normal(1, 2, 5, 5), tmp_path, normal(4, 3, 3, 3))

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
            (
                lambda file: file.nodes.append(("loose", RELU, (0.0,), [0], [])) or file.outputs.append(5),
                "has no outputs",
            ),
            (lambda file: file.outputs.append(77), "name number 77 of 5"),
            (lambda file: file.nodes.append(file.nodes[2]), "comes from two nodes"),
            (lambda file: file.nodes.pop(2), "comes from nowhere|name number"),
        ],
    )
    def test_a_network_that_does_not_hang_together_is_refused(
        self, change: Callable[[TmFile], object], message: str, tmp_path: Path
    ) -> None:
        file = TestNetworks().tiny()
        change(file)
        with pytest.raises(ModelError, match=message):
            convert(file, tmp_path)

    def test_a_truncated_file_says_what_is_missing(self, tmp_path: Path) -> None:
        path = TestNetworks().tiny().save(tmp_path / "net.tmfile")
        path.write_bytes(path.read_bytes()[:-8])
        with pytest.raises(ModelError, match="is not complete: the model needs 16 bytes at"):
            FORMAT.convert([path], {})
