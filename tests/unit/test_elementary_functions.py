"""Elementary functions, which generated code computes by its own arithmetic, agree with numpy in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper
from support.agreement import network_of
from support.networks import Graph
from support.profiles import x86
from support.running import outputs_of

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles

Function = Callable[[np.ndarray], np.ndarray]

SIGMOID: Function = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731


def _computed(operator: str, values: np.ndarray, **attributes: float) -> np.ndarray:
    graph = Graph()
    network = network_of(graph, graph.node(operator, graph.input("x", list(values.shape)), **attributes))
    return outputs_of(compile_network(network, load_board("local")), {"x": values})[0]


@pytest.mark.parametrize("count", [64, 61])
@pytest.mark.parametrize(
    ("operator", "function", "lowest", "highest"),
    [
        ("Exp", np.exp, -86.0, 88.7),
        ("Sigmoid", SIGMOID, -85.0, 100.0),
        ("Tanh", np.tanh, -20.0, 20.0),
        ("Log", np.log, 1e-30, 1e30),
        ("Log", np.log, 0.5, 2.0),
        ("Softplus", lambda x: np.log1p(np.exp(x)), -5.0, 50.0),
    ],
)
def test_values_agree_to_a_few_ulps(
    operator: str, function: Function, lowest: float, highest: float, count: int
) -> None:
    values = np.linspace(lowest, highest, count, dtype=np.float32)
    wanted = function(values.astype(np.float64))
    found = _computed(operator, values)
    np.testing.assert_allclose(found, wanted, rtol=3e-5 if operator == "Softplus" else 1e-6, atol=1e-7)


@pytest.mark.parametrize("exponent", [2.0, 3.0, -1.0, 0.0, 0.5, 1.7, None])
def test_powers_agree_with_numpys(exponent: float | None) -> None:
    """Constant exponents, whole or not, of which whole ones have negative bases too; and those of another tensor."""
    whole = exponent is not None and exponent.is_integer()
    bases = np.linspace(-3.0 if whole else 0.1, 3.0, 64, dtype=np.float32)
    exponents = np.linspace(-2.0, 2.0, 64, dtype=np.float32) if exponent is None else np.float32(exponent)
    graph = Graph()
    names = [graph.input("x", [64]), graph.input("y", [64]) if exponent is None else graph.weight(exponents)]
    network = network_of(graph, graph.node("Pow", *names))
    inputs = {"x": bases} if exponent is not None else {"x": bases, "y": exponents}
    [found] = outputs_of(compile_network(network, load_board("local")), inputs)
    np.testing.assert_allclose(found, bases.astype(float) ** exponents.astype(float), rtol=3e-6)


@pytest.mark.parametrize(
    ("operator", "function"), [("Exp", np.exp), ("Sigmoid", SIGMOID), ("Tanh", np.tanh), ("Log", np.log)]
)
def test_infinities_zeros_and_nan_give_what_numpy_gives(operator: str, function: Function) -> None:
    values = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 88.8, -200.0, 1.0] * 2, dtype=np.float32)
    with np.errstate(all="ignore"):
        wanted = function(values)
    found = _computed(operator, values)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("board", ["rpi4", "rpi-armhf", "visionfive2", "local"])
def test_boards_compute_exp_without_calls_of_the_c_library(board: str) -> None:
    graph = Graph()
    network = network_of(graph, graph.node("Sigmoid", graph.input("x", [64])))
    code = compile_network(network, load_board(board)).code.inspect("asm")
    assert "expf" not in code


@pytest.mark.parametrize(("operator", "function"), [("Round", np.rint), ("Erf", np.vectorize(math.erf))])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-3), ("float32", 1e-6), ("float64", 1e-12)])
def test_round_and_erf_agree_in_every_type(operator: str, function: Function, dtype: str, tolerance: float) -> None:
    values = np.linspace(-3.25, 3.25, 64, dtype=dtype)
    graph = Graph()
    network = network_of(
        graph, graph.node(operator, graph.input("x", [64], helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))
    )
    [found] = outputs_of(compile_network(network, load_board("local")), {"x": values})
    assert found.dtype == dtype
    np.testing.assert_allclose(found, function(values.astype(np.float64)), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("operator", ["Round", "Erf"])
def test_they_are_computed_by_the_longest_vectors(operator: str) -> None:
    """LLVM puts values together again that TVM takes one by one, but by vectors half as long."""
    board = x86("cascadelake", 512)
    graph = Graph()
    network = network_of(graph, graph.node(operator, graph.input("x", [64])))
    code = compile_network(network, board).code.inspect("ll")
    assert "<16 x float>" in code
    assert "<8 x float>" not in code
