"""onnxruntime, ncnn, MNN and LiteRT on the processor, loaded by the same program as on boards."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from edgedeploy.base.programs import capture
from edgedeploy.benchmarking.engine_program import ENGINES, EngineError, profile_onnxruntime
from edgedeploy.benchmarking.engines.engine import (
    CannotRunError,
    Engine,
    Loaded,
    NotHereError,
    Once,
    Profile,
    Task,
    profile_of,
)
from edgedeploy.errors import signal_of

# MNN's converter itself. Its wrapper `MNN.tools.mnnconvert` must never be imported: it installs packages with pip,
# at the price of other packages' versions, and reports conversions to a server.
_MNN_CONVERTER = "import sys, _tools; _tools.mnnconvert(sys.argv)"
_CONVERTER_TIMEOUT_S = 300.0


def _load(engine: str, task: Task) -> Loaded:
    try:
        run, outputs = ENGINES[engine](task.network, task.inputs, task.outputs, task.threads)
    except EngineError as error:
        raise CannotRunError(str(error)) from error
    return Loaded(run, lambda: dict(zip(task.outputs, outputs(), strict=True)))


def _profile_onnxruntime(task: Task, count: int) -> Profile:
    prefix = task.folder / "onnxruntime-profile"
    return profile_onnxruntime(task.file, task.inputs, task.threads, prefix, count)


def _profile_mnn(task: Task, count: int) -> Profile:
    """The time between the two calls that MNN's older interface makes before and after each operator."""
    import MNN

    inputs = {}
    for name, array in task.inputs.items():
        if array.dtype != np.float32:
            raise CannotRunError(f"input {name!r} is {array.dtype}: MNN's operators are timed for float32 only")
        data = np.ascontiguousarray(array)
        inputs[name] = MNN.Tensor(array.shape, MNN.Halide_Type_Float, data, MNN.Tensor_DimensionType_Caffe)
    network = MNN.Interpreter(str(task.converted))
    session = network.createSession({"backend": "CPU", "numThread": task.threads, "precision": "normal"})
    found: dict[str, tuple[str, float]] = {}
    begun = 0.0

    def before(_tensors: Any, _operator: Any) -> bool:
        nonlocal begun
        begun = perf_counter()
        return True

    def after(_tensors: Any, operator: Any) -> bool:
        milliseconds = (perf_counter() - begun) * 1e3
        kind, total = found.get(operator.getName(), (operator.getType(), 0.0))
        found[operator.getName()] = kind, total + milliseconds
        return True

    def once() -> Once:
        found.clear()
        for name, data in inputs.items():  # each time: it overwrites them
            network.getSessionInput(session, name).copyFrom(data)
        network.runSessionWithCallBackInfo(session, before, after)
        return found

    return profile_of(once, count)


def convert_for_mnn(task: Task) -> Path:
    """Convert the network with MNN's own converter."""
    target = task.folder / "network.mnn"
    files = ["--modelFile", str(task.file), "--MNNModel", str(target)]
    command = [sys.executable, "-c", _MNN_CONVERTER, "-f", "ONNX", *files, "--bizCode", "edgedeploy"]
    _run_converter("the converter", command, task.folder, target)
    return target


def convert_for_ncnn(task: Task) -> Path:
    """Convert the network with pnnx; returns the file of parameters, with the weights next to it."""
    if task.batch > 1:
        raise CannotRunError("it has no dimension for the batch")
    program = _pnnx()
    source = task.folder / "network.onnx"
    shutil.copyfile(task.file, source)  # pnnx writes next to the file that it reads
    parameters, weights = task.folder / "network.ncnn.param", task.folder / "network.ncnn.bin"
    # Name everything that pnnx writes: some defaults go to the working folder.
    kinds = {"pnnxparam": "p", "pnnxbin": "b", "pnnxpy": "py", "pnnxonnx": "o", "ncnnpy": "npy"}
    others = [f"{option}={task.folder / 'unused'}.{suffix}" for option, suffix in kinds.items()]
    command = [str(program), str(source), "fp16=0", f"ncnnparam={parameters}", f"ncnnbin={weights}", *others]
    _run_converter(program.name, command, task.folder, parameters, weights)
    return parameters


def _pnnx() -> Path:
    """The native program: inside pnnx's Python package, whose own start-up would import PyTorch, or on the path."""
    package = importlib.util.find_spec("pnnx")
    if package and package.origin and (program := Path(package.origin).with_name("pnnx")).is_file():
        return program
    if found := shutil.which("pnnx"):
        return Path(found)
    raise NotHereError(
        "its converter pnnx is not here (`pip install --no-deps pnnx` installs it without PyTorch, which it does not "
        "need for ONNX)"
    )


def _run_converter(name: str, command: list[str], folder: Path, *results: Path) -> None:
    """Run a converter in a folder, and check that it wrote `results`."""
    try:
        done = capture(command, timeout_s=_CONVERTER_TIMEOUT_S, cwd=folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRunError(f"{name} failed: {error}") from error
    missing = [path.name for path in results if not path.is_file()]
    if crash := signal_of(done.returncode):
        raise CannotRunError(f"{name} crashed ({crash})")
    if done.returncode or missing:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        why = lines[-1] if lines else f"it wrote no {', '.join(missing)}"
        raise CannotRunError(f"{name} ended with code {done.returncode}: {why}")


def _engine(name: str, module: str, distribution: str, suffix: str = ".onnx", **more: Any) -> Engine:
    return Engine(name, module, distribution, suffix, partial(_load, name), **more)


ONNXRUNTIME = _engine("onnxruntime", "onnxruntime", "onnxruntime", profile=_profile_onnxruntime)
NCNN = _engine("ncnn", "ncnn", "ncnn", convert=convert_for_ncnn)
MNN = _engine("mnn", "MNN", "MNN", convert=convert_for_mnn, profile=_profile_mnn)
# On processors with arithmetic in half precision; elsewhere they compute in single.
NCNN_HALF = _engine("ncnn-half", "ncnn", "ncnn", convert=convert_for_ncnn, by_default=False)
MNN_HALF = _engine("mnn-half", "MNN", "MNN", convert=convert_for_mnn, by_default=False)
LITERT = _engine("litert", "ai_edge_litert", "ai-edge-litert", ".tflite")
