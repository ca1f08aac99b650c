"""Quantised tmfiles, against the arithmetic of Tengine-Lite's int8 and uint8 kernels (`*_ref.c`), in numpy."""

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper
from support.agreement import computed, convolved, run_onnx
from support.tmfiles import TmFile, away, integers_of
from unit.test_tengine_frontend import convert

from edgedeploy.frontends.tengine import FORMAT
from edgedeploy.frontends.tengine.structure import read_structure

RELU, CONVOLUTION, DECONVOLUTION, POOLING, FULLY_CONNECTED, ELTWISE, CONCAT = 20, 5, 6, 16, 11, 9, 3
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
ANY = {name: step * 0.7 + 0.013 * place for place, (name, step) in enumerate(HALVES.items())}


@pytest.mark.compiles
@pytest.mark.parametrize("steps", [HALVES, ANY], ids=["values at a half", "any values"])
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
