"""edgedeploy itself: a package through TVM's virtual machine, as `edgedeploy run` runs it."""

from __future__ import annotations

from typing import Any

from edgedeploy.bench.engines.engine import Engine, Loaded, Task


def load(task: Task) -> Loaded:
    """Open the package."""
    from edgedeploy.runtime.session import Session

    session = Session.open(task.package, task.threads)
    call = session.bind(task.inputs)
    last: list[Any] = [None]

    def run() -> None:
        last[0] = call()

    return Loaded(run, lambda: session.read(last[0]))


ENGINE = Engine("edgedeploy", module="edgedeploy", distribution="edgedeploy", suffix=".onnx", load=load)
