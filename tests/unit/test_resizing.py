"""Feature maps that are enlarged at the end of a network are interpolated along one axis after the other."""

import numpy as np
import pytest
from onnx import TensorProto
from support.agreement import agreeing, network_of, random_inputs, results_of
from support.networks import Graph

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles


def enlarged(graph: Graph, mode: str, height: int, width: int, outputs: int = 21) -> str:
    first = graph.node("Conv", graph.input(f"data_{mode}_{outputs}", [1, 4, 9, 7]), graph.normal(outputs, 4, 3, 3))
    sizes = graph.weight(np.array([1, outputs, height, width]))
    return graph.node("Resize", first, "", "", sizes, mode="linear", coordinate_transformation_mode=mode)


def test_every_way_to_find_a_place() -> None:
    graph = Graph()
    modes = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    compiled = agreeing(graph, *(enlarged(graph, mode, 14 + index, 5 + 8 * index) for index, mode in enumerate(modes)))
    assert sum(name.startswith("interpolate") for name in compiled.templates) == 8
    assert not any("resize" in name for name in compiled.templates)


def test_what_is_read_elsewhere_or_made_smaller_stays() -> None:
    graph = Graph()
    read_again = enlarged(graph, "half_pixel", 14, 10, 16)
    after = graph.node("Conv", read_again, graph.normal(3, 16, 3, 3))
    compiled = agreeing(graph, read_again, after, enlarged(graph, "half_pixel", 3, 2, 8))
    assert not any(name.startswith("interpolate") for name in compiled.templates)


# Feature maps that are read where a grid says agree with onnxruntime.


def test_grid_sample() -> None:
    graph = Graph(opset=16)
    data, grid = graph.input("data", [2, 3, 7, 10]), graph.input("grid", [2, 5, 9, 2])
    results = [
        graph.node("GridSample", data, grid, mode="bilinear", padding_mode=padding, align_corners=aligned)
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    ]
    nearest = graph.node("GridSample", data, grid, mode="nearest", padding_mode="zeros", align_corners=0)
    compiled = agreeing(graph, *results, nearest)
    assert sum(name.startswith("weights") for name in compiled.templates) == 4


# Softmax and norms along rows have a template of their own, and agree with onnxruntime whatever the rows' length.


@pytest.mark.parametrize("columns", [8, 49, 197, 1000])
def test_rows_of_any_length(columns: int) -> None:
    graph = Graph()
    data = graph.input("data", [2, 3, 5, columns])
    factors = [graph.normal(columns), graph.normal(columns)]
    results = [
        graph.node("Softmax", graph.node("Mul", data, graph.weight(np.float32(9))), axis=-1),
        graph.node("LogSoftmax", data, axis=3),
        graph.node("LayerNormalization", data, *factors, axis=-1, epsilon=1e-3),
        graph.node("Relu", graph.node("LayerNormalization", data, factors[0], axis=3)),
    ]
    assert list(agreeing(graph, *results).templates.values()).count("rows") == 4


def test_other_axes_and_short_rows() -> None:
    graph = Graph()
    data = graph.input("data", [2, 12, 3, 4])
    over_several = graph.node("LayerNormalization", data, graph.normal(3, 4), graph.normal(3, 4), axis=2)
    before_ones = graph.node("Softmax", graph.node("GlobalAveragePool", data), axis=1)
    agreeing(graph, graph.node("Softmax", data, axis=1), graph.node("Softmax", data, axis=3), over_several, before_ones)


def test_infinities_and_nan() -> None:
    graph = Graph()
    mask = np.zeros((4, 37), np.float32)
    mask[0, 5:] = mask[1, ::2] = mask[2] = -np.inf
    mask[3, 7] = np.nan
    data = graph.node("Add", graph.input("data", [4, 37]), graph.weight(mask))
    network = network_of(graph, graph.node("Softmax", data, axis=1))
    compiled = compile_network(network, load_board("local"))
    [(found, wanted)] = results_of(compiled, network, random_inputs(network))
    assert np.isnan(wanted[2:]).all()
    assert not np.isnan(wanted[:2]).any()
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-7)


def test_other_types() -> None:
    graph = Graph()
    wide = graph.node("Cast", graph.input("data", [3, 20]), to=TensorProto.DOUBLE)
    agreeing(graph, graph.node("Cast", graph.node("Softmax", wide, axis=1), to=TensorProto.FLOAT))
