"""What rounding alone does to a quantised network shows where its weights are larger by their last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from support.networks import Graph

from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.frontends.onnx.network import with_nudged_weights


def halves(activation: str = "LeakyRelu") -> tuple[Graph, str]:
    """A product of whole numbers by a half, an activation, and its rounding to whole numbers again."""
    graph = Graph()
    one, half = (graph.weight(np.asarray(value, np.float32)) for value in (1, 0.5))
    zero, none = graph.weight(np.asarray(0, np.int8)), graph.weight(np.asarray(0, np.int32))

    def rounded(value: str) -> str:
        return graph.node("DequantizeLinear", graph.node("QuantizeLinear", value, one, zero), one, zero)

    read = rounded(graph.input("data", [1, 16]))
    weights = graph.node("DequantizeLinear", graph.weight(np.eye(16, dtype=np.int8)), half, zero)
    bias = graph.node("DequantizeLinear", graph.weight(np.zeros(16, np.int32)), half, none)
    return graph, rounded(graph.node(activation, graph.node("Gemm", read, weights, bias)))


def test_values_at_a_half_move_by_a_step(tmp_path: Path) -> None:
    graph, output = halves()
    network = read_onnx(graph.save(tmp_path / "net.onnx", output))
    data = {"data": np.arange(16, dtype=np.float32).reshape(1, 16)}
    assert network.quantised
    assert network.other_kernels is not None
    [wanted], [found] = network.reference(data).values(), network.other_kernels(data).values()
    # 0.5, 2.5, 4.5 and 6.5 go to the even number below them.
    assert (found - wanted).ravel().tolist() == [0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0]


def test_scales_of_activations_and_biases_stay() -> None:
    graph, output = halves()
    model = graph.model(output)
    nudged = with_nudged_weights(model)
    scales = {each.name: numpy_helper.to_array(each).item() for each in nudged.graph.initializer if each.data_type == 1}
    changed = [
        (scales[after.input[1]], scales[before.input[1]])
        for before, after in zip(model.graph.node, nudged.graph.node, strict=True)
        if before.input != after.input
    ]
    assert changed == [(np.nextafter(np.float32(0.5), np.float32(1)).item(), 0.5)]
    assert [node.input[1] for node in model.graph.node if node.op_type == "DequantizeLinear"].count("w1") == 2
    onnx.checker.check_model(nudged)


def test_layers_of_which_the_reference_has_integer_kernels_stay() -> None:
    graph, output = halves("Relu")
    model = graph.model(output)
    assert with_nudged_weights(model) == model
