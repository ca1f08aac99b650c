"""Quantised TensorFlow Lite files: each operator as LiteRT computes it, within a step; weights stay integers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.running import computed
from tvm import relax
from unit.test_tflite_frontend import imported, needed

from edgedeploy.compile.ir.expressions import constant_value, is_call, parts_of, shape_of
from edgedeploy.compile.output.explain import transposes
from edgedeploy.compile.pipeline import lower_network
from edgedeploy.model.network import Network
from edgedeploy.target.board import load_board

pytestmark = needed
if not needed.args[0]:
    from support.tflite_networks import Steps, of_one

RANDOM = np.random.default_rng(19)
SAME, VALID, RELU, RELU6 = 0, 1, 1, 3
IMAGE = (1, 6, 7, 8)


def integers(*shape: int, dtype: str = "int8", low: int = -127) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RANDOM.integers(max(limits.min, low), limits.max, shape, dtype, endpoint=True)


def check(folder: Path, content: bytes, steps: int = 1, *, share: float = 0.03) -> Network:
    """Compare a compiled network with LiteRT: no value further than `steps`, and few values off at all."""
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
        assert away.max() <= steps
        assert (away > 0).mean() <= share
        assert len(np.unique(wanted)) > min(4, wanted.size // 2)  # of values that saturate nothing would be seen
    return network


def stored(network: Network) -> list[tuple[str, list[int], int]]:
    return [
        (str(each.args[0].ty.dtype), shape_of(each.args[0]), constant_value(each.args[1]).size)
        for each in parts_of(network.module["main"])
        if is_call(each, "relax.dequantize") and constant_value(each.args[0]) is not None
    ]


def signed(per_channel: int = 0, axis: int = 0, data: str = "int8") -> dict[str, Any]:
    """Steps of a layer with weights; of uint8 with zero points everywhere."""
    scales: Any = list(np.linspace(0.01, 0.03, per_channel)) if per_channel else 0.02
    bias = [0.05 * scale for scale in scales] if per_channel else 0.05 * 0.02
    if data == "uint8":
        return {
            "given0": Steps("uint8", 0.05, 120),
            "given1": Steps("uint8", 0.02, 131),
            "given2": Steps("int32", bias),
            "made0": Steps("uint8", 0.2, 100),
        }
    return {
        "given0": Steps("int8", 0.05, -4),
        "given1": Steps("int8", scales, 0, axis),
        "given2": Steps("int32", bias),
        "made0": Steps("int8", 0.2, 5),
    }


@pytest.mark.compiles
@pytest.mark.parametrize(("form", "activation"), [("per tensor", 0), ("per channel", RELU), ("uint8", RELU6)])
def test_convolutions_are_those_of_litert(tmp_path: Path, form: str, activation: int) -> None:
    dtype = "uint8" if form == "uint8" else "int8"
    steps = signed(5 if form == "per channel" else 0, data=dtype)
    bias = RANDOM.integers(-2000, 2000, 5, np.int32)
    options = {"Padding": SAME, "StrideH": 2, "StrideW": 1, "FusedActivationFunction": activation}
    inputs = [IMAGE, integers(5, 3, 3, 8, dtype=dtype), bias]
    content = of_one("CONV_2D", inputs, [(1, 3, 7, 5)], options, kind="Conv2DOptions", version=3, steps=steps)
    network = check(tmp_path, content)
    scales = 5 if form == "per channel" else 1
    assert sorted(stored(network)) == sorted([(dtype, [5, 8, 3, 3], scales), ("int32", [1, 5, 1, 1], scales)])
    assert network.quantised
    assert transposes(lower_network(network, load_board("local")))["inside"] == 0


@pytest.mark.compiles
@pytest.mark.parametrize("channels", [0, 5])
def test_layers_of_int16_activations_are_those_of_litert(tmp_path: Path, channels: int) -> None:
    """As the converter's "16x8" writes them: weights of int8, biases of int64, no zero points."""
    scales: Any = list(np.linspace(0.01, 0.03, 5)) if channels else 0.02
    bias_scales = [2e-4 * scale for scale in scales] if channels else 2e-4 * 0.02
    layer = {"given1": Steps("int8", scales, 0, 0), "given2": Steps("int64", bias_scales)}
    steps = {"given0": Steps("int16", 2e-4, 0), **layer, "made0": Steps("int16", 1e-3, 0)}
    options = {"Padding": SAME, "StrideH": 2, "StrideW": 1, "FusedActivationFunction": RELU}
    inputs = [IMAGE, integers(5, 3, 3, 8), RANDOM.integers(-200_000, 200_000, 5, np.int64)]
    content = of_one("CONV_2D", inputs, [(1, 3, 7, 5)], options, kind="Conv2DOptions", version=3, steps=steps)
    check(tmp_path, content, share=0.15)


@pytest.mark.compiles
@pytest.mark.parametrize(("form", "multiplier"), [("per tensor", 1), ("per channel", 2), ("uint8", 1)])
def test_depthwise_convolutions_are_those_of_litert(tmp_path: Path, form: str, multiplier: int) -> None:
    dtype = "uint8" if form == "uint8" else "int8"
    channels = 8 * multiplier
    steps = signed(channels if form == "per channel" else 0, 3, dtype)
    bias = RANDOM.integers(-2000, 2000, channels, np.int32)
    options = {"Padding": VALID, "StrideH": 1, "StrideW": 1, "DepthMultiplier": multiplier}
    inputs = [IMAGE, integers(1, 3, 3, channels, dtype=dtype), bias]
    outputs = [(1, 4, 5, channels)]
    kind = "DepthwiseConv2DOptions"
    content = of_one("DEPTHWISE_CONV_2D", inputs, outputs, options, kind=kind, version=3, steps=steps)
    network = check(tmp_path, content)
    scales = channels if form == "per channel" else 1
    wanted = [(dtype, [channels, 1, 3, 3], scales), ("int32", [1, channels, 1, 1], scales)]
    assert sorted(stored(network)) == sorted(wanted)


@pytest.mark.compiles
@pytest.mark.parametrize("form", ["per tensor", "per channel", "uint8"])
def test_dense_layers_are_those_of_litert(tmp_path: Path, form: str) -> None:
    dtype = "uint8" if form == "uint8" else "int8"
    steps = signed(10 if form == "per channel" else 0, data=dtype)
    inputs = [(3, 32), integers(10, 32, dtype=dtype), RANDOM.integers(-2000, 2000, 10, np.int32)]
    content = of_one("FULLY_CONNECTED", inputs, [(3, 10)], {}, kind="FullyConnectedOptions", version=4, steps=steps)
    network = check(tmp_path, content)
    scales = 10 if form == "per channel" else 1
    assert sorted(stored(network)) == sorted([(dtype, [32, 10], scales), ("int32", [10], scales)])


@pytest.mark.compiles
def test_transposed_convolutions_are_those_of_litert(tmp_path: Path) -> None:
    of_layer = signed(5)
    steps = {"given1": of_layer["given1"], "given2": of_layer["given0"], "given3": of_layer["given2"]}
    shape, weights = np.array([1, 12, 14, 5], np.int32), integers(5, 3, 3, 8)
    bias = RANDOM.integers(-2000, 2000, 5, np.int32)
    options = {"Padding": SAME, "StrideH": 2, "StrideW": 2}
    steps["made0"], inputs, kind = of_layer["made0"], [shape, weights, IMAGE, bias], "TransposeConvOptions"
    check(tmp_path, of_one("TRANSPOSE_CONV", inputs, [(1, 12, 14, 5)], options, kind=kind, version=3, steps=steps))


def array(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


# Of one input or several: name, inputs (shapes, or constants), shape of the output, options, their table.
Case = tuple[str, Sequence[Any], Sequence[int], Mapping[str, Any], str]
WINDOW = {"Padding": SAME, "StrideH": 2, "StrideW": 2, "FilterHeight": 3, "FilterWidth": 2}
EACH: list[Case] = [
    ("ADD", [IMAGE, IMAGE], IMAGE, {"FusedActivationFunction": RELU}, "AddOptions"),
    ("SUB", [IMAGE, IMAGE], IMAGE, {}, "SubOptions"),
    ("MUL", [IMAGE, (1, 1, 1, 8)], IMAGE, {}, "MulOptions"),
    ("MEAN", [IMAGE, array(1, 2)], (1, 1, 1, 8), {"KeepDims": True}, "ReducerOptions"),
    ("PRELU", [IMAGE, "slopes"], IMAGE, {}, ""),
    ("LEAKY_RELU", [IMAGE], IMAGE, {"Alpha": 0.2}, "LeakyReluOptions"),
    ("RELU", [IMAGE], IMAGE, {}, ""),
    ("RELU6", [IMAGE], IMAGE, {}, ""),
    ("HARD_SWISH", [IMAGE], IMAGE, {}, "HardSwishOptions"),
    ("QUANTIZE", [IMAGE], IMAGE, {}, "QuantizeOptions"),
]
# Those whose output has the steps of their input.
MOVING: list[Case] = [
    ("CONCATENATION", [IMAGE, IMAGE], (1, 6, 7, 16), {"Axis": 3}, "ConcatenationOptions"),
    ("AVERAGE_POOL_2D", [IMAGE], (1, 3, 4, 8), WINDOW, "Pool2DOptions"),
    ("MAX_POOL_2D", [IMAGE], (1, 3, 4, 8), WINDOW, "Pool2DOptions"),
    ("RESHAPE", [IMAGE, array(6, 56)], (6, 56), {"NewShape": [6, 56]}, "ReshapeOptions"),
    ("SQUEEZE", [IMAGE], IMAGE[1:], {"SqueezeDims": [0]}, "SqueezeOptions"),
    ("TRANSPOSE", [IMAGE, array(0, 2, 3, 1)], (1, 7, 8, 6), {}, "TransposeOptions"),
    ("PAD", [IMAGE, array(0, 0, 1, 2, 0, 3, 0, 0).reshape(4, 2)], (1, 9, 10, 8), {}, "PadOptions"),
    ("SLICE", [IMAGE, array(0, 1, 2, 3), array(1, 4, 3, 5)], (1, 4, 3, 5), {}, "SliceOptions"),
    ("RESIZE_BILINEAR", [IMAGE, array(11, 9)], (1, 11, 9, 8), {"HalfPixelCenters": True}, "ResizeBilinearOptions"),
    ("RESIZE_NEAREST_NEIGHBOR", [IMAGE, array(11, 9)], (1, 11, 9, 8), {}, "ResizeNearestNeighborOptions"),
    ("MAXIMUM", [IMAGE, IMAGE], IMAGE, {}, "MaximumMinimumOptions"),
    ("MINIMUM", [IMAGE, IMAGE], IMAGE, {}, "MaximumMinimumOptions"),
    ("PACK", [IMAGE, IMAGE], (1, 6, 2, 7, 8), {"ValuesCount": 2, "Axis": 2}, "PackOptions"),
    ("STRIDED_SLICE", [IMAGE, array(0, 1, 0, 0), array(1, 6, 7, 8), array(1, 2, 3, 1)], (1, 3, 3, 8), {},
     "StridedSliceOptions"),
]  # fmt: skip


def of_case(case: Case, data: str, output: Any) -> bytes:
    name, inputs, shape, options, kind = case
    middle = 0 if data == "int8" else 128
    steps = {"made0": output or Steps(data, 0.05, 10 + middle)}
    for place, each in enumerate(inputs):
        if not isinstance(each, np.ndarray):
            same = output is None or case in MOVING
            steps[f"given{place}"] = Steps(data, 0.05 if same else 0.05 + 0.02 * place, (10 if same else -7) + middle)
    held = [integers(1, 1, 8, dtype=data) if isinstance(each, str) else each for each in inputs]
    version = 1 if name in ("HARD_SWISH", "PRELU", "RESHAPE") else 2
    return of_one(name, held, [shape], options, kind=kind, version=version, steps=steps)


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
    options = {"SOFTMAX": ("SoftmaxOptions", {"Beta": 1.0})}.get(name, ("", {}))
    steps = {"given0": Steps("int8", 0.04, 3), "made0": output}
    content = of_one(name, [(4, 9)], [(4, 9)], options[1], kind=options[0], version=2, steps=steps)
    check(tmp_path, content, share=0.1)


@pytest.mark.compiles
def test_a_float_network_may_hold_quantised_tensors_in_between(tmp_path: Path) -> None:
    steps = {"given0": Steps("int8", 0.04, 3)}
    network = check(tmp_path, of_one("DEQUANTIZE", [IMAGE], [IMAGE], kind="DequantizeOptions", version=2, steps=steps))
    assert (network.inputs[0].dtype, network.outputs[0].dtype) == ("int8", "float32")
    content = of_one("QUANTIZE", [IMAGE], [IMAGE], kind="QuantizeOptions", steps={"made0": Steps("uint8", 0.02, 128)})
    network = check(tmp_path, content)
    assert (network.inputs[0].dtype, network.outputs[0].dtype) == ("float32", "uint8")


@pytest.mark.compiles
def test_outputs_of_a_split_are_quantised_each(tmp_path: Path) -> None:
    steps = {name: Steps("int8", 0.05, 3) for name in ("given1", "made0", "made1")}
    shapes = [(1, 6, 7, 4)] * 2
    kind, options = "SplitOptions", {"NumSplits": 2}
    check(tmp_path, of_one("SPLIT", [array(3).reshape(()), IMAGE], shapes, options, kind=kind, version=2, steps=steps),
          share=0.0)  # fmt: skip


@pytest.mark.compiles
def test_products_of_two_activations_are_those_of_litert(tmp_path: Path) -> None:
    steps = {"given0": Steps("int8", 0.05, 3), "given1": Steps("int8", 0.02, -5), "made0": Steps("int8", 0.3, 1)}
    options = {"AdjY": True}
    kind = "BatchMatMulOptions"
    content = of_one("BATCH_MATMUL", [(2, 5, 16), (2, 6, 16)], [(2, 5, 6)], options, kind=kind, version=3, steps=steps)
    check(tmp_path, content)


@pytest.mark.compiles
def test_a_reshape_takes_the_integers_as_they_are(tmp_path: Path) -> None:
    steps = {"given0": Steps("uint8", 0.05, 3), "made0": Steps("uint8", 0.25, 9)}
    inputs = [(4, 6), array(6, 4)]
    check(tmp_path, of_one("RESHAPE", inputs, [(6, 4)], {}, kind="ReshapeOptions", steps=steps), share=0.0)


@pytest.mark.compiles
def test_weights_alone_may_be_quantised(tmp_path: Path) -> None:
    """LiteRT quantises the activations of such a network on the fly; here they stay in float."""
    weights, bias = integers(10, 32), RANDOM.standard_normal(10).astype(np.float32)
    steps = {"given1": Steps("int8", 0.02)}
    kind = "FullyConnectedOptions"
    content = of_one("FULLY_CONNECTED", [(3, 32), weights, bias], [(3, 10)], {}, kind=kind, version=3, steps=steps)
    network = imported(tmp_path, content)
    data = {"given0": RANDOM.standard_normal((3, 32)).astype(np.float32)}
    (found,) = computed(network, data)
    exact = data["given0"] @ (weights.T * np.float32(0.02)) + bias
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * np.abs(exact).max())
    (wanted,) = network.reference(data).values()
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


@pytest.mark.compiles
def test_a_bias_has_the_scale_of_the_sums_whatever_the_file_says(tmp_path: Path) -> None:
    steps = {name: way for name, way in signed().items() if name != "given2"}
    inputs = [(30, 32), integers(10, 32), RANDOM.integers(-2000, 2000, 10, np.int32)]
    kind = "FullyConnectedOptions"
    check(tmp_path, of_one("FULLY_CONNECTED", inputs, [(30, 10)], {}, kind=kind, version=4, steps=steps))


def test_pairs_are_written_as_operators_of_relax_on_planes(tmp_path: Path) -> None:
    """What other frontends give, too: `relax.quantize` and `relax.dequantize` with scalars, in NCHW."""
    options = {"Padding": SAME, "StrideH": 1, "StrideW": 1}
    inputs = [IMAGE, integers(5, 3, 3, 8), RANDOM.integers(-9, 9, 5, np.int32)]
    content = of_one("CONV_2D", inputs, [(1, 6, 7, 5)], options, kind="Conv2DOptions", version=3, steps=signed(5))
    function = imported(tmp_path, content).module["main"]
    assert not any(is_call(each, "relax.round") for each in parts_of(function))
    [quantised] = [each for each in parts_of(function) if is_call(each, "relax.quantize")]
    assert isinstance(quantised, relax.Call)
    assert float(constant_value(quantised.args[1])) == pytest.approx(0.2)
    assert int(constant_value(quantised.args[2])) == 5
