"""Layers of ncnn, of floats and of 8 bits, compute what ncnn computes from the same files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper
from support.ncnn_cases import CASES, Case, by_name
from support.ncnn_files import INT8, plain, run_in_ncnn, tagged, write
from support.onnxruntime_runner import run_onnx
from support.running import outputs_of

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.format import ImportOptions
from edgedeploy.frontends.ncnn import FORMAT
from edgedeploy.selftest.tolerance import TOLERANCE
from edgedeploy.target.board import load_board

RANDOM = np.random.default_rng(11)
SIDE, CHANNELS, OUTPUTS = 9, 8, 12
INPUT = f"Input data 0 1 data 0={SIDE} 1={SIDE} 2={CHANNELS}"


def integers(*shape: int) -> np.ndarray:
    return RANDOM.integers(-127, 128, shape).astype(np.float32)


def image() -> np.ndarray:
    return RANDOM.uniform(-3, 3, (CHANNELS, SIDE, SIDE)).astype(np.float32)


def same(path: Path, name: str, step: float = 0.0) -> None:
    """Compare with ncnn: equal but for the rounding of its scales, or a few steps in a few values."""
    data = image()
    [wanted] = run_in_ncnn(path, {"data": data}, [name]).values()
    found = run_onnx(FORMAT.convert(FORMAT.files(path), {}).model, data[None])[name][0]
    assert found.shape == wanted.shape
    away = np.abs(found - wanted)
    close = 3e-4 * np.abs(wanted).max()
    assert away.max() <= max(step * 1.001, close)
    assert (away > close).mean() <= 0.02


def scales(count: int) -> np.ndarray:
    return RANDOM.uniform(150, 400, count).astype(np.float32)


def convolution(name: str, read: str, inputs: int, outputs: int, form: int) -> tuple[str, bytes]:
    line = f"Convolution {name} 1 1 {read} {name} 0={outputs} 1=3 4=1 5=1 6={outputs * inputs * 9} 8={form} 9=1"
    content = tagged(integers(outputs, inputs, 3, 3), INT8) + plain(RANDOM.standard_normal(outputs), scales(outputs))
    return line, content


@pytest.mark.parametrize("stored", ["int8", "float32"])
def test_convolutions(stored: str, tmp_path: Path) -> None:
    line, content = convolution("conv", "data", CHANNELS, OUTPUTS, 1)
    if stored == "float32":
        weights = RANDOM.standard_normal((OUTPUTS, CHANNELS, 3, 3)) * 0.2
        content = tagged(weights) + plain(RANDOM.standard_normal(OUTPUTS), scales(OUTPUTS))
    same(write(tmp_path, [INPUT, line], content + plain([42.0])), "conv")


@pytest.mark.parametrize("form", [1, 2])
def test_depthwise_convolutions(form: int, tmp_path: Path) -> None:
    line = f"ConvolutionDepthWise deep 1 1 data deep 0={CHANNELS} 1=3 4=1 5=1 6={CHANNELS * 9} 7={CHANNELS} 8={form}"
    content = tagged(integers(CHANNELS, 3, 3), INT8) + plain(RANDOM.standard_normal(CHANNELS))
    path = write(tmp_path, [INPUT, line], content + plain(scales(CHANNELS if form == 1 else 1), [42.0]))
    same(path, "deep")


def test_dense_layers(tmp_path: Path) -> None:
    count = CHANNELS * SIDE * SIDE
    line = f"InnerProduct dense 1 1 data dense 0={OUTPUTS} 1=1 2={OUTPUTS * count} 8=1"
    content = tagged(integers(OUTPUTS, count), INT8) + plain(RANDOM.standard_normal(OUTPUTS), scales(OUTPUTS), [42.0])
    same(write(tmp_path, [INPUT, line], content), "dense")


def test_a_layer_may_round_its_output_for_the_next(tmp_path: Path) -> None:
    first, content = convolution("first", "data", CHANNELS, OUTPUTS, 101)
    second, more = convolution("second", "first", OUTPUTS, 5, 1)
    # Of the second, the input's scale is that of the first's output.
    content += plain([42.0, 0.6]) + more + plain([0.6])
    path = write(tmp_path, [INPUT, first, second], content)
    same(path, "second", step=4.0)
    model = FORMAT.convert(FORMAT.files(path), {}).model
    assert [node.op_type for node in model.graph.node].count("QuantizeLinear") == 2


def test_weights_stay_integers_with_a_scale_of_each_output(tmp_path: Path) -> None:
    line = "InnerProduct dense 1 1 data dense 0=2 1=0 2=6 8=1"
    data = "Input data 0 1 data 0=3"
    path = write(tmp_path, [data, line], tagged([[1, -2, 3], [0, 0, 0]], INT8) + plain([50.0, 0.0], [10.0]))
    model = FORMAT.convert(FORMAT.files(path), {}).model
    [held] = [array for array in map(numpy_helper.to_array, model.graph.initializer) if array.shape == (2, 3)]
    assert (held.dtype, held.tolist()) == (np.int8, [[1, -2, 3], [0, 0, 0]])
    # A scale of zero stands for weights that are all zero; 20 is more than 127 steps of 0.1.
    [found] = run_onnx(model, np.array([[0.26, 20.0, -0.5]], np.float32)).values()
    np.testing.assert_allclose(found, [[(0.3 - 2 * 12.7 - 3 * 0.5) / 50, 0]], rtol=1e-5)


def test_random_weights_of_a_quantised_network_do_not_vanish(tmp_path: Path) -> None:
    line, _ = convolution("conv", "data", CHANNELS, OUTPUTS, 101)
    model = FORMAT.convert([write(tmp_path, [INPUT, line])], {}, ImportOptions(weights="random")).model
    [found] = run_onnx(model, image()[None]).values()
    assert len(np.unique(found)) > 20


@pytest.mark.compiles
def test_a_compiled_network_computes_what_onnxruntime_does(tmp_path: Path) -> None:
    first, content = convolution("first", "data", CHANNELS, OUTPUTS, 101)
    network = FORMAT.read(FORMAT.files(write(tmp_path, [INPUT, first], content + plain([42.0, 0.6]))), {})
    assert network.quantised
    inputs = {"data": image()[None]}
    [found] = outputs_of(compile_network(network, load_board("local")), inputs)
    [wanted] = network.reference(inputs).values()
    assert np.abs(found - wanted).max() <= 1.001 / 0.6
    assert (np.abs(found - wanted) > 1e-3).mean() <= 0.01


@pytest.mark.compiles
@pytest.mark.parametrize("form", [1, 101])
def test_values_at_a_half_go_away_from_zero_as_in_ncnn(form: int, tmp_path: Path) -> None:
    """Scales and values are powers of two, so that many of them lie at a half exactly; all results are equal."""

    def halving(name: str, read: str, inputs: int, outputs: int, form: int) -> tuple[str, bytes]:
        line, _ = convolution(name, read, inputs, outputs, form)
        bias = RANDOM.integers(-64, 65, outputs) / 16
        return line, tagged(integers(outputs, inputs, 3, 3), INT8) + plain(bias, np.full(outputs, 256.0))

    first, content = halving("first", "data", CHANNELS, OUTPUTS, form)
    second, more = halving("second", "first", OUTPUTS, 5, 1)
    content += plain([16.0]) + (plain([2.0]) if form > 100 else b"") + more + plain([2.0])
    path = write(tmp_path, [INPUT, first, second], content)
    network = FORMAT.read(FORMAT.files(path), {})
    data = (RANDOM.integers(-100, 101, (CHANNELS, SIDE, SIDE)) / 32).astype(np.float32)
    [wanted] = run_in_ncnn(path, {"data": data}, ["second"]).values()
    [found] = outputs_of(compile_network(network, load_board("local")), {"data": data[None]})
    np.testing.assert_array_equal(found[0], wanted)


# Layers of ncnn's networks compute what ncnn computes, and compiled what onnxruntime does.


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_a_layer_computes_what_ncnn_computes(case: Case, tmp_path: Path) -> None:
    path = case.write(tmp_path)
    model = FORMAT.convert(FORMAT.files(path), case.shapes).model
    found = run_onnx(model, *(array[None] for array in case.tensors.values()))
    assert list(found) == case.names
    for array, wanted in zip(found.values(), run_in_ncnn(path, case.tensors, case.names).values(), strict=True):
        assert array.shape[1:] == wanted.shape
        np.testing.assert_allclose(array[0], wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_a_compiled_layer_computes_what_onnxruntime_does(case: Case, tmp_path: Path) -> None:
    network = FORMAT.read(FORMAT.files(case.write(tmp_path)), case.shapes)
    inputs = {name: array[None] for name, array in case.tensors.items()}
    found = outputs_of(compile_network(network, load_board("local")), inputs)
    relative, absolute = TOLERANCE
    for array, wanted in zip(found, network.reference(inputs).values(), strict=True):
        assert np.abs(array - wanted).max() <= relative * np.abs(wanted).max() + absolute
