"""Rounding errors: estimated as they are measured, and kept within a limit by forms that round less."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from support.networks import Graph, three_convolutions
from support.running import outputs_of

from edgedeploy.board import load_board
from edgedeploy.compile.backends import backend_of
from edgedeploy.compile.backends.cpu import winograd
from edgedeploy.compile.backends.cpu.configuration import Direct, Winograd
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.error_budget import within
from edgedeploy.compile.layers import Convolution
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.pipeline import compile_network, lower_network, optimise
from edgedeploy.compile.strategy import Strategy
from edgedeploy.compile.types import FLOAT32
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.network import Network

pytestmark = pytest.mark.compiles

LOCAL = load_board("local")


def strategy(channels: int, size: int = 28) -> Strategy[Convolution]:
    window = Window((3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    shape = {"data": (1, size, size, channels), "weights": (3, 3, channels, 32)}
    layer = Convolution(**shape, types=FLOAT32, constant=True, window=window)
    return backend_of(LOCAL).strategy(layer)


def forms(each: Strategy[Convolution]) -> dict[int, Configuration]:
    """By the size of Winograd's tiles, 0 for a direct convolution."""
    return {form.size if isinstance(form, Winograd) else 0: form for form in each.alternatives()}


def exact(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The convolution in float64, padded by one pixel."""
    padded = np.pad(values[0].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.einsum("chwij,ocij->ohw", windows, weights.astype(np.float64), optimize=True)


@pytest.mark.parametrize("channels", [pytest.param(8, marks=pytest.mark.slow), 64])
@pytest.mark.parametrize("size", [0, 2, 4])
def test_the_estimated_error_is_the_measured_one(tmp_path: Path, size: int, channels: int) -> None:
    random = np.random.default_rng(channels)
    weights = random.standard_normal((32, channels, 3, 3)).astype(np.float32)
    graph = Graph()
    # Products by one are exact: this brings the channels together, as they lie between two layers.
    ones = graph.weight(np.ones((channels, 1, 1, 1), np.float32))
    data = graph.node("Conv", graph.input("data", [1, channels, 28, 28]), ones, group=channels)
    network = read_onnx(
        graph.save(tmp_path / "net.onnx", graph.node("Conv", data, graph.weight(weights), pads=[1] * 4))
    )
    values = random.standard_normal((1, channels, 28, 28)).astype(np.float32)
    chosen = next(
        form
        for group in optimise(network, LOCAL).groups.values()
        for form in backend_of(LOCAL).strategy(group.layer).alternatives()
        if isinstance(form, Winograd if size else Direct) and getattr(form, "size", 0) == size
    )
    [found] = outputs_of(compile_network(network, LOCAL, tuned=lambda workload: chosen), {"data": values})
    wanted = exact(values, weights)
    measured = np.std(found[0] - wanted) / np.std(wanted)
    assert measured == pytest.approx(math.sqrt(strategy(channels).rounding(chosen)), rel=0.3)


def test_tiles_of_four_round_most_and_tiles_of_two_least() -> None:
    each = strategy(64)
    errors = {size: each.rounding(form) for size, form in forms(each).items()}
    assert errors[2] < errors[0] < errors[4]


def test_the_layer_with_the_largest_share_gives_way_first() -> None:
    strategies = {"few": strategy(16), "many": strategy(128)}
    chosen = {name: forms(each)[4] for name, each in strategies.items()}
    calls = {"few": 1, "many": 1}
    assert within(math.inf, strategies, chosen, calls) == chosen
    some = within(8.0, strategies, chosen, calls)
    assert some["few"] == chosen["few"]
    assert some["many"] != chosen["many"]
    assert some != (most := within(1.5, strategies, chosen, calls))
    assert all(strategies[name].rounding(form) < strategies[name].rounding(chosen[name]) for name, form in most.items())
    assert within(3.0, strategies, chosen, {"few": 1000, "many": 1})["few"] != chosen["few"]


def test_what_rounds_least_remains_where_no_limit_can_be_kept() -> None:
    least = {"layer": forms(strategy(64))[2]}
    assert within(1e-9, {"layer": strategy(64)}, least, {"layer": 1}) == least


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    """Two 3x3 convolutions, for which tiles of four are the fastest."""
    monkeypatch.setattr(winograd, "direct_cycles", lambda *_: math.inf)
    graph = Graph()
    return read_onnx(graph.save(tmp_path / "net.onnx", three_convolutions(graph, 28, 64)))


def sizes(network: Network, limit: float, tuned: Configuration | None = None) -> set[int]:
    lowered = lower_network(network, LOCAL, tuned=lambda workload: tuned, error_limit=limit)
    entries = [entry for entry in lowered.functions.values() if isinstance(entry.configuration, Winograd)]
    assert all(entry.exact is (limit < 2) for entry in entries)
    assert not any(entry.tuned for entry in entries if entry.exact)
    return {entry.configuration.size for entry in entries}  # type: ignore[union-attr]


def test_a_network_s_limit_makes_its_tiles_smaller(network: Network) -> None:
    assert sizes(network, math.inf) == {4}
    assert sizes(network, 10.0) == {4}
    assert sizes(network, 1.5) == {2}


def test_what_was_measured_as_fastest_gives_way_too(network: Network) -> None:
    measured = forms(strategy(64))[4]
    assert sizes(network, 1.5, measured) == {2}
