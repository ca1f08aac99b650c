"""Weights that grow by Winograd's transform lie in packages as they were, and are transformed when these are loaded.

The results are those of weights that were transformed when the network was built, to the last bit.
"""

from pathlib import Path

import numpy as np
import pytest
from support.agents import packaged
from support.emulated import emulated_outputs
from support.networks import Graph
from support.quantised_networks import FORMS, quantise, random_samples
from support.running import outputs_of

from edgedeploy.building import build
from edgedeploy.compile.output import packing
from edgedeploy.compile.output.explain import functions
from edgedeploy.compile.output.packing import lifted
from edgedeploy.compile.pipeline import compile_network, lower_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.package.archive import read_manifest, read_package
from edgedeploy.runtime.session import Session
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import find_source

pytestmark = pytest.mark.compiles

LOCAL = load_board("local")

# Kernels of so many bytes: 3x3 of 64 to 64 channels.
KERNELS = 4 * 9 * 64 * 64


def layers(path: Path, height: int | str = 24) -> Path:
    graph = Graph()
    first = graph.conv(graph.input("data", [1, 4, height, 24]), 4, 64, 3, pads=[1] * 4)
    kernels = graph.normal(64, 64, 3, 3, scale=0.1)
    second = graph.node("Conv", graph.node("Relu", first), kernels, pads=[1] * 4)
    third = graph.node("Conv", graph.node("Relu", second), kernels, graph.normal(64), pads=[1] * 4)
    return graph.save(path, third)


def image(height: int = 24) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((1, 4, height, 24)).astype(np.float32)


def test_a_package_holds_each_kernel_once_as_it_was(tmp_path: Path) -> None:
    built = packaged(layers(tmp_path / "net.onnx"))
    _, contents = read_package(built.path)
    [weights] = built.manifest.transformed
    assert (weights.shape, weights.dtype) == ([3, 3, 64, 64], "float32")
    assert len(contents[weights.name]) == KERNELS
    assert built.manifest.memory.constants_bytes > 4 * KERNELS  # both layers' transformed ones, as in memory
    assert len(contents["model.so"]) < KERNELS


def test_outputs_are_those_of_weights_transformed_when_it_was_built(tmp_path: Path) -> None:
    path = layers(tmp_path / "net.onnx")
    package = packaged(path).path
    compiled = compile_network(read_onnx(path), LOCAL)
    assert any(each["template"] == "winograd convolution" for each in functions(compiled))
    [wanted] = outputs_of(compiled, {"data": image()})
    for threads in (1, 2):
        [found] = Session.open(package, threads).run({"data": image()}).values()
        np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.quick("rpi5", "rpi-armhf")
@pytest.mark.parametrize("board", ["rpi3", "rpi4", "rpi5", "rpi-armhf"])
def test_so_they_are_on_arm(tmp_path: Path, board: str) -> None:
    network, profile = read_onnx(layers(tmp_path / "net.onnx")), load_board(board)
    found = []
    for name, when in (("built", False), ("loaded", True)):
        (tmp_path / name).mkdir()
        lowered = lower_network(network, profile, at_load=when)
        assert bool(lifted(lowered.module).weights) == when
        found += emulated_outputs(lowered, profile, {"data": image()}, tmp_path / name)
    np.testing.assert_array_equal(found[0].view(np.uint32), found[1].view(np.uint32))


@pytest.mark.parametrize("board", ["local", "rpi4", "rpi5"])
def test_bytes_whose_products_are_summed_up_in_float_are_transformed_from_bytes(tmp_path: Path, board: str) -> None:
    source = layers(tmp_path / "float.onnx")
    path = quantise(source, tmp_path / "net.onnx", FORMS["pairs-s8s8-channels"], random_samples(source))
    network, profile = read_onnx(path), load_board(board)
    weights = lifted(lower_network(network, profile, at_load=True).module).weights
    floats = [each for each in functions(lower_network(network, profile)) if each["template"] == "winograd convolution"]
    assert all(each.dtype == np.int8 for each in weights)
    assert bool(weights) == bool(floats)  # as the board's cost says


def test_entries_share_weights_and_what_is_made_of_them(tmp_path: Path) -> None:
    path = layers(tmp_path / "net.onnx", height="h")
    source = find_source(str(path), {"data": [1, 4, 24, 24]}).with_further([{"data": [1, 4, 32, 24]}], [])
    package = build(source, resolve("local"), tmp_path / "net.tar.gz").path
    assert len(read_manifest(package).transformed) == 1
    session = Session.open(package)
    for height in (24, 32):
        compiled = compile_network(find_source(str(path), {"data": [1, 4, height, 24]}).read(), LOCAL)
        [wanted] = outputs_of(compiled, {"data": image(height)})
        [found] = session.run({"data": image(height)}).values()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_weights_that_grow_little_are_transformed_by_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = read_onnx(layers(tmp_path / "net.onnx"))
    assert len(lifted(lower_network(network, LOCAL, at_load=True).module).weights) == 1
    monkeypatch.setattr(packing, "LEAST_GROWTH", 1 << 30)
    assert not lifted(lower_network(network, LOCAL, at_load=True).module).weights
