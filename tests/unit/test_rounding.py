"""Rounding errors: estimated as they are measured, and kept within a limit by forms that round less."""

import math
from pathlib import Path

import numpy as np
import pytest
from support.agreement import network_of, results_of
from support.layer_runs import computed_and_exact, relative_error
from support.networks import Graph, three_convolutions

from edgedeploy.compile.backends import backend_of
from edgedeploy.compile.backends.cpu import winograd
from edgedeploy.compile.backends.cpu.configuration import Winograd
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.ir.types import FLOAT32
from edgedeploy.compile.layers import Convolution
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.pipeline import compile_network, lower_network
from edgedeploy.compile.strategy import Strategy, within
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.network import Network
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles

LOCAL = load_board("local")


def strategy(channels: int, size: int = 28) -> Strategy[Convolution]:
    window = Window((3, 3), (1, 1), (1, 1), (1, 1, 1, 1))
    shape = {"data": (1, size, size, channels), "weights": (3, 3, channels, 32)}
    return backend_of(LOCAL).strategy(Convolution(**shape, types=FLOAT32, constant=True, window=window))


def forms(each: Strategy[Convolution]) -> dict[int, Configuration]:
    """By the size of Winograd's tiles, 0 for a direct convolution."""
    return {form.size if isinstance(form, Winograd) else 0: form for form in each.alternatives()}


@pytest.mark.parametrize("channels", [pytest.param(8, marks=pytest.mark.slow), 64])
@pytest.mark.parametrize("size", [0, 2, 4])
def test_the_estimated_error_is_the_measured_one(tmp_path: Path, size: int, channels: int) -> None:
    each = strategy(channels)
    chosen = forms(each)[size]
    measured = relative_error(*computed_and_exact(each.layer, chosen, tmp_path))
    assert measured == pytest.approx(math.sqrt(each.rounding(chosen)), rel=0.3)


def test_tiles_of_four_round_most_and_tiles_of_two_least() -> None:
    each = strategy(64)
    errors = {size: each.rounding(form) for size, form in forms(each).items()}
    assert errors[2] < errors[0] < errors[4]


def test_the_layer_with_the_largest_share_gives_way_first() -> None:
    strategies = {"few": strategy(16), "many": strategy(128)}
    chosen = {name: forms(each)[4] for name, each in strategies.items()}
    calls = {"few": 1, "many": 1}
    assert within(math.inf, strategies, chosen, calls) == chosen
    some = within(2.9, strategies, chosen, calls)
    assert some["few"] == chosen["few"]
    assert some["many"] != chosen["many"]
    assert some != (most := within(1.5, strategies, chosen, calls))
    assert all(strategies[name].rounding(form) < strategies[name].rounding(chosen[name]) for name, form in most.items())
    assert within(2.0, strategies, chosen, {"few": 1000, "many": 1})["few"] != chosen["few"]


def test_what_rounds_least_remains_where_no_limit_can_be_kept() -> None:
    least = {"layer": forms(strategy(64))[2]}
    assert within(1e-9, {"layer": strategy(64)}, least, {"layer": 1}) == least


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
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
    assert sizes(network, 1.5, forms(strategy(64))[4]) == {2}


@pytest.mark.compiles
@pytest.mark.parametrize("channels", [24, 37])
def test_the_mean_of_an_even_image_is_as_exact_as_that_of_any_other(channels: int) -> None:
    graph = Graph()
    same = graph.weight(np.eye(channels, dtype=np.float32).reshape(channels, channels, 1, 1))
    data = graph.node("Conv", graph.input("data", [1, channels, 112, 112]), same)
    network = network_of(graph, graph.node("GlobalAveragePool", data))
    even = np.full((1, channels, 112, 112), 1.2345678, np.float32)
    [(found, _)] = results_of(compile_network(network, LOCAL), network, {"data": even})
    np.testing.assert_allclose(found, even[..., :1, :1], rtol=1e-6)
