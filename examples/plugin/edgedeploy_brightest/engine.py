"""ONNX's reference evaluator as an engine of `edgedeploy bench`: numpy, one operator after another."""

import numpy as np

from edgedeploy.benchmarking.engines.engine import Engine, Loaded, Task


def load(task: Task) -> Loaded:
    """The network, ready to run."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(task.file))
    found: list[np.ndarray] = []

    def run() -> None:
        found[:] = evaluator.run(None, task.inputs)

    return Loaded(run, lambda: dict(zip(task.outputs, found, strict=True)))


ENGINE = Engine("onnx-reference", module="onnx.reference", distribution="onnx", suffix=".onnx", load=load)
