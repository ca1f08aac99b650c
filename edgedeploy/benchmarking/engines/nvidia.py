"""Engines for NVIDIA's graphics processors: TensorRT with its own ONNX parser, and onnxruntime's CUDA provider.

Both compute in single precision, and copies of inputs and outputs are part of an inference, as for every device.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from edgedeploy.benchmarking.engine_program import bind_onnxruntime
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Loaded, Task
from edgedeploy.model.onnxruntime_session import cuda_session

# The driver's device files: on Linux, inside Windows, and on Jetson.
_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu")


def missing() -> str | None:
    """Why no engine for them can run here; None if there is a driver."""
    if any(Path(device).exists() for device in _DEVICES):
        return None
    return "there is no NVIDIA graphics processor here, or no driver for it"


def _load_onnxruntime(task: Task) -> Loaded:
    session = cuda_session(task.file)
    if "CUDAExecutionProvider" not in session.get_providers():
        raise CannotRunError("onnxruntime cannot use the graphics processor: its CUDA libraries are not found")
    binding = bind_onnxruntime(session, task.inputs, task.outputs)

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return Loaded(run, lambda: dict(zip(task.outputs, binding.copy_outputs_to_cpu(), strict=True)), device="CUDA")


def _load_tensorrt(task: Task) -> Loaded:
    import tensorrt
    from cuda.bindings import runtime as cuda

    def checked(result: Any) -> Any:
        """The value of a call of the CUDA runtime."""
        code, *values = result
        if code != cuda.cudaError_t.cudaSuccess:
            raise CannotRunError(f"CUDA failed: {cuda.cudaGetErrorString(code)[1].decode()}")
        return values[0] if values else None

    logger = tensorrt.Logger(tensorrt.Logger.ERROR)
    started = perf_counter()
    plan = _build(tensorrt, logger, task)
    compile_s = perf_counter() - started
    engine = tensorrt.Runtime(logger).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    stream = checked(cuda.cudaStreamCreate())
    arrays: dict[str, np.ndarray] = {}
    places: dict[str, int] = {}
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        empty = np.empty(tuple(engine.get_tensor_shape(name)), tensorrt.nptype(engine.get_tensor_dtype(name)))
        arrays[name] = np.ascontiguousarray(task.inputs.get(name, empty), empty.dtype)
        places[name] = int(checked(cuda.cudaMalloc(max(1, arrays[name].nbytes))))
        context.set_tensor_address(name, places[name])
    there, back = cuda.cudaMemcpyKind.cudaMemcpyHostToDevice, cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost

    def run() -> None:
        for name in task.inputs:
            array = arrays[name]
            checked(cuda.cudaMemcpyAsync(places[name], array.ctypes.data, array.nbytes, there, stream))
        if not context.execute_async_v3(int(stream)):
            raise CannotRunError("TensorRT does not run the engine that it built")
        for name in task.outputs:
            array = arrays[name]
            checked(cuda.cudaMemcpyAsync(array.ctypes.data, places[name], array.nbytes, back, stream))
        checked(cuda.cudaStreamSynchronize(stream))

    outputs = {name: arrays[name] for name in task.outputs}
    device = checked(cuda.cudaGetDeviceProperties(0)).name.decode()
    keep = (engine, plan)  # the context needs both as long as it lives
    return Loaded(run, lambda: outputs if keep else {}, device, compile_s=compile_s)


def _build(tensorrt: Any, logger: Any, task: Task) -> Any:
    builder = tensorrt.Builder(logger)
    network = builder.create_network(0)
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse(task.file.read_bytes()):
        raise CannotRunError(f"TensorRT cannot read the network: {parser.get_error(0).desc()}")
    config = builder.create_builder_config()
    config.clear_flag(tensorrt.BuilderFlag.TF32)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise CannotRunError("TensorRT cannot build the network")
    return plan


_on_nvidia = partial(Engine, suffix=".onnx", extra="bench-gpu", lack=missing, by_default=False)
TENSORRT = _on_nvidia("tensorrt", "tensorrt", "tensorrt", load=_load_tensorrt, imports=("cuda.bindings.runtime",))
ONNXRUNTIME_GPU = _on_nvidia("onnxruntime-gpu", "onnxruntime", "onnxruntime-gpu", load=_load_onnxruntime)
