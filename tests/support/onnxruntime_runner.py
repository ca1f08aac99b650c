"""onnxruntime for tests: a `Runner`, with which demos' decoders are tested without compiling, and single inferences."""

import timeit
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.runtime.timing import Timing

_DTYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8", "tensor(int8)": "int8", "tensor(int64)": "int64"}


class OnnxruntimeRunner:
    """An ONNX file, or its bytes, on onnxruntime's CPU provider; `shapes` fixes inputs with free dimensions."""

    def __init__(self, path: Path | bytes, threads: int = 1, shapes: Mapping[str, list[int]] | None = None) -> None:
        self._session = cpu_session(path, threads)
        self.inputs = [self._spec(node, shapes or {}) for node in self._session.get_inputs()]
        self.outputs = [self._spec(node, {}) for node in self._session.get_outputs()]
        self.threads = threads

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        names = [output.name for output in self.outputs]
        return dict(zip(names, self._session.run(names, dict(tensors)), strict=True))

    def measure(self, tensors: Tensors, *, repeat: int = 1, number: int = 1, warmup: int = 0) -> Timing:
        timer = timeit.Timer(lambda: self.run(tensors))
        timer.timeit(warmup)
        return Timing.of_seconds([seconds / number for seconds in timer.repeat(repeat, number)])

    @staticmethod
    def _spec(node: onnxruntime.NodeArg, shapes: Mapping[str, list[int]]) -> TensorSpec:
        shape = [size if isinstance(size, int) else -1 for size in node.shape]
        return TensorSpec(name=node.name, shape=shapes.get(node.name, shape), dtype=_DTYPES[node.type])


def run_onnx(model: onnx.ModelProto | Path, *arrays: np.ndarray) -> dict[str, np.ndarray]:
    """The outputs of a model, by name, for its inputs in order."""
    runner = OnnxruntimeRunner(model if isinstance(model, Path) else model.SerializeToString())
    names = [spec.name for spec in runner.inputs]
    return runner.run(dict(zip(names, arrays, strict=True)))
