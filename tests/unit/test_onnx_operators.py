"""Every operator, as every opset from 7 to 21 writes it, gives onnxruntime's values when it is compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm_ffi
from support.onnx_operators import CASES, Case
from support.running import outputs_of

from edgedeploy.board import load_board
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.network import Network
from edgedeploy.onnxruntime_session import cpu_session

pytestmark = pytest.mark.compiles

_DTYPES = {"tensor(float)": "float32", "tensor(int32)": "int32"}


def _expected(model: onnx.ModelProto) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Seeded inputs of a model, and what onnxruntime makes of them."""
    session = cpu_session(model.SerializeToString())
    random = np.random.default_rng(0)
    inputs = {
        each.name: (random.standard_normal(each.shape) * (5 if "int" in each.type else 1)).astype(_DTYPES[each.type])
        for each in session.get_inputs()
    }
    return inputs, session.run(None, inputs)


def _read(model: onnx.ModelProto, folder: Path) -> Network:
    onnx.save(model, folder / "net.onnx")
    return read_onnx(folder / "net.onnx")


def _compiled(network: Network, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    return outputs_of(compile_network(network, load_board("local")), {s.name: inputs[s.name] for s in network.inputs})


def _compare(found: list[np.ndarray], wanted: list[np.ndarray], opset: int) -> None:
    assert [(each.shape, each.dtype) for each in found] == [(each.shape, each.dtype) for each in wanted], opset
    for array, expected in zip(found, wanted, strict=True):
        largest = np.abs(expected).max(initial=0)
        assert np.abs(array.astype(np.float64) - expected).max(initial=0) <= 1e-5 * largest + 1e-6, opset


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_newest_form_of_an_operator_gives_onnxruntimes_values(case: Case, tmp_path: Path) -> None:
    newest = case.opsets[-1]
    model = case.model(newest)
    inputs, wanted = _expected(model)
    _compare(_compiled(_read(model, tmp_path), inputs), wanted, newest)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_opsets_form_of_an_operator_gives_onnxruntimes_values(case: Case, tmp_path: Path) -> None:
    known: list[tuple[Network, list[np.ndarray]]] = []
    for opset in case.opsets:
        model = case.model(opset)
        inputs, wanted = _expected(model)
        network = _read(model, tmp_path)
        # What is imported as the very same module need not be compiled again.
        found = next(
            (each for same, each in known if tvm_ffi.structural_equal(same.module, network.module, True)), None
        )
        if found is None:
            found = _compiled(network, inputs)
            known.append((network, found))
        _compare(found, wanted, opset)


def test_all_opsets_and_the_operators_of_common_networks_are_there() -> None:
    assert {opset for case in CASES for opset in case.opsets} == set(range(7, 22))
    built = {node.op_type for case in CASES for node in case.model(case.opsets[-1]).graph.node}
    common = (
        "BatchNormalization Clip Concat Conv ConvTranspose Flatten Gemm GlobalAveragePool HardSwish If MatMul MaxPool"
    )
    assert built >= {*common.split(), "Pad", "ReduceMean", "Reshape", "Resize", "Slice", "Softmax", "Split", "Upsample"}
