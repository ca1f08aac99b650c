"""Quantised TensorFlow Lite files: each operator as LiteRT computes it, within a step; weights stay integers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.running import computed
from support.tflite_networks import Steps, of_one
from tvm import relax
from unit.test_tflite_frontend import imported

from edgedeploy.compile.ir.expressions import constant_value, is_call, parts_of, shape_of
from edgedeploy.compile.output.explain import transposes
from edgedeploy.compile.pipeline import lower_network
from edgedeploy.model.network import Network
from edgedeploy.target.board import load_board

RANDOM = np.random.default_rng(19)
SAME, VALID, RELU, RELU6 = 0, 1, 1, 3
IMAGE = (1, 6, 7, 8)


def integers(*shape: int, dtype: str = "int8", low: int = -127) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RANDOM.integers(max(limits.min, low), limits.max, shape, dtype, endpoint=True)


def check(folder: Path, content: bytes, *, share: float = 0.03) -> Network:
    """Compare a compiled network with LiteRT: no value further than a step, and only a share of them off at all."""
    network = imported(folder, content)
    inputs = {
        spec.name: integers(*spec.shape, dtype=spec.dtype)
        if spec.dtype != "float32"
        else RANDOM.standard_normal(spec.shape).astype(np.float32)
        for spec in network.inputs
    }
    found = computed(network, inputs)
    for array, wanted in zip(found, network.reference(inputs).values(), strict=True):
        assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
        if wanted.dtype == np.float32:
            np.testing.assert_allclose(array, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
            continue
        away = np.abs(array.astype(int) - wanted.astype(int))
        assert away.max() <= 1
        assert (away > 0).mean() <= share
        assert len(np.unique(wanted)) > min(4, wanted.size // 2)  # of values that saturate nothing would be seen
    return network


def stored(network: Network) -> list[tuple[str, list[int], int]]:
    return [
        (str(each.args[0].ty.dtype), shape_of(each.args[0]), constant_value(each.args[1]).size)
        for each in parts_of(network.module["main"])
        if is_call(each, "relax.dequantize") and constant_value(each.args[0]) is not None
    ]


def steps_of(data: str, scales: int = 1, axis: int = 0) -> dict[str, Steps]:
    """Steps of a layer with weights, one for each channel or a single one; of uint8 with zero points everywhere."""
    of_weights: Any = np.linspace(0.01, 0.03, scales).tolist() if scales > 1 else 0.02
    bias = Steps("int32", (0.05 * np.asarray(of_weights)).tolist())
    if data == "uint8":
        others = {"given0": Steps(data, 0.05, 120), "given1": Steps(data, 0.02, 131), "made0": Steps(data, 0.2, 100)}
    else:
        weights = Steps(data, of_weights, 0, axis)
        others = {"given0": Steps(data, 0.05, -4), "given1": weights, "made0": Steps(data, 0.2, 5)}
    return {**others, "given2": bias}


def bias_of(channels: int) -> np.ndarray:
    return RANDOM.integers(-2000, 2000, channels, np.int32)


FILTER = {"Padding": SAME, "StrideH": 2, "StrideW": 1}
DEEP_FILTER = {"Padding": VALID, "StrideH": 1, "StrideW": 1}
# Operator, shapes of data, weights and result; and those in which the network keeps weights and bias.
CONVOLUTION = ("CONV_2D", IMAGE, (5, 3, 3, 8), (1, 3, 7, 5), [5, 8, 3, 3], [1, 5, 1, 1])
DEEP = ("DEPTHWISE_CONV_2D", IMAGE, (1, 3, 3, 8), (1, 4, 5, 8), [8, 1, 3, 3], [1, 8, 1, 1])
TWICE_DEEP = ("DEPTHWISE_CONV_2D", IMAGE, (1, 3, 3, 16), (1, 4, 5, 16), [16, 1, 3, 3], [1, 16, 1, 1])
DENSE = ("FULLY_CONNECTED", (3, 32), (10, 32), (3, 10), [32, 10], [10])


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("form", "layer", "options"),
    [
        ("per tensor", CONVOLUTION, FILTER),
        ("per channel", CONVOLUTION, {**FILTER, "FusedActivationFunction": RELU}),
        ("uint8", CONVOLUTION, {**FILTER, "FusedActivationFunction": RELU6}),
        ("per tensor", DEEP, {**DEEP_FILTER, "DepthMultiplier": 1}),
        ("per channel", TWICE_DEEP, {**DEEP_FILTER, "DepthMultiplier": 2}),
        ("uint8", DEEP, {**DEEP_FILTER, "DepthMultiplier": 1}),
        *((form, DENSE, {}) for form in ("per tensor", "per channel", "uint8")),
    ],
)
def test_layers_with_weights_are_those_of_litert(
    tmp_path: Path, form: str, layer: tuple[Any, ...], options: dict[str, Any]
) -> None:
    operator, data, weights, result, *kept = layer
    dtype, channels = "uint8" if form == "uint8" else "int8", result[-1]
    scales = channels if form == "per channel" else 1
    steps = steps_of(dtype, scales, axis=3 if operator == "DEPTHWISE_CONV_2D" else 0)
    inputs = [data, integers(*weights, dtype=dtype), bias_of(channels)]
    network = check(tmp_path, of_one(operator, inputs, [result], options, version=4, steps=steps))
    assert sorted(stored(network)) == sorted([(dtype, kept[0], scales), ("int32", kept[1], scales)])
    assert network.quantised
    assert transposes(lower_network(network, load_board("local")))["inside"] == 0


@pytest.mark.compiles
@pytest.mark.parametrize("scales", [0.02, np.linspace(0.01, 0.03, 5)], ids=["per tensor", "per channel"])
def test_layers_of_int16_activations_are_those_of_litert(tmp_path: Path, scales: Any) -> None:
    """As the converter's "16x8" writes them: weights of int8, biases of int64, no zero points."""
    steps = {"given0": Steps("int16", 2e-4), "given1": Steps("int8", scales), "given2": Steps("int64", 2e-4 * scales)}
    inputs = [IMAGE, integers(5, 3, 3, 8), RANDOM.integers(-200_000, 200_000, 5, np.int64)]
    options = {**FILTER, "FusedActivationFunction": RELU}
    steps["made0"] = Steps("int16", 1e-3)
    check(tmp_path, of_one("CONV_2D", inputs, [(1, 3, 7, 5)], options, version=3, steps=steps), share=0.15)


@pytest.mark.compiles
def test_transposed_convolutions_are_those_of_litert(tmp_path: Path) -> None:
    of_layer = steps_of("int8", 5)
    steps = {"given1": of_layer["given1"], "given2": of_layer["given0"], "given3": of_layer["given2"]}
    steps["made0"] = of_layer["made0"]
    inputs = [array(1, 12, 14, 5), integers(5, 3, 3, 8), IMAGE, bias_of(5)]
    options = {"Padding": SAME, "StrideH": 2, "StrideW": 2}
    check(tmp_path, of_one("TRANSPOSE_CONV", inputs, [(1, 12, 14, 5)], options, version=3, steps=steps))


def array(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


# Of one input or several: name, inputs (shapes, or constants), shape of the output, options.
Case = tuple[str, Sequence[Any], Sequence[int], Mapping[str, Any]]
WINDOW = {"Padding": SAME, "StrideH": 2, "StrideW": 2, "FilterHeight": 3, "FilterWidth": 2}
EACH: list[Case] = [
    ("ADD", [IMAGE, IMAGE], IMAGE, {"FusedActivationFunction": RELU}),
    ("SUB", [IMAGE, IMAGE], IMAGE, {}),
    ("MUL", [IMAGE, (1, 1, 1, 8)], IMAGE, {}),
    ("MEAN", [IMAGE, array(1, 2)], (1, 1, 1, 8), {"KeepDims": True}),
    ("PRELU", [IMAGE, "slopes"], IMAGE, {}),
    ("LEAKY_RELU", [IMAGE], IMAGE, {"Alpha": 0.2}),
    ("RELU", [IMAGE], IMAGE, {}),
    ("RELU6", [IMAGE], IMAGE, {}),
    ("HARD_SWISH", [IMAGE], IMAGE, {}),
    ("QUANTIZE", [IMAGE], IMAGE, {}),
]
# Those whose output has the steps of their input.
MOVING: list[Case] = [
    ("CONCATENATION", [IMAGE, IMAGE], (1, 6, 7, 16), {"Axis": 3}),
    ("AVERAGE_POOL_2D", [IMAGE], (1, 3, 4, 8), WINDOW),
    ("MAX_POOL_2D", [IMAGE], (1, 3, 4, 8), WINDOW),
    ("RESHAPE", [IMAGE, array(6, 56)], (6, 56), {"NewShape": [6, 56]}),
    ("SQUEEZE", [IMAGE], IMAGE[1:], {"SqueezeDims": [0]}),
    ("TRANSPOSE", [IMAGE, array(0, 2, 3, 1)], (1, 7, 8, 6), {}),
    ("PAD", [IMAGE, array(0, 0, 1, 2, 0, 3, 0, 0).reshape(4, 2)], (1, 9, 10, 8), {}),
    ("SLICE", [IMAGE, array(0, 1, 2, 3), array(1, 4, 3, 5)], (1, 4, 3, 5), {}),
    ("RESIZE_BILINEAR", [IMAGE, array(11, 9)], (1, 11, 9, 8), {"HalfPixelCenters": True}),
    ("RESIZE_NEAREST_NEIGHBOR", [IMAGE, array(11, 9)], (1, 11, 9, 8), {}),
    ("MAXIMUM", [IMAGE, IMAGE], IMAGE, {}),
    ("MINIMUM", [IMAGE, IMAGE], IMAGE, {}),
    ("PACK", [IMAGE, IMAGE], (1, 6, 2, 7, 8), {"ValuesCount": 2, "Axis": 2}),
    ("STRIDED_SLICE", [IMAGE, array(0, 1, 0, 0), array(1, 6, 7, 8), array(1, 2, 3, 1)], (1, 3, 3, 8), {}),
]


def of_case(case: Case, data: str, output: Any) -> bytes:
    name, inputs, shape, options = case
    middle = 0 if data == "int8" else 128
    steps = {"made0": output or Steps(data, 0.05, 10 + middle)}
    for place, each in enumerate(inputs):
        if not isinstance(each, np.ndarray):
            scale, zero_point = (0.05, 10) if output is None else (0.05 + 0.02 * place, -7)
            steps[f"given{place}"] = Steps(data, scale, zero_point + middle)
    held = [integers(1, 1, 8, dtype=data) if isinstance(each, str) else each for each in inputs]
    version = 1 if name in ("HARD_SWISH", "PRELU", "RESHAPE") else 2
    return of_one(name, held, [shape], options, version=version, steps=steps)


@pytest.mark.compiles
@pytest.mark.parametrize("data", ["int8", pytest.param("uint8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", EACH, ids=lambda case: case[0])
def test_operators_on_quantised_tensors_are_those_of_litert(tmp_path: Path, case: Case, data: str) -> None:
    # XNNPACK adds in fixed point, and a file's slopes are 16 bits there.
    check(tmp_path, of_case(case, data, Steps(data, 0.08, 3 if data == "int8" else 120)), share=0.1)


@pytest.mark.compiles
@pytest.mark.parametrize("data", ["int8", pytest.param("uint8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", MOVING, ids=lambda case: case[0])
def test_operators_that_keep_the_steps_are_those_of_litert(tmp_path: Path, case: Case, data: str) -> None:
    # Averages lie halfway between two steps, and LiteRT rounds these up.
    check(tmp_path, of_case(case, data, None), share=0.3 if case[0] in ("AVERAGE_POOL_2D", "RESIZE_BILINEAR") else 0.0)


@pytest.mark.compiles
@pytest.mark.parametrize("name", ["SOFTMAX", "LOGISTIC", "TANH"])
def test_functions_have_the_steps_that_litert_wants(tmp_path: Path, name: str) -> None:
    output = Steps("int8", 1 / 128, 0) if name == "TANH" else Steps("int8", 1 / 256, -128)
    options = {"Beta": 1.0} if name == "SOFTMAX" else {}
    steps = {"given0": Steps("int8", 0.04, 3), "made0": output}
    check(tmp_path, of_one(name, [(4, 9)], [(4, 9)], options, version=2, steps=steps), share=0.1)


@pytest.mark.compiles
def test_a_float_network_may_hold_quantised_tensors_in_between(tmp_path: Path) -> None:
    steps = {"given0": Steps("int8", 0.04, 3)}
    network = check(tmp_path, of_one("DEQUANTIZE", [IMAGE], [IMAGE], version=2, steps=steps))
    assert (network.inputs[0].dtype, network.outputs[0].dtype) == ("int8", "float32")
    network = check(tmp_path, of_one("QUANTIZE", [IMAGE], [IMAGE], steps={"made0": Steps("uint8", 0.02, 128)}))
    assert (network.inputs[0].dtype, network.outputs[0].dtype) == ("float32", "uint8")


@pytest.mark.compiles
def test_outputs_of_a_split_are_quantised_each(tmp_path: Path) -> None:
    steps = {name: Steps("int8", 0.05, 3) for name in ("given1", "made0", "made1")}
    inputs, shapes = [np.array(3, np.int32), IMAGE], [(1, 6, 7, 4)] * 2
    check(tmp_path, of_one("SPLIT", inputs, shapes, {"NumSplits": 2}, version=2, steps=steps), share=0.0)


@pytest.mark.compiles
def test_products_of_two_activations_are_those_of_litert(tmp_path: Path) -> None:
    steps = {"given0": Steps("int8", 0.05, 3), "given1": Steps("int8", 0.02, -5), "made0": Steps("int8", 0.3, 1)}
    inputs = [(2, 5, 16), (2, 6, 16)]
    check(tmp_path, of_one("BATCH_MATMUL", inputs, [(2, 5, 6)], {"AdjY": True}, version=3, steps=steps))


@pytest.mark.compiles
def test_a_reshape_takes_the_integers_as_they_are(tmp_path: Path) -> None:
    steps = {"given0": Steps("uint8", 0.05, 3), "made0": Steps("uint8", 0.25, 9)}
    check(tmp_path, of_one("RESHAPE", [(4, 6), array(6, 4)], [(6, 4)], steps=steps), share=0.0)


@pytest.mark.compiles
def test_weights_alone_may_be_quantised(tmp_path: Path) -> None:
    """LiteRT quantises the activations of such a network on the fly; here they stay in float."""
    weights, bias = integers(10, 32), RANDOM.standard_normal(10).astype(np.float32)
    steps = {"given1": Steps("int8", 0.02)}
    network = imported(tmp_path, of_one("FULLY_CONNECTED", [(3, 32), weights, bias], [(3, 10)], version=3, steps=steps))
    data = {"given0": RANDOM.standard_normal((3, 32)).astype(np.float32)}
    (found,) = computed(network, data)
    exact = data["given0"] @ (weights.T * np.float32(0.02)) + bias
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * np.abs(exact).max())
    (wanted,) = network.reference(data).values()
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


@pytest.mark.compiles
def test_a_bias_has_the_scale_of_the_sums_whatever_the_file_says(tmp_path: Path) -> None:
    steps = {name: way for name, way in steps_of("int8").items() if name != "given2"}
    inputs = [(30, 32), integers(10, 32), bias_of(10)]
    check(tmp_path, of_one("FULLY_CONNECTED", inputs, [(30, 10)], version=4, steps=steps))


def test_pairs_are_written_as_operators_of_relax_on_planes(tmp_path: Path) -> None:
    """What other frontends give, too: `relax.quantize` and `relax.dequantize` with scalars, in NCHW."""
    options = {"Padding": SAME, "StrideH": 1, "StrideW": 1}
    inputs = [IMAGE, integers(5, 3, 3, 8), bias_of(5)]
    content = of_one("CONV_2D", inputs, [(1, 6, 7, 5)], options, version=3, steps=steps_of("int8", 5))
    function = imported(tmp_path, content).module["main"]
    assert not any(is_call(each, "relax.round") for each in parts_of(function))
    [quantised] = [each for each in parts_of(function) if is_call(each, "relax.quantize")]
    assert isinstance(quantised, relax.Call)
    assert float(constant_value(quantised.args[1])) == pytest.approx(0.2)
    assert int(constant_value(quantised.args[2])) == 5
