"""Layers of ncnn's networks compute what ncnn computes, and compiled what onnxruntime does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.ncnn_cases import CASES, Case, by_name
from support.ncnn_files import run_in_ncnn
from support.onnxruntime_runner import run_onnx
from support.running import outputs_of

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.ncnn import FORMAT
from edgedeploy.selftest.tolerance import TOLERANCE
from edgedeploy.target.board import load_board


@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_a_layer_computes_what_ncnn_computes(case: Case, tmp_path: Path) -> None:
    path = case.write(tmp_path)
    model = FORMAT.convert(FORMAT.files(path), case.shapes).model
    found = run_onnx(model, *(array[None] for array in case.tensors.values()))
    assert list(found) == case.names
    for array, wanted in zip(found.values(), run_in_ncnn(path, case.tensors, case.names).values(), strict=True):
        assert array.shape[1:] == wanted.shape
        np.testing.assert_allclose(array[0], wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=by_name)
def test_a_compiled_layer_computes_what_onnxruntime_does(case: Case, tmp_path: Path) -> None:
    network = FORMAT.read(FORMAT.files(case.write(tmp_path)), case.shapes)
    inputs = {name: array[None] for name, array in case.tensors.items()}
    found = outputs_of(compile_network(network, load_board("local")), inputs)
    relative, absolute = TOLERANCE
    for array, wanted in zip(found, network.reference(inputs).values(), strict=True):
        assert np.abs(array - wanted).max() <= relative * np.abs(wanted).max() + absolute
