"""Engines of `edgedeploy bench` that need more than a package: a graphics processor, a compiler, another package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.networks import tiny

from edgedeploy.benchmarking import engines
from edgedeploy.benchmarking.engines import cpu, nvidia, torch
from edgedeploy.benchmarking.engines.engine import Task
from edgedeploy.benchmarking.worker import EngineWorker

pytestmark = pytest.mark.compiles

GPU = ["tensorrt", "onnxruntime-gpu"]


def test_engines_of_graphics_processors_and_compilers_are_measured_where_they_are_named() -> None:
    by_default = [engine.name for engine in engines.find_peers(None)]
    assert by_default[:6] == ["onnxruntime", "openvino", "ncnn", "mnn", "litert", "torch"]
    assert {*GPU, "torch-compile"}.isdisjoint(by_default)
    assert [engine.name for engine in engines.find_peers(GPU)] == GPU


@pytest.mark.skipif(nvidia.missing() is None, reason="there is a graphics processor here")
def test_without_a_graphics_processor_its_engines_are_left_out_with_the_reason() -> None:
    for engine in engines.find_peers(GPU):
        assert "no NVIDIA graphics processor" in str(engine.absence())


def test_with_a_driver_what_is_missing_is_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(nvidia, "_DEVICES", (str(tmp_path / "nvidiactl"),))
    absent = [replace(engine, distribution="no-such-package") for engine in (nvidia.TENSORRT, nvidia.ONNXRUNTIME_GPU)]
    assert ["edgedeploy[bench-gpu]" in str(engine.absence()) for engine in absent] == [True, True]


def test_a_module_of_another_package_is_not_the_engines_own() -> None:
    """onnxruntime and onnxruntime-gpu have one module."""
    assert cpu.ONNXRUNTIME.installed()
    assert not replace(cpu.ONNXRUNTIME, distribution="onnxruntime-of-nobody").installed()


def test_without_a_compiler_torch_compile_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "needs a C++ compiler" in str(torch.COMPILED.absence())
    assert "C++" not in str(torch.ENGINE.absence())


@pytest.mark.slow
@pytest.mark.skipif(torch.COMPILED.absence() is not None, reason="PyTorch or a compiler is not here")
def test_what_torch_compiles_gives_the_same_numbers_and_says_how_long_that_took(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    inputs = {"data": np.ones((1, 3, 8, 8), np.float32)}
    task = Task(tiny(tmp_path / "net.onnx"), tmp_path / "none", inputs, ["globalaveragepool2"], 1, tmp_path / "scratch")
    with EngineWorker(torch.COMPILED, task) as worker, EngineWorker(torch.ENGINE, task) as plain:
        costs = worker.costs()
        assert costs.compile_s is not None
        assert costs.first_s is not None
        assert costs.compile_s > costs.first_s
        assert plain.costs().compile_s is None
        [(_, found)], [(_, wanted)] = worker.outputs().items(), plain.outputs().items()
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
