"""edgedeploy itself: a package through TVM's virtual machine, as `edgedeploy run` runs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from edgedeploy.benchmarking.engines.engine import Engine, Loaded, Profile, Task, profile_of_functions


def _load(task: Task) -> Loaded:
    from edgedeploy.runtime.session import Session

    session = Session.open(task.package, task.threads)
    call = session.bind(task.inputs)
    last: list[Any] = [None]

    def run() -> None:
        last[0] = call()

    def outputs() -> dict[str, np.ndarray]:
        return session.read(last[0])

    if session.device_name is None:
        return Loaded(run, outputs)
    seconds = [0.0]

    def run_on_device() -> None:
        seconds[0] = session.kernel_seconds(run)

    return Loaded(run_on_device, outputs, session.device_name, lambda: seconds[0])


def _profile(task: Task, count: int) -> Profile:
    from edgedeploy.runtime.session import Session

    return profile_of_functions(Session.open(task.package, task.threads), task.inputs, count)


_IMPORTS = ("tvm", "edgedeploy.runtime.session")
ENGINE = Engine("edgedeploy", "edgedeploy", "edgedeploy", ".onnx", _load, profile=_profile, imports=_IMPORTS)
# The same for packages that were built without tuning records.
UNTUNED = replace(ENGINE, name="edgedeploy-untuned")
