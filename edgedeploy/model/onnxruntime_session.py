"""Creates onnxruntime's sessions: on the CPU, silent, and without telemetry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from edgedeploy.errors import InputError, last_line

# Prevents saturation: without VNNI or AMX, onnxruntime adds pairs of products of int8 in 16 bits.
_PRECISION_ON_X86 = "session.x64quantprecision"
# Converts weights to float once, so that convolutions of quantised networks use the float kernels.
_IN_FLOAT = "session.disable_quant_qdq"


def cpu_session(
    model: bytes | Path,  # a serialised ONNX model, or its file
    threads: int | None = None,  # threads of one operator; onnxruntime's own choice unless given
    *,
    optimised: bool = True,  # whether onnxruntime may rewrite the graph
    # Whether sums of quantised layers are exact on every CPU, as far as onnxruntime supports it; on some CPUs inexact
    # sums are faster.
    exact: bool = True,
    floats: bool = False,  # whether to compute quantised layers in float, with rounding between them
    profile: Path | None = None,  # the prefix of a file with the time of each node; None to disable timing
    optimised_to: Path | None = None,  # where to write the optimised graph, if anywhere
) -> Any:
    """An `onnxruntime.InferenceSession`."""
    import onnxruntime

    def opened(entries: dict[str, str]) -> Any:
        options = _options(entries)
        if not optimised:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if profile is not None:
            options.enable_profiling, options.profile_file_prefix = True, str(profile)
        if optimised_to is not None:
            options.optimized_model_filepath = str(optimised_to)
        if threads is not None:
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])  # noqa: TID251

    if floats:
        return opened({_IN_FLOAT: "1"})
    if exact:
        # onnxruntime 1.32 fails if two layers have the same weights, and creates operators without kernel if
        # QLinearMatMul has int8 data.
        with suppress(Exception):
            return opened({_PRECISION_ON_X86: "1"})
    return opened({})


def is_onnxruntimes(error: Exception) -> bool:
    """Whether onnxruntime raised it; its errors have no common base."""
    return type(error).__module__.startswith("onnxruntime")


@contextmanager
def computing(inputs: str = "these inputs") -> Iterator[None]:
    """Turn onnxruntime's errors about users' inputs into InputError."""
    try:
        yield
    except Exception as error:
        if not is_onnxruntimes(error):
            raise
        raise InputError(
            f"the network cannot compute with {inputs}",
            why=last_line(error),
            hints=["look at the inputs: indices beyond what they index, or sizes that do not suit each other"],
        ) from error


def cuda_session(model: Path) -> Any:
    """A session on an NVIDIA GPU, in single precision throughout."""
    import onnxruntime

    options = _options({"session.disable_cpu_ep_fallback": "1"})
    cuda = ("CUDAExecutionProvider", {"use_tf32": "0"})
    return onnxruntime.InferenceSession(model, options, providers=[cuda])  # noqa: TID251


def _options(entries: dict[str, str]) -> Any:
    """Options of a silent session, and no telemetry."""
    import onnxruntime

    # The variable that `edgedeploy` sets is read at import, which may have happened before.
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    return options
