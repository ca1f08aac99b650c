"""ONNX networks in bfloat16 are computed in float32."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from support.networks import Graph
from support.running import outputs_of

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.board import load_board

RANDOM = np.random.default_rng(3)
NARROW, WIDE = TensorProto.BFLOAT16, TensorProto.FLOAT


def narrow(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(ml_dtypes.bfloat16)


def outputs(path: Path, data: np.ndarray) -> list[np.ndarray]:
    return outputs_of(compile_network(read_onnx(path), load_board("local")), {"data": data})


@pytest.mark.compiles
def test_weights_in_bfloat16_keep_their_values(tmp_path: Path) -> None:
    graph = Graph()
    weights, bias = (graph.node("Cast", graph.weight(narrow(*shape)), to=WIDE) for shape in ((32, 16), (16,)))
    made = graph.node("Add", graph.node("MatMul", graph.input("data", [4, 32]), weights), bias)
    path, data = graph.save(tmp_path / "net.onnx", made), RANDOM.standard_normal((4, 32)).astype(np.float32)
    [wanted] = cpu_session(path.read_bytes()).run(None, {"data": data})
    [found] = outputs(path, data)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.compiles
def test_a_network_in_bfloat16_takes_and_gives_float32(tmp_path: Path) -> None:
    graph = Graph(opset=21)
    made = graph.node(
        "Add", graph.node("MatMul", graph.input("data", [4, 32], NARROW), graph.weight(narrow(32, 16))), "c"
    )
    graph.nodes.insert(0, helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(narrow(16))))
    rounded = graph.node("Cast", graph.node("Cast", made, to=WIDE), to=NARROW)
    model = graph.model(graph.node("Max", rounded, graph.node("CastLike", rounded, made)))
    model.graph.output[0].type.tensor_type.elem_type = NARROW
    onnx.save(model, tmp_path / "net.onnx")
    data = narrow(4, 32)
    [wanted] = ReferenceEvaluator(model).run(None, {"data": data})
    [spec] = read_onnx(tmp_path / "net.onnx").inputs
    [found] = outputs(tmp_path / "net.onnx", data.astype(np.float32))
    assert (spec.dtype, found.dtype, found.shape) == ("float32", np.float32, wanted.shape)
    np.testing.assert_allclose(found, wanted.astype(np.float32), rtol=0, atol=2**-6 * np.abs(found).max())


def test_a_malformed_weight_in_bfloat16_is_named(tmp_path: Path) -> None:
    graph = Graph(opset=21)
    path = graph.save(
        tmp_path / "net.onnx", graph.node("Add", graph.input("data", [4], NARROW), graph.weight(narrow(4)))
    )
    model = onnx.load(path)
    model.graph.initializer[0].raw_data = b"123"
    onnx.save(model, path)
    with pytest.raises(ModelError, match="weight 'w0' is malformed"):
        read_onnx(path)
