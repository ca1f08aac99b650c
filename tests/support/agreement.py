"""Networks that are compiled in the process of the tests and compared with onnxruntime."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.building import Built
from edgedeploy.compile.pipeline import Compiled, compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.network import Network
from edgedeploy.runtime.session import Session
from edgedeploy.target.board import load_board
from support.networks import Graph
from support.running import computed, outputs_of


def network_of(graph: Graph, *outputs: str) -> Network:
    with tempfile.TemporaryDirectory() as folder:
        return read_onnx(graph.save(Path(folder) / "net.onnx", *outputs))


def random_inputs(network: Network, seed: int | np.random.Generator = 1) -> dict[str, np.ndarray]:
    """Normally distributed numbers for all inputs; of a seed, the same every time."""
    random = np.random.default_rng(seed)
    return {spec.name: random.standard_normal(spec.shape).astype(spec.dtype) for spec in network.inputs}


def results_of(
    compiled: Compiled, network: Network, inputs: Mapping[str, np.ndarray], device: Any = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    expected = network.reference(inputs)
    assert [spec.name for spec in network.outputs] == list(expected)
    return list(zip(outputs_of(compiled, inputs, device), expected.values(), strict=True))


def assert_near(
    found: Mapping[Any, np.ndarray], expected: Mapping[Any, np.ndarray], relative: float, absolute: float = 0
) -> None:
    """The same outputs, but for a part of the largest value of each, and so much more."""
    assert list(found) == list(expected)
    for name, wanted in expected.items():
        assert found[name].shape == wanted.shape, name
        assert np.abs(found[name] - wanted).max() <= relative * np.abs(wanted).max() + absolute, name


def assert_agrees(compiled: Compiled, network: Network, tolerance: float = 1e-4, device: Any = None) -> None:
    """Outputs must be onnxruntime's, but for a part of the largest value."""
    for found, wanted in results_of(compiled, network, random_inputs(network), device):
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max() + 1e-6


def agreeing(graph: Graph, *outputs: str, tolerance: float = 1e-4) -> Compiled:
    """A graph compiled for this machine, whose outputs were compared."""
    network = network_of(graph, *outputs)
    compiled = compile_network(network, load_board("local"))
    assert_agrees(compiled, network, tolerance)
    return compiled


def assert_always_agrees(built: Built, network: Network) -> None:
    """A package gives the reference's outputs, the second and the third time too, when storage was used before."""
    session = Session.open(built.path)
    for seed in range(3):
        inputs = random_inputs(network, seed)
        found = session.run(inputs)
        for name, array in network.reference(inputs).items():
            np.testing.assert_allclose(found[name], array, atol=1e-3 * np.abs(array).max(), rtol=0)


def assert_matches_reference(
    network: Network, inputs: Mapping[str, np.ndarray], *, rtol: float = 0, atol: float = 0
) -> None:
    """Compiled for this machine, a network gives its reference's shapes, dtypes and values."""
    for found, wanted in zip(computed(network, inputs), network.reference(inputs).values(), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)
