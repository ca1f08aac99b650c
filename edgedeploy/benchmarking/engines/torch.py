"""PyTorch on the CPU, on networks that onnx2torch makes of ONNX files."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Loaded, Task


def load(task: Task) -> Loaded:
    """Convert the network into a module, which is run as it is, without recording gradients."""
    if importlib.util.find_spec("onnx2torch") is None:
        raise CannotRunError("its converter onnx2torch is not here (`pip install 'edgedeploy[bench-torch]'`)")
    import onnx
    import torch
    from onnx2torch import convert

    torch.set_num_threads(task.threads)
    model = onnx.load(task.file)
    order = [value.name for value in model.graph.input if value.name in task.inputs]
    module = convert(model).eval()
    arguments = [torch.from_numpy(task.inputs[name]) for name in order]
    last: list[Any] = [None]

    def run() -> None:
        with torch.inference_mode():
            last[0] = module(*arguments)

    def outputs() -> dict[str, np.ndarray]:
        values = last[0] if isinstance(last[0], (list, tuple)) else [last[0]]
        return {name: value.numpy() for name, value in zip(task.outputs, values, strict=True)}

    return Loaded(run, outputs)


ENGINE = Engine(
    "torch",
    module="torch",
    distribution="torch",
    suffix=".onnx",
    load=load,
    extra="bench-torch",
    imports=("onnx", "onnx2torch"),
)
