"""MNN, on networks that its own converter makes of ONNX files."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from edgedeploy.benchmarking.engines.conversion import convert as run_converter
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Loaded, Once, Profile, Task, profile_of

# The converter itself. Its wrapper `MNN.tools.mnnconvert` must never be imported: it installs packages with pip,
# at the price of other packages' versions, and reports conversions to a server.
_CONVERTER = "import sys, _tools; _tools.mnnconvert(sys.argv)"


def load(task: Task) -> Loaded:
    """Convert the network and load it as a module: the older session interface overwrites its own inputs."""
    target = task.converted or convert(task)

    import MNN.expr as expr
    import MNN.nn as nn

    # On CPUs "normal" is single precision.
    settings = {"backend": "CPU", "numThread": task.threads, "precision": "normal"}
    runtime = nn.create_runtime_manager((settings,))
    module = nn.load_module_from_file(
        str(target), list(task.inputs), task.outputs, runtime_manager=runtime, shape_mutable=False
    )
    kinds = {"float32": expr.float, "int32": expr.int, "uint8": expr.uint8, "int8": expr.int8, "int64": expr.int64}
    inputs = []
    for name, array in task.inputs.items():
        if array.dtype.name not in kinds:
            raise CannotRunError(f"input {name!r} is {array.dtype}, which MNN's Python interface does not take")
        inputs.append(expr.const(array, list(array.shape), expr.NCHW, kinds[array.dtype.name]))
    last: list[Any] = [None]

    def run() -> None:
        last[0] = module.onForward(inputs)

    def outputs() -> dict[str, np.ndarray]:
        values = zip(task.outputs, last[0], strict=True)
        return {name: np.array(_plain(expr, value).read()) for name, value in values}

    return Loaded(run, outputs)


def profile(task: Task, count: int) -> Profile:
    """The time between the two calls that MNN's older interface makes before and after each operator."""
    import MNN

    for name, array in task.inputs.items():
        if array.dtype != np.float32:
            raise CannotRunError(f"input {name!r} is {array.dtype}, of which MNN's operators are not timed")
    inputs = {
        name: MNN.Tensor(
            array.shape, MNN.Halide_Type_Float, np.ascontiguousarray(array), MNN.Tensor_DimensionType_Caffe
        )
        for name, array in task.inputs.items()
    }
    network = MNN.Interpreter(str(task.converted or convert(task)))
    session = network.createSession({"backend": "CPU", "numThread": task.threads, "precision": "normal"})
    kinds: dict[str, str] = {}
    sums: dict[str, float] = defaultdict(float)
    begun = 0.0

    def before(_tensors: Any, _operator: Any) -> bool:
        nonlocal begun
        begun = perf_counter()
        return True

    def after(_tensors: Any, operator: Any) -> bool:
        name = operator.getName()
        sums[name] += (perf_counter() - begun) * 1e3
        kinds[name] = operator.getType()
        return True

    def once() -> Once:
        sums.clear()
        for name, data in inputs.items():  # each time: it overwrites them
            network.getSessionInput(session, name).copyFrom(data)
        network.runSessionWithCallBackInfo(session, before, after)
        return {name: (kinds[name], milliseconds) for name, milliseconds in sums.items()}

    return profile_of(once, count)


def convert(task: Task) -> Path:
    """Have MNN's converter write the network."""
    target = task.folder / "network.mnn"
    files = ["--modelFile", str(task.file), "--MNNModel", str(target)]
    command = [sys.executable, "-c", _CONVERTER, "-f", "ONNX", *files, "--bizCode", "edgedeploy"]
    run_converter(command, task.folder, (target,))
    return target


def _plain(expr: Any, value: Any) -> Any:
    """An output in the order of its dimensions, where MNN would give channels in blocks of four."""
    return expr.convert(value, expr.NCHW) if value.data_format == expr.NC4HW4 else value


ENGINE = Engine("mnn", module="MNN", distribution="MNN", suffix=".onnx", load=load, convert=convert, profile=profile)
