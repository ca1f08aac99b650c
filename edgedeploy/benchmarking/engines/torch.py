"""PyTorch on the CPU, on networks that onnx2torch makes of ONNX files: as it is, and compiled by `torch.compile`."""

from __future__ import annotations

import os
import shutil
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from edgedeploy.base.extras import is_installed
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Loaded, Once, Profile, Task, profile_of


def _load(task: Task, *, compiled: bool) -> Loaded:
    """Convert the network into a module, without recording gradients; compile it, without results of earlier runs."""
    if not is_installed("onnx2torch"):
        raise CannotRunError("its converter onnx2torch is not here (`pip install 'edgedeploy[bench-torch]'`)")
    import onnx
    import torch
    from onnx2torch import convert

    torch.set_num_threads(task.threads)
    model = onnx.load(task.file)
    order = [value.name for value in model.graph.input if value.name in task.inputs]
    module: Any = convert(model).eval()
    if compiled:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(task.folder / "inductor")
        module = torch.compile(module)
    arguments = [torch.from_numpy(task.inputs[name]) for name in order]
    last: list[Any] = [None]

    def run() -> None:
        with torch.inference_mode():
            last[0] = module(*arguments)

    def outputs() -> dict[str, np.ndarray]:
        values = last[0] if isinstance(last[0], (list, tuple)) else [last[0]]
        return {name: value.numpy() for name, value in zip(task.outputs, values, strict=True)}

    started = perf_counter()
    if compiled:
        run()  # which compiles
    return Loaded(run, outputs, compile_s=perf_counter() - started if compiled else None)


def _profile(task: Task, count: int, *, compiled: bool) -> Profile:
    """The time of each operator without the operators that it calls, by PyTorch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    run = _load(task, compiled=compiled).run

    def once() -> Once:
        with profile(activities=[ProfilerActivity.CPU]) as taken:
            run()
        times = {each.key: each.self_cpu_time_total * 1e-3 for each in taken.key_averages()}
        return {name: ("", milliseconds) for name, milliseconds in times.items() if milliseconds}

    return profile_of(once, count)


def _no_compiler() -> str | None:
    if any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++")):
        return None
    return "torch.compile needs a C++ compiler, and none is installed"


def _engine(name: str, *, compiled: bool, **more: Any) -> Engine:
    load, profile = partial(_load, compiled=compiled), partial(_profile, compiled=compiled)
    more |= {"extra": "bench-torch", "imports": ("onnx", "onnx2torch")}
    return Engine(name, "torch", "torch", ".onnx", load, profile=profile, **more)


ENGINE = _engine("torch", compiled=False)
COMPILED = _engine("torch-compile", compiled=True, lack=_no_compiler, by_default=False)
