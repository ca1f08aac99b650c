"""Float ONNX networks of the development material give onnxruntime's outputs on an OpenCL device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shared_networks import FILES, SHAPES, is_quantised

from edgedeploy.build import build
from edgedeploy.runtime.session import Session
from edgedeploy.source import find_source

FLOAT = [path for path in FILES if not is_quantised(path)]


# PoCL compiles a kernel for a second or two.
@pytest.mark.slow
@pytest.mark.parametrize("path", FLOAT, ids=lambda path: path.stem)
def test_outputs_agree(opencl: Any, path: Path, tmp_path: Path) -> None:
    source = find_source(str(path), {name: tuple(shape) for name, shape in SHAPES.get(path.name, {}).items()})
    built = build(source, "local-opencl", tmp_path / "net.tar.gz")
    assert built.manifest.selftest.relative <= 1e-3
    assert built.error is not None
    assert built.error <= 1
    network = source.read()
    random = np.random.default_rng(7)
    inputs = {spec.name: random.standard_normal(spec.shape).astype(spec.dtype) for spec in network.inputs}
    found, expected = Session.open(built.path).run(inputs), network.reference(inputs)
    for name, wanted in expected.items():
        assert np.abs(found[name] - wanted).max() <= 1e-3 * np.abs(wanted).max() + 1e-6
