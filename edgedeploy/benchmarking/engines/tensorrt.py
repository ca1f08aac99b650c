"""TensorRT on an NVIDIA graphics processor, by its own parser of ONNX, in single precision."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from edgedeploy.benchmarking.engines import nvidia
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Loaded, Task


def load(task: Task) -> Loaded:
    """Build an engine for this processor; an inference takes inputs there and outputs back."""
    import tensorrt
    from cuda.bindings import runtime as cuda

    logger = tensorrt.Logger(tensorrt.Logger.ERROR)
    started = perf_counter()
    plan = _built(tensorrt, logger, task)
    compile_s = perf_counter() - started
    engine = tensorrt.Runtime(logger).deserialize_cuda_engine(plan)
    context = engine.create_execution_context()
    stream = _checked(cuda, cuda.cudaStreamCreate())
    arrays: dict[str, np.ndarray] = {}
    places: dict[str, int] = {}
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        made = np.empty(tuple(engine.get_tensor_shape(name)), tensorrt.nptype(engine.get_tensor_dtype(name)))
        arrays[name] = np.ascontiguousarray(task.inputs.get(name, made), made.dtype)
        places[name] = int(_checked(cuda, cuda.cudaMalloc(max(1, arrays[name].nbytes))))
        context.set_tensor_address(name, places[name])
    there, back = cuda.cudaMemcpyKind.cudaMemcpyHostToDevice, cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost

    def run() -> None:
        for name in task.inputs:
            array = arrays[name]
            _checked(cuda, cuda.cudaMemcpyAsync(places[name], array.ctypes.data, array.nbytes, there, stream))
        if not context.execute_async_v3(int(stream)):
            raise CannotRunError("TensorRT does not run the engine that it built")
        for name in task.outputs:
            array = arrays[name]
            _checked(cuda, cuda.cudaMemcpyAsync(array.ctypes.data, places[name], array.nbytes, back, stream))
        _checked(cuda, cuda.cudaStreamSynchronize(stream))

    outputs = {name: arrays[name] for name in task.outputs}
    device = _checked(cuda, cuda.cudaGetDeviceProperties(0)).name.decode()
    # What it was made by must live as long as it does.
    keep = (engine, plan)
    return Loaded(run, lambda: outputs if keep else {}, device, compile_s=compile_s)


def _built(tensorrt: Any, logger: Any, task: Task) -> Any:
    """The serialised engine."""
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


def _checked(cuda: Any, result: Any) -> Any:
    """What a call of the CUDA runtime gives."""
    code, *values = result
    if code != cuda.cudaError_t.cudaSuccess:
        raise CannotRunError(f"CUDA failed: {cuda.cudaGetErrorString(code)[1].decode()}")
    return values[0] if values else None


ENGINE = Engine(
    "tensorrt",
    module="tensorrt",
    distribution="tensorrt",
    suffix=".onnx",
    load=load,
    extra=nvidia.EXTRA,
    lack=nvidia.missing,
    by_default=False,
    imports=("cuda.bindings.runtime",),
)
