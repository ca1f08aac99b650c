"""The operators of tails give what onnxruntime gives, on the ONNX project's own cases of them."""

import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgedeploy.frontends.onnx.tail import _block
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.model.tail.operators import OPERATORS
from edgedeploy.model.tail.program import Tail
from edgedeploy.model.tensors import TensorSpec

pytestmark = pytest.mark.slow

# Types of numbers that numpy has.
_TYPES = {
    TensorProto.DataType.Value(name)
    for name in ["FLOAT", "DOUBLE", "FLOAT16", "BOOL", *(f"{u}INT{n}" for u in ("", "U") for n in (8, 16, 32, 64))]
}

_READ = 21  # the version that is stated instead


Cases = dict[str, list[tuple[str, onnx.ModelProto, list[np.ndarray]]]]


def _evaluated(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    outputs = [
        TensorSpec(
            name=value.name,
            shape=[-1] * len(value.type.tensor_type.shape.dim),
            dtype=helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name,
        )
        for value in model.graph.output
    ]
    block = _block(model.graph.node, [spec.name for spec in outputs], model.graph.initializer)
    return list(Tail(block, outputs).run(inputs).values())


@pytest.fixture(scope="module")
def cases() -> Cases:
    from onnx.backend.test.loader import load_model_tests

    found: Cases = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        everything = load_model_tests(kind="node")
    for case in everything:
        graph, nodes = case.model.graph, list(case.model.graph.node)
        types = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
        if len(nodes) == 1 and nodes[0].op_type in OPERATORS and types <= _TYPES and case.data_sets:
            found.setdefault(nodes[0].op_type, []).append((case.name, case.model, list(case.data_sets[0][0])))
    return found


@pytest.mark.parametrize("operator", sorted(OPERATORS.keys() - {"TFLite_Detection_PostProcess"}))
def test_operators_give_onnxruntimes_values(operator: str, cases: Cases) -> None:
    compared = 0
    for name, model, given in cases[operator]:
        arrays = [numpy_helper.to_array(each) if isinstance(each, onnx.TensorProto) else each for each in given]
        inputs = {value.name: np.asarray(array) for value, array in zip(model.graph.input, arrays, strict=False)}
        # onnx states versions of operator sets that onnxruntime does not read yet.
        if onnx.defs.get_schema(operator).since_version > _READ:
            model.opset_import[0].version = _READ
        model.ir_version = min(model.ir_version, 10)
        try:
            wanted = cpu_session(model.SerializeToString()).run(None, inputs)
        except Exception:  # a newer opset than onnxruntime's, or a type that it lacks
            continue
        for array, expected in zip(_evaluated(model, inputs), wanted, strict=True):
            assert (array.shape, array.dtype) == (expected.shape, expected.dtype), name
            np.testing.assert_allclose(array, expected, rtol=2e-3 if array.dtype == np.float16 else 1e-6, err_msg=name)
        compared += 1
    assert compared, "no case of it was compared"


# What onnx's own cases leave out.
FURTHER = {
    "a slice backwards from before the beginning": ("Slice", [np.eye(5), *np.array([[-9], [-100], [0], [-1]])], {}),
    "a slice backwards of nothing": ("Slice", [np.zeros((0, 4)), *np.array([[-1], [-9], [0], [-1]])], {}),
    "fewer places than rows": ("GatherElements", [np.eye(3, 4), np.array([[0, -1], [1, 2]])], {"axis": 1}),
    "places in one row": ("GatherElements", [np.eye(3, 4), np.array([[0, -1]])], {"axis": -1}),
}


@pytest.mark.parametrize("case", FURTHER)
def test_further_cases_give_onnxruntimes_values(case: str) -> None:
    operator, inputs, attributes = FURTHER[case]
    values = [
        helper.make_tensor_value_info(f"x{place}", helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for place, each in enumerate(inputs)
    ]
    node = helper.make_node(operator, [value.name for value in values], ["y"], **attributes)
    graph = helper.make_graph([node], "g", values, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = cpu_session(model.SerializeToString())
    [wanted] = session.run(None, dict(zip([value.name for value in values], inputs, strict=True)))
    np.testing.assert_array_equal(OPERATORS[operator](inputs, attributes), wanted, strict=True)
