"""What is refused of quantised files: every refusal, by format, each of which names one operator of the file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.ncnn_files import INT8, plain, tagged, write
from support.networks import Graph
from support.tflite_networks import Steps, of_one
from support.tmfiles import TmFile

from edgedeploy.errors import ModelError
from edgedeploy.frontends.formats import describing

DECONVOLUTION, FULLY_CONNECTED = 6, 11
DENSE, FILTER, DECONV = ("FullyConnected", "here"), ("Convolution", "here"), ("Deconvolution", "here")
TANH, CAST, DENSE_OF_TFLITE = ("TANH", "made0"), ("CAST", "made0"), ("FULLY_CONNECTED", "made0")


def onnx_of_four_bits(folder: Path) -> Path:
    graph = Graph(opset=21)
    graph.weights.append(helper.make_tensor("zero", TensorProto.INT4, [], [0]))
    values = graph.node("QuantizeLinear", graph.input("data", [2, 3]), graph.weight(np.float32(1)), "zero")
    made = graph.node("DequantizeLinear", values, graph.weight(np.float32(1)), "zero")
    return graph.save(folder / "net.onnx", made)


def onnx_over_four_axes(folder: Path) -> Path:
    graph = Graph()
    data = graph.input("data", [1, 1, 3, 3, 3, 3], TensorProto.UINT8)
    weights = graph.weight(np.ones((1, 1, 2, 2, 2, 2), np.uint8))
    return graph.save(folder / "net.onnx", graph.node("ConvInteger", data, weights))


def onnx_of_another_domain(folder: Path) -> Path:
    graph = Graph()
    made = graph.node("QAttention", graph.input("data", [1, 2, 4]), domain="com.microsoft", num_heads=1)
    return graph.save(folder / "net.onnx", made)


def tflite(folder: Path, content: bytes) -> Path:
    (folder / "net.tflite").write_bytes(content)
    return folder / "net.tflite"


def tanh(**output: Any) -> Callable[[Path], Path]:
    """With the steps of its output."""
    steps = {"given0": Steps("int8", 0.05), "made0": Steps(**{"dtype": "int8", "scale": 0.1, **output})}
    return lambda folder: tflite(folder, of_one("TANH", [(1, 4)], [(1, 4)], version=2, steps=steps))


def biased(value: int) -> Callable[[Path], Path]:
    steps = {"given0": Steps("int8", 0.05), "given1": Steps("int8", 0.02), "made0": Steps("int8", 0.2)}
    inputs = [(3, 8), np.ones((4, 8), np.int8), np.array([value, 0, 0, 0], np.int64)]
    return lambda folder: tflite(folder, of_one("FULLY_CONNECTED", inputs, [(3, 4)], version=4, steps=steps))


def tflite_of_integers(folder: Path) -> Path:
    return tflite(folder, of_one("CAST", [(1, 4)], [(1, 4)], steps={"given0": Steps("int8", 0.05)}))


def tengine(dtype: str, scales: list[float], zero_point: int = 0) -> Callable[[Path], Path]:
    file = TmFile()
    data = file.quantise(file.input("data", (1, 3)), "int8", [0.1])
    weights = file.quantise(file.constant(np.ones((2, 3), dtype), "weights"), dtype, scales, zero_point)
    file.output(file.node(FULLY_CONNECTED, (2,), data, weights, name="here"))
    return lambda folder: file.save(folder / "net.tmfile")


def tengine_transposed(folder: Path) -> Path:
    file = TmFile()
    data = file.quantise(file.input("data", (1, 3, 4, 4)), "int8", [0.1])
    weights = file.quantise(file.constant(np.ones((3, 3, 2, 2), np.int8)), "int8", [0.1, 0.2, 0.3])
    parameters = (3, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, -1, 0, 0)
    return file.output(file.node(DECONVOLUTION, parameters, data, weights, name="here")).save(folder / "net.tmfile")


def ncnn(form: int, scales: bytes = b"", more: str = "") -> Callable[[Path], Path]:
    line = f"Convolution here 1 1 data here 0=2 1=1 5=1 6=4 8={form} {more}"
    weights = tagged(np.ones((2, 2, 1, 1)), INT8) + plain([0, 0])
    return lambda folder: write(folder, ["Input data 0 1 data 0=4 1=4 2=2", line.strip()], weights + scales)


# By what is refused: the file, the operator, its node, or where nodes have no names the tensor that it gives, and why.
REFUSED: dict[str, tuple[Callable[[Path], Path], str, str, str]] = {
    "onnx: activations of four bits": (onnx_of_four_bits, "QuantizeLinear", "quantizelinear0", "integers of int4"),
    "onnx: sums over four axes": (onnx_over_four_axes, "ConvInteger", "convinteger0", "over 4 axes"),
    "onnx: an operator that is not known": (onnx_of_another_domain, "QAttention", "qattention0", "is not supported"),
    "tflite: activations of four bits": (tanh(dtype="int4"), *TANH, "its output has integers of four bits"),
    "tflite: integers as such": (tflite_of_integers, *CAST, "it reads the integers"),
    "tflite: a negative scale": (tanh(scale=-1.0), *TANH, "scales or zero points .* make no sense"),
    "tflite: scales of nothing": (tanh(scale=[0.1, 0.2, 0.3]), *TANH, "has 3 scales"),
    "tflite: a zero point that its type has not": (tanh(zero_point=300), *TANH, "is not in int8"),
    "tflite: a large bias": (biased(1 << 31), *DENSE_OF_TFLITE, "does not fit into 32 bits"),
    "tflite: a small bias": (biased(-(1 << 63)), *DENSE_OF_TFLITE, "does not fit into 32 bits"),
    "tengine: no scale": (tengine("int8", []), *DENSE, "has 0 scales"),
    "tengine: no scale of 16 bits": (tengine("int16", []), *DENSE, "has 0 scales"),
    "tengine: scales of nothing": (tengine("int8", [0.1] * 3), *DENSE, "has 3 scales"),
    "tengine: an impossible scale": (tengine("uint8", [-0.1]), *DENSE, "impossible"),
    "tengine: an impossible zero point": (tengine("int16", [0.1], 1 << 16), *DENSE, "impossible"),
    "tengine: scales of a transposed convolution": (tengine_transposed, *DECONV, "its weights have several scales"),
    "ncnn: a form that is not known": (ncnn(3), *FILTER, r"parameter 8\) is 3"),
    "ncnn: a scale of nothing": (ncnn(1, plain([1, 1], [0])), *FILTER, "impossible"),
    "ncnn: other padding": (ncnn(1, plain([1, 1], [1]), "4=1 18=2.0"), *FILTER, "padding has a value other than zero"),
    "ncnn: weights without a scale": (ncnn(0), "layer", "here", "without a scale"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_names_the_operator_and_its_node(what: str, tmp_path: Path) -> None:
    make, operator, node, why = REFUSED[what]
    form, path = describing(make(tmp_path))
    with pytest.raises(ModelError, match=why) as raised:
        form.read(form.files(path), {})
    assert operator in str(raised.value)
    assert f"'{node}'" in str(raised.value)


@pytest.mark.filterwarnings("ignore")
def test_a_refusal_of_pytorch_names_the_operator(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.ao.quantization.fx import _decomposed  # noqa: F401

    class Dynamic(torch.nn.Module):
        def forward(self, image: Any) -> Any:
            scale, _ = torch.ops.quantized_decomposed.choose_qparams(image, 0, 255, 1e-6, torch.uint8)
            return image * scale

    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Dynamic().eval(), (torch.randn(1, 3),)), str(path))
    with pytest.raises(ModelError, match="choose_qparams"):
        describing(path)[0].read([path], {})
