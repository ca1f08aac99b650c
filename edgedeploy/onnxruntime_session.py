"""The one place where onnxruntime's sessions are made: on the CPU, silent, and without telemetry."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def cpu_session(model: bytes | Path, threads: int | None = None, *, optimised: bool = True) -> Any:
    """An `onnxruntime.InferenceSession`.

    Args:
        model: a serialised ONNX model, or its file.
        threads: how many threads an operator may use; onnxruntime's own choice unless given.
        optimised: whether onnxruntime may rewrite the graph.

    Raises:
        Exception: whatever onnxruntime says of a model that it cannot run.
    """
    import onnxruntime

    # The variable that `edgedeploy` sets is read at import, which may have happened before.
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
