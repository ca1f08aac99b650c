"""Every operator, as every opset from 7 to 21 writes it, gives onnxruntime's values when it is compiled."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest
import tvm_ffi
from support.onnx_operators import CASES, Case
from support.running import computed

from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.network import Network
from edgedeploy.model.onnxruntime_session import cpu_session

pytestmark = pytest.mark.compiles

# Cases that are compiled as one network.
_TOGETHER = 40

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
    return computed(network, {s.name: inputs[s.name] for s in network.inputs})


def _compare(found: list[np.ndarray], wanted: list[np.ndarray], opset: int) -> None:
    assert [(each.shape, each.dtype) for each in found] == [(each.shape, each.dtype) for each in wanted], opset
    for array, expected in zip(found, wanted, strict=True):
        largest = np.abs(expected).max(initial=0)
        assert np.abs(array.astype(np.float64) - expected).max(initial=0) <= 1e-5 * largest + 1e-6, opset


def _beside_each_other(models: list[onnx.ModelProto]) -> onnx.ModelProto:
    """One model of several, whose values have names of their own."""
    whole = onnx.ModelProto()
    for number, model in enumerate(models):
        whole.MergeFrom(onnx.compose.add_prefix(model, f"{number} "))
    del whole.opset_import[len(models[0].opset_import) :]
    whole.graph.name = models[0].graph.name
    return whole


@cache
def _newest(opset: int, first: int) -> dict[str, tuple[list[np.ndarray], list[np.ndarray]]]:
    """Of some cases at once, which are compiled as one network: their outputs, and onnxruntime's."""
    cases = [case for case in CASES if case.opsets[-1] == opset][first : first + _TOGETHER]
    models = [case.model(opset) for case in cases]
    expected = [_expected(model) for model in models]
    inputs = {f"{number} {name}": array for number, (each, _) in enumerate(expected) for name, array in each.items()}
    with TemporaryDirectory() as folder:
        found = iter(_compiled(_read(_beside_each_other(models), Path(folder)), inputs))
    return {
        case.name: ([next(found) for _ in wanted], wanted) for case, (_, wanted) in zip(cases, expected, strict=True)
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_newest_form_of_an_operator_gives_onnxruntimes_values(case: Case) -> None:
    newest = case.opsets[-1]
    place = [each for each in CASES if each.opsets[-1] == newest].index(case)
    _compare(*_newest(newest, place - place % _TOGETHER)[case.name], newest)


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
