"""onnxruntime's CPU provider, inputs bound in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgedeploy.benchmarking.engines.engine import Engine, Loaded, Profile, Task
from edgedeploy.benchmarking.peer import profile_onnxruntime
from edgedeploy.onnxruntime_session import cpu_session


def load(task: Task) -> Loaded:
    """Make a session as it is by default: with all graph optimisations."""
    session = cpu_session(task.file, task.threads, exact=False)
    binding, outputs = bound(session, task)

    def run() -> None:
        session.run_with_iobinding(binding)

    return Loaded(run, outputs)


def bound(session: Any, task: Task) -> tuple[Any, Callable[[], dict[str, np.ndarray]]]:
    """A session's inputs and outputs in place, and what gives the outputs of the last inference."""
    binding = session.io_binding()
    for name, array in task.inputs.items():
        binding.bind_cpu_input(name, array)
    for name in task.outputs:
        binding.bind_output(name)
    return binding, lambda: dict(zip(task.outputs, binding.copy_outputs_to_cpu(), strict=True))


def profile(task: Task, count: int) -> Profile:
    """The time of each node, by onnxruntime's own profiler."""
    prefix = task.folder / "onnxruntime-profile"
    session = cpu_session(task.file, task.threads, exact=False, profile=prefix)
    return profile_onnxruntime(session, task.inputs, count)


ENGINE = Engine(
    "onnxruntime",
    module="onnxruntime",
    distribution="onnxruntime",
    suffix=".onnx",
    load=load,
    profile=profile,
)
