"""PyTorch on the CPU, on networks that onnx2torch makes of ONNX files: as it is, and compiled by `torch.compile`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Loaded, Once, Profile, Task, profile_of
from edgedeploy.extras import is_installed


def load(task: Task) -> Loaded:
    """Convert the network into a module, which is run as it is, without recording gradients."""
    run, outputs = _runnable(task, lambda module: module)
    return Loaded(run, outputs)


def profile(task: Task, count: int) -> Profile:
    """The time of each operator without those that it calls, by PyTorch's profiler."""
    return _profiled(_runnable(task, lambda module: module)[0], count)


def load_compiled(task: Task) -> Loaded:
    """Convert the network into a module and compile it, without what earlier runs left."""
    import torch

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(task.folder / "inductor")
    run, outputs = _runnable(task, torch.compile)
    started = perf_counter()
    run()  # which compiles
    return Loaded(run, outputs, compile_s=perf_counter() - started)


def profile_compiled(task: Task, count: int) -> Profile:
    """As `profile`, of the compiled module."""
    import torch

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(task.folder / "inductor")
    return _profiled(_runnable(task, torch.compile)[0], count)


def _profiled(run: Callable[[], None], count: int) -> Profile:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    def once() -> Once:
        with profiler(activities=[ProfilerActivity.CPU]) as taken:
            run()
        times = {each.key: each.self_cpu_time_total * 1e-3 for each in taken.key_averages()}
        return {name: ("", milliseconds) for name, milliseconds in times.items() if milliseconds}

    return profile_of(once, count)


def _runnable(
    task: Task, prepared: Callable[[Any], Any]
) -> tuple[Callable[[], None], Callable[[], dict[str, np.ndarray]]]:
    """One inference, and the outputs of the last one, of the module that `prepared` makes of the network's."""
    if not is_installed("onnx2torch"):
        raise CannotRunError("its converter onnx2torch is not here (`pip install 'edgedeploy[bench-torch]'`)")
    import onnx
    import torch
    from onnx2torch import convert

    torch.set_num_threads(task.threads)
    model = onnx.load(task.file)
    order = [value.name for value in model.graph.input if value.name in task.inputs]
    module = prepared(convert(model).eval())
    arguments = [torch.from_numpy(task.inputs[name]) for name in order]
    last: list[Any] = [None]

    def run() -> None:
        with torch.inference_mode():
            last[0] = module(*arguments)

    def outputs() -> dict[str, np.ndarray]:
        values = last[0] if isinstance(last[0], (list, tuple)) else [last[0]]
        return {name: value.numpy() for name, value in zip(task.outputs, values, strict=True)}

    return run, outputs


def _no_compiler() -> str | None:
    """Why networks cannot be compiled here."""
    if any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++")):
        return None
    return "torch.compile needs a C++ compiler, and there is none here"


ENGINE = Engine(
    "torch",
    module="torch",
    distribution="torch",
    suffix=".onnx",
    load=load,
    profile=profile,
    extra="bench-torch",
    imports=("onnx", "onnx2torch"),
)
COMPILED = replace(
    ENGINE, name="torch-compile", load=load_compiled, profile=profile_compiled, lack=_no_compiler, by_default=False
)
