"""onnxruntime's CUDA provider; copies of inputs and outputs are part of an inference, as for every device."""

from __future__ import annotations

from edgedeploy.benchmarking.engines import nvidia
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Loaded, Task
from edgedeploy.benchmarking.engines.onnxruntime import bound
from edgedeploy.onnxruntime_session import cuda_session


def load(task: Task) -> Loaded:
    """Make a session that runs on the graphics processor alone."""
    session = cuda_session(task.file)
    if "CUDAExecutionProvider" not in session.get_providers():
        raise CannotRunError("onnxruntime cannot use the graphics processor: its CUDA libraries are not found")
    binding, outputs = bound(session, task)

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return Loaded(run, outputs, device="CUDA")


ENGINE = Engine(
    "onnxruntime-gpu",
    module="onnxruntime",
    distribution="onnxruntime-gpu",
    suffix=".onnx",
    load=load,
    extra=nvidia.EXTRA,
    lack=nvidia.missing,
    by_default=False,
)
