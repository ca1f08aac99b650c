"""Operators of onnxruntime's own domain, and what it writes into files of older opsets, give its values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.running import outputs_of

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.target.board import load_board

RANDOM = np.random.default_rng(3)

IMAGE, KERNELS = (2, 3, 6, 5), (4, 3, 3, 3)
ROWS, ROW = (2, 7, 8), (8,)


def saved(path: Path, operator: str, shapes: list[Any], outputs: int, domain: str, attributes: dict[str, Any]) -> Path:
    names = [f"given{place}" if shape else "" for place, shape in enumerate(shapes)]
    made = [f"made{place}" if place in (0, outputs - 1) else "" for place in range(outputs)]
    node = helper.make_node(operator, names, made, domain=domain, name="it", **attributes)
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip(names, shapes, strict=True)
        if shape
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in made if name]
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "test", values, results)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("operator", "shapes", "attributes"),
    [
        ("FusedConv", [IMAGE, KERNELS, (4,)], {"activation": "Relu", "pads": [1] * 4, "kernel_shape": [3, 3]}),
        ("FusedConv", [IMAGE, KERNELS, (4,), (2, 4, 4, 3)], {"activation": "Clip", "activation_params": [-0.5, 0.5]}),
        ("FusedConv", [IMAGE, KERNELS], {"activation": "LeakyRelu", "activation_params": [0.2]}),
        ("FusedConv", [IMAGE, KERNELS], {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}),
        ("FusedGemm", [(3, 5), (4, 5), (4,)], {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2}),
        ("FusedMatMul", [(2, 5, 3), (2, 4, 5)], {"transA": 1, "transB": 1, "alpha": 0.25}),
        ("Gelu", [ROWS], {}),
        ("BiasGelu", [ROWS, ROW], {}),
        ("FastGelu", [ROWS], {}),
        ("FastGelu", [ROWS, ROW], {}),
        ("SkipLayerNormalization", [ROWS, ROWS, ROW, ROW, ROW], {"epsilon": 1e-5}),
        ("SkipLayerNormalization", [ROWS, ROWS, ROW], {}),
        ("SkipSimplifiedLayerNormalization", [ROWS, ROWS, ROW, ROW], {"epsilon": 1e-5}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_contrib_operators_agree(operator: str, shapes: list[Any], attributes: dict[str, Any], tmp_path: Path) -> None:
    outputs = 4 if operator.startswith("Skip") else 1
    check(saved(tmp_path / "net.onnx", operator, shapes, outputs, "com.microsoft", attributes))


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("operator", "shapes"), [("LayerNormalization", [ROWS, ROW, ROW]), ("SimplifiedLayerNormalization", [ROWS, ROW])]
)
def test_normalisation_is_known_in_files_of_older_opsets(operator: str, shapes: list[Any], tmp_path: Path) -> None:
    check(saved(tmp_path / "net.onnx", operator, shapes, 1, "", {"axis": -1, "epsilon": 1e-5}))


def test_an_operator_that_asks_for_more_is_refused_by_name_and_domain(tmp_path: Path) -> None:
    path = saved(tmp_path / "net.onnx", "FusedConv", [IMAGE, KERNELS], 1, "com.microsoft", {"activation": "Swish"})
    with pytest.raises(ModelError, match=r"operator com\.microsoft::FusedConv is not supported: node 'it' needs it"):
        read_onnx(path)


def check(path: Path) -> None:
    network = read_onnx(path)
    inputs = {spec.name: RANDOM.standard_normal(spec.shape).astype(np.float32) for spec in network.inputs}
    found = outputs_of(compile_network(network, load_board("local")), inputs)
    for array, wanted in zip(found, network.reference(inputs).values(), strict=True):
        assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(array, wanted, rtol=0, atol=1e-5)
