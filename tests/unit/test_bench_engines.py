"""Engines of `edgedeploy bench` beyond a package: a graphics processor, a compiler; and their profiles."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import Command
from support.commands import output_of
from support.networks import tiny

from edgedeploy.benchmarking import engines
from edgedeploy.benchmarking.engines import cpu, nvidia, torch
from edgedeploy.benchmarking.engines.engine import Task
from edgedeploy.benchmarking.worker import EngineWorker
from edgedeploy.runtime.profile import FunctionProfile, profile_of_operators, profile_table

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


# `bench --profile`: the time by function of edgedeploy, and by operator of each engine that tells.


def nodes_of_onnxruntime(path: Path, folder: Path) -> dict[str, str]:
    """What onnxruntime's own rewriting makes of a network: operators by name of their nodes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "rewritten.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])  # noqa: TID251
    return {node.name: node.op_type for node in onnx.load(folder / "rewritten.onnx").graph.node}


def test_each_engine_says_what_its_functions_take(command: Command, tmp_path: Path) -> None:
    path, page = tiny(tmp_path / "net.onnx"), tmp_path / "page.html"
    against = ["--against", "onnxruntime,openvino,mnn,ncnn", "--rounds", "1", "--profile"]
    out = output_of(command, "bench", path, *against, "--json", "--report", page)
    rows = {row["engine"]: row for row in json.loads(out)["rows"]}
    assert "functions" not in rows.get("ncnn", {})
    functions = {name: row["functions"] for name, row in rows.items() if name != "ncnn"}
    assert {"edgedeploy", "onnxruntime"} <= set(functions)
    for found in functions.values():
        assert sum(each["share"] for each in found) == pytest.approx(1)
        assert [each["ms"] for each in found] == sorted((each["ms"] for each in found), reverse=True)
    assert any(each.get("operations") and each["bytes"] for each in functions["edgedeploy"])
    told = {each["function"]: each["type"] for each in functions["onnxruntime"]}
    assert told == nodes_of_onnxruntime(path, tmp_path)
    assert all(f"unctions of {name} on net" in page.read_text() for name in functions)


def test_the_terminal_shows_the_longest_and_the_sum_of_the_others() -> None:
    times = {f"layer {index}": ("Conv", [float(index), float(index)]) for index in range(1, 6)}
    found = profile_of_operators(times | {"unused": ("Add", [])})
    assert [each.function for each in found[:2]] == ["layer 5", "layer 4"]
    assert profile_table(found, 2) == [
        ["function", "type", "ms", "share"],
        ["layer 5", "Conv", "5.000", "33.3%"],
        ["layer 4", "Conv", "4.000", "26.7%"],
        ["3 others", "", "6.000", "40.0%"],
    ]
    assert profile_table([FunctionProfile("\x1b[31m", 1.0, 1.0, None, None, None)])[1][0] != "\x1b[31m"
