"""Functions of bytes and of layers' sums, by tables in vector registers: within a quarter of a step before rounding."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.agreement import network_of, outputs_of
from support.cpus import need_cpu
from support.emulated import emulated_outputs
from support.networks import Quantised
from support.profiles import x86
from unit.test_half_precision import gelu, silu
from unit.test_integer_layers import BOARDS as OF_LAYERS

from edgedeploy.compile.backends.cpu import lookup
from edgedeploy.compile.pipeline import compile_network, lower_network

pytestmark = pytest.mark.compiles

BOARDS = {**OF_LAYERS, "x86-64-v2": x86("x86-64-v2", 128), "icelake-server": x86("icelake-server", 512)}
CHANNELS = 32
DATA = np.arange(-128, 128, dtype=np.float32).reshape(1, 1, 16, 16).repeat(CHANNELS, 1) / 8


def sigmoid(graph: Quantised, data: str) -> str:
    return graph.node("Sigmoid", data)


def swish(graph: Quantised, data: str) -> str:
    return graph.node("HardSwish", data)


def residual(graph: Quantised, data: str) -> str:
    return graph.node("Add", silu(graph, data), graph.pair("data", 1 / 8, np.uint8(128)))


VALUES: dict[Callable[..., str], Callable[[np.ndarray], np.ndarray]] = {
    silu: lambda x: x / (1 + np.exp(-x)),
    residual: lambda x: x / (1 + np.exp(-x)) + DATA,
    gelu: lambda x: x / 2 * (1 + np.vectorize(lookup.math.erf)(x / 2**0.5)),
    sigmoid: lambda x: 1 / (1 + np.exp(-x)),
    swish: lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
}


def steps_of(
    folder: Path, board: str, function: Callable[..., str], scale: float, *, pairs: bool
) -> tuple[np.ndarray, np.ndarray]:
    """What a board computes of a function of a layer's sums, or of them as bytes, in whole steps; and exact values.

    The layer of one input for each channel multiplies it by the channel's number over 32.
    """
    graph = Quantised(opset=17)
    data = graph.pair(graph.input("data", [*DATA.shape]), 1 / 8, np.uint8(128))
    factors = np.arange(1, CHANNELS + 1, dtype=np.int8)
    one_by_one = np.diag(np.ones(CHANNELS, np.int8))[:, :, np.newaxis, np.newaxis]
    sums = graph.node("Conv", data, graph.stored(factors[:, np.newaxis, np.newaxis, np.newaxis] * one_by_one, 1 / 32))
    exact = DATA.astype(np.float64) * factors[:, np.newaxis, np.newaxis] / 32
    if pairs:
        sums = graph.pair(sums, 3 / 32, np.uint8(120))
        exact = (np.clip(np.rint(exact * 32 / 3) + 120, 0, 255) - 120) * 3 / 32
    result = graph.pair(function(graph, sums), scale, np.uint8(40))
    output = graph.node("Conv", result, graph.stored(one_by_one, 1.0))
    network, profile = network_of(graph, output), BOARDS[board].model_copy(update={"devices": [], "cores": 1})
    need_cpu(profile)
    if profile.is_x86:
        [found] = outputs_of(compile_network(network, profile), {"data": DATA})
    else:
        [found] = emulated_outputs(lower_network(network, profile), profile, {"data": DATA}, folder)
    return np.rint(found / np.float32(scale)), VALUES[function](exact) / np.float64(np.float32(scale))


def bytes_of(steps: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(steps), -40, 255 - 40)


CPUS = ["rpi5", "rpi-armhf", "x86-64", "haswell", "x86-64-v2", "icelake-server"]


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the tables that code is generated for."""
    sizes: list[int] = []
    written = lookup.lookup

    def counted(index: Any, table: np.ndarray) -> Any:
        sizes.append(len(table))
        return written(index, table)

    monkeypatch.setattr(lookup, "lookup", counted)
    return sizes


@pytest.mark.quick("rpi5-silu-0.02", "rpi5-residual-*", "rpi-armhf-silu-0.02", "haswell-residual-*")
@pytest.mark.parametrize(
    ("function", "scale"), [(silu, 0.02), (silu, 0.006), (residual, 0.1), (gelu, 0.1), (gelu, 0.004), (swish, 0.03)]
)
@pytest.mark.parametrize("board", CPUS)
def test_functions_near_a_relu_are_within_a_quarter_of_a_step(
    tmp_path: Path, tables: list[int], board: str, function: Callable[..., str], scale: float
) -> None:
    found, exact = steps_of(tmp_path, board, function, scale, pairs=False)
    assert bool(tables) == (board.startswith("rpi") or (board != "x86-64" and function is not swish))
    assert max(tables, default=0) <= 128
    inside = np.abs(exact - np.clip(exact, -40, 255 - 40)) < 1
    np.testing.assert_allclose(found[inside], exact[inside].clip(-40, 255 - 40), rtol=0, atol=0.76)
    np.testing.assert_array_equal(found[~inside], bytes_of(exact)[~inside])
    assert (found != bytes_of(exact)).mean() < 0.1


@pytest.mark.quick("rpi5-silu", "haswell-sigmoid", "rpi-armhf-gelu", "icelake-server-silu")
@pytest.mark.parametrize("function", [silu, gelu, sigmoid, swish])
@pytest.mark.parametrize("board", CPUS)
def test_functions_of_a_byte_are_exact(
    tmp_path: Path, tables: list[int], board: str, function: Callable[..., str]
) -> None:
    scale = 1 / 255 if function is sigmoid else 0.031
    found, exact = steps_of(tmp_path, board, function, scale, pairs=True)
    assert tables == ([256] if board != "x86-64" else [])
    sure = np.abs(exact - np.floor(exact) - 0.5) > 1e-4
    assert sure.mean() > 0.98
    np.testing.assert_array_equal(found[sure], bytes_of(exact)[sure])
