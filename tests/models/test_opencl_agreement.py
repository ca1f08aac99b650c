"""Float ONNX networks of the development material give onnxruntime's outputs on an OpenCL device.

They do in this process, and on a virtual NUC, where its agent runs them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.agreement import random_inputs
from support.shared_networks import FILES, SHAPES, is_quantised
from support.virtual_boards import Start

from edgedeploy.building import build
from edgedeploy.runtime.interface import Runner
from edgedeploy.runtime.opening import Place, opened
from edgedeploy.runtime.session import Session
from edgedeploy.target.opencl.profile import OpenCL
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import Source, find_source

FLOAT = [path for path in FILES if not is_quantised(path)]


def source_of(path: Path) -> Source:
    return find_source(str(path), {name: tuple(shape) for name, shape in SHAPES.get(path.name, {}).items()})


def assert_agrees(runner: Runner, source: Source) -> None:
    network = source.read()
    inputs = random_inputs(network, 7)
    found, expected = runner.run(inputs), network.reference(inputs)
    relative, absolute = OpenCL.tolerance
    assert relative <= 1e-3
    for name, wanted in expected.items():
        assert np.abs(found[name] - wanted).max() <= relative * np.abs(wanted).max() + absolute


# PoCL compiles a kernel for a second or two.
@pytest.mark.slow
@pytest.mark.parametrize("path", FLOAT, ids=lambda path: path.stem)
def test_outputs_agree_in_this_process(opencl: Any, path: Path, tmp_path: Path) -> None:
    source = source_of(path)
    built = build(source, resolve("local-opencl"), tmp_path / "net.tar.gz")
    assert built.error is not None
    assert built.error <= 1
    assert_agrees(Session.open(built.path), source)


@pytest.mark.slow
@pytest.mark.parametrize("path", FLOAT, ids=lambda path: path.stem)
def test_outputs_agree_on_a_board(start: Start, path: Path, tmp_path: Path) -> None:
    source = source_of(path)
    start("nuc-opencl")
    built = build(source, resolve("nuc-opencl"), tmp_path / "net.tar.gz", checks="none")
    with opened(built.path, Place(resolve("nuc-opencl"), virtual=True)) as network:
        assert_agrees(network.runner, source)
