"""onnxruntime and definitions for tests, and networks compiled in the process of the tests and compared with them."""

import tempfile
import timeit
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from conftest import SHARED
from numpy.lib.stride_tricks import sliding_window_view
from tvm import relax

from edgedeploy.building import Built
from edgedeploy.compile.output.codegen import link
from edgedeploy.compile.output.explain import FEW_STORES, stores_of
from edgedeploy.compile.pipeline import Compiled, Lowered, compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.network import Network
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.runtime.session import Session
from edgedeploy.runtime.timing import Timing
from edgedeploy.target.board import load_board
from support.networks import Graph


def network_of(graph: Graph | onnx.ModelProto, *outputs: str) -> Network:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(graph.model(*outputs) if isinstance(graph, Graph) else graph, path)
        return read_onnx(path)


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


def outputs_of(compiled: Compiled, inputs: Mapping[str, np.ndarray], device: Any = None) -> list[np.ndarray]:
    """The outputs of a network that was compiled for this machine, or for an OpenCL device of it, in its order."""
    device = device or tvm.cpu()
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "model.so"
        link(compiled.code, library, load_board("local"))
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), device)
    returned = machine["main"](*[tvm.runtime.tensor(array, device=device) for array in inputs.values()])
    return [returned.numpy()] if hasattr(returned, "numpy") else [array.numpy() for array in returned]


def computed(network: Network, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return outputs_of(compile_network(network, load_board("local")), inputs)


def convolved(
    data: np.ndarray,
    weights: np.ndarray,
    *,
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
) -> np.ndarray:
    """Of NCHW and OIHW, with pads at the top, left, bottom and right; the groups follow from the weights' shape."""
    top, left, bottom, right = pads
    padded = np.pad(data, [(0, 0), (0, 0), (top, bottom), (left, right)])
    reach = [(size - 1) * apart + 1 for size, apart in zip(weights.shape[2:], dilation, strict=True)]
    windows = sliding_window_view(padded, reach, (2, 3))[..., :: dilation[0], :: dilation[1]]
    windows, groups = windows[:, :, :: stride[0], :: stride[1]], data.shape[1] // weights.shape[1]
    parts = zip(np.split(windows, groups, axis=1), np.split(weights, groups), strict=True)
    found = np.concatenate([np.tensordot(*part, ([1, 4, 5], [1, 2, 3])) for part in parts], axis=3)
    return np.moveaxis(found, 3, 1)


FILES = sorted((SHARED / "models").rglob("*.onnx"))

# Networks with a smaller one of the same layers among the files.
_LARGER = {
    "mobilenet_v1_1.0_224_float",
    "mobilenet_v1_1.0_224_qdq",
    "mobilenet_v2_1.0_224_qdq",
    "retinaface_pytorch_mobilenet0.25_640x640",
}

# The files as parameters of tests that compile them.
NETWORKS = [pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem in _LARGER else ()) for path in FILES]

# Shapes of inputs for networks that leave them open, by file name.
SHAPES = {"retinaface_mnet25_dyn.onnx": {"data": [1, 3, 240, 320]}}


def is_quantised(path: Path) -> bool:
    return any("QuantizeLinear" in node.op_type for node in onnx.load(path, load_external_data=False).graph.node)


def serial_functions(network: Lowered) -> dict[str, int]:
    """The functions that compute value by value on one thread, with their stores; few stores are no loss."""
    stores = {name: stores_of(entry.function).serial_scalar for name, entry in network.functions.items()}
    return {name: count for name, count in stores.items() if count > FEW_STORES}


_DTYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8", "tensor(int8)": "int8", "tensor(int64)": "int64"}


class OnnxruntimeRunner:
    """An ONNX file, or its bytes, on onnxruntime's CPU provider; `shapes` fixes inputs with free dimensions."""

    def __init__(self, path: Path | bytes, threads: int = 1, shapes: Mapping[str, list[int]] | None = None) -> None:
        self._session = cpu_session(path, threads)
        self.inputs = [self._spec(node, shapes or {}) for node in self._session.get_inputs()]
        self.outputs = [self._spec(node, {}) for node in self._session.get_outputs()]
        self.threads = threads

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        names = [output.name for output in self.outputs]
        return dict(zip(names, self._session.run(names, dict(tensors)), strict=True))

    def measure(self, tensors: Tensors, *, repeat: int = 1, number: int = 1, warmup: int = 0) -> Timing:
        timer = timeit.Timer(lambda: self.run(tensors))
        timer.timeit(warmup)
        return Timing.of_seconds([seconds / number for seconds in timer.repeat(repeat, number)])

    @staticmethod
    def _spec(node: onnxruntime.NodeArg, shapes: Mapping[str, list[int]]) -> TensorSpec:
        shape = [size if isinstance(size, int) else -1 for size in node.shape]
        return TensorSpec(name=node.name, shape=shapes.get(node.name, shape), dtype=_DTYPES[node.type])


def run_onnx(model: onnx.ModelProto | Path, *arrays: np.ndarray) -> dict[str, np.ndarray]:
    """The outputs of a model, by name, for its inputs in order."""
    runner = OnnxruntimeRunner(model if isinstance(model, Path) else model.SerializeToString())
    names = [spec.name for spec in runner.inputs]
    return runner.run(dict(zip(names, arrays, strict=True)))
