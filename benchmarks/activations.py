"""Writes what activations behind a layer of bytes take on ARM cores, by prediction, into docs/quantisation.md.

    python benchmarks/activations.py

The layer is a 1x1 convolution of 64 channels. What an activation takes is the difference from the layer alone, for
each value: directly behind it, and as a function of its result in bytes, as other programs quantise.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from errors import ending_with_errors
from integers import write
from onnx import helper, numpy_helper
from results import as_table

from edgedeploy import predict
from edgedeploy.cli.console import ConsoleProgress

CORES = {"rpi4": "Cortex-A72", "rpi5": "Cortex-A76"}
ACTIVATIONS = ("SiLU", "Gelu", "HardSwish", "Tanh")
CHANNELS, SIZE = 64, 40

# The scale and zero point of the input, the layer's sums, and the result.
STEPS = {"data": (0.02, 128), "sums": (0.05, 110), "result": (0.03, 100)}


def network(activation: str | None, *, in_bytes: bool) -> onnx.ModelProto:
    """The layer, the activation, and a layer that reads its bytes; the layer's sums are rounded to bytes or not."""
    random, shape = np.random.default_rng(0), [1, CHANNELS, SIZE, SIZE]
    constants = {"scale": np.float32(2**-9), "zero": np.int8(0)}
    for name, (scale, zero) in STEPS.items():
        constants |= {f"{name}/scale": np.float32(scale), f"{name}/zero": np.uint8(zero)}
    nodes = []

    def node(kind: str, *inputs: str) -> str:
        nodes.append(helper.make_node(kind, inputs, [str(len(nodes))]))
        return str(len(nodes) - 1)

    def rounded(value: str, name: str) -> str:
        steps = f"{name}/scale", f"{name}/zero"
        return node("DequantizeLinear", node("QuantizeLinear", value, *steps), *steps)

    def layer(value: str, name: str, outputs: int) -> str:
        constants[name] = random.integers(-127, 128, (outputs, CHANNELS, 1, 1)).astype(np.int8)
        return node("Conv", value, node("DequantizeLinear", name, "scale", "zero"))

    value = layer(rounded("input", "data"), "first", CHANNELS)
    if in_bytes:
        value = rounded(value, "sums")
    if activation == "SiLU":
        value = node("Mul", value, node("Sigmoid", value))
    elif activation:
        value = node(activation, value)
    result = layer(rounded(value, "result"), "second", 8)
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, [1, 8, SIZE, SIZE])],
        [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def table(folder: Path) -> list[list[str]]:
    """A row for each activation: cycles for a value, by core, behind the sums and behind bytes."""
    progress = ConsoleProgress()

    def cycles(board: str, activation: str | None, in_bytes: bool) -> float:
        path = folder / f"{activation}.onnx"
        onnx.save(network(activation, in_bytes=in_bytes), path)
        return predict(path, board, progress=progress).prediction.cycles.total

    alone = {board: cycles(board, None, False) for board in CORES}
    rows = [["activation", *(f"{core}: of {what}" for core in CORES.values() for what in ("sums", "bytes"))]]
    for activation in ACTIVATIONS:
        found = [cycles(board, activation, in_bytes) - alone[board] for board in CORES for in_bytes in (False, True)]
        rows.append([activation, *(f"{each / (CHANNELS * SIZE**2):.1f}" for each in found)])
    return rows


if __name__ == "__main__":
    with ending_with_errors(), TemporaryDirectory() as name:
        write("activations", as_table(table(Path(name))))
