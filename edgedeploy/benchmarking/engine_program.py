"""Runs a network in another engine where edgedeploy is not installed: on a board, or under emulation.

    python3 engine_program.py ENGINE FILE INPUTS.npz OUTPUTS.npz NAMES.json
    python3 engine_program.py ENGINE FILE INPUTS.npz OUTPUTS.npz NAMES.json THREADS

It runs on Python 3.8, which boards may have, and needs nothing but NumPy and the engine. `edgedeploy bench` loads and
times these engines on this machine with its functions, too. The network is in the engine's own form. INPUTS has an
array for each input, in order, and NAMES holds the engine's names of inputs and outputs.

Without THREADS, it runs two inferences with one thread, marks them by system calls, and writes the outputs of the
second. With THREADS, it reads requests and writes answers, each a line of JSON. The first answer has the times of
loading and of the first inference, and the time of one once warm. `{"warmup": 2, "count": 10}` times inferences; `{}`
writes the outputs of the last one and answers with the peak memory; `{"profile": 10}` times 10 inferences by operator,
if the engine supports it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep
from typing import TYPE_CHECKING, Any

import numpy as np

# ruff: noqa: B905 (zip takes `strict` from Python 3.10 on)

SCRIPT = Path(__file__)

if TYPE_CHECKING:
    Inputs = dict[str, np.ndarray]
    # One inference, and a function that returns the outputs of the last one.
    Loaded = tuple[Callable[[], object], Callable[[], list[np.ndarray]]]
    # By name of each operator: its type, and its time in each inference in ms.
    Profile = dict[str, tuple[str, list[float]]]

# The warm-up goes on until both are reached.
_WARMUP_CALLS, _WARMUP_S = 3, 0.2
# Threads rest when the process has used less than a tenth of this time on processors; spinning ends on its own.
_REST_S, _REST_AT_MOST_S = 0.005, 1.0


class EngineError(Exception):
    """The engine cannot run the network."""


def load_onnxruntime(path: Path, inputs: Inputs, outputs: list[str], threads: int) -> Loaded:
    """Inputs and outputs are bound in place."""
    session = onnxruntime_session(path, threads)
    binding = bind_onnxruntime(session, inputs, outputs)
    return lambda: session.run_with_iobinding(binding), binding.copy_outputs_to_cpu


def onnxruntime_session(path: Path, threads: int, profile: Path | None = None) -> Any:
    """A session on the processor with all graph optimisations; it writes a file that begins with `profile` if given."""
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    settings.log_severity_level = 4
    if profile:
        settings.enable_profiling, settings.profile_file_prefix = True, str(profile)
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])  # noqa: TID251


def bind_onnxruntime(session: Any, inputs: Inputs, outputs: list[str]) -> Any:
    """A binding of a session's inputs and outputs to the processor's memory."""
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for name in outputs:
        binding.bind_output(name)
    return binding


def load_ncnn(path: Path, inputs: Inputs, outputs: list[str], threads: int, *, half: bool = False) -> Loaded:
    """In single precision, or in half where the processor has it; blobs go by their order, as pnnx numbers them."""
    import ncnn

    network = ncnn.Net()
    network.opt.num_threads = threads
    network.opt.use_fp16_packed = network.opt.use_fp16_storage = network.opt.use_fp16_arithmetic = half
    weights = path.with_suffix(".bin")
    # The networks of ncnn's own benchmark have no weights: zeros.
    model = str(weights) if weights.is_file() else ncnn.DataReaderFromEmpty()
    if network.load_param(str(path)) or network.load_model(model):
        raise EngineError("ncnn cannot load the network")
    # ncnn has no dimension for the batch.
    arrays = [array[0] if array.ndim > 1 and array.shape[0] == 1 else array for array in inputs.values()]
    matrices = [ncnn.Mat(np.ascontiguousarray(array)).clone() for array in arrays]
    inward, outward = (
        sorted(names, key=lambda name: (len(name), name)) for names in (network.input_names(), network.output_names())
    )
    last: list[Any] = []

    def run() -> None:
        last.clear()
        with network.create_extractor() as extractor:
            for name, matrix in zip(inward, matrices):
                extractor.input(name, matrix)
            for name in outward:
                code, value = extractor.extract(name)
                if code:
                    raise EngineError(f"ncnn ends with code {code} at {name}")
                last.append(value)

    return run, lambda: [np.array(matrix) for matrix in last]


def load_mnn(path: Path, inputs: Inputs, outputs: list[str], threads: int, precision: str = "normal") -> Loaded:
    """As a module, since the older session interface overwrites its inputs.

    On CPUs the precision "normal" is single, and "low" is half where the processor has it.
    """
    import MNN.expr as expr
    import MNN.nn as nn

    runtime = nn.create_runtime_manager(({"backend": "CPU", "numThread": threads, "precision": precision},))
    module = nn.load_module_from_file(str(path), list(inputs), outputs, runtime_manager=runtime, shape_mutable=False)
    kinds = {"float32": expr.float, "int32": expr.int, "uint8": expr.uint8, "int8": expr.int8, "int64": expr.int64}
    for name, array in inputs.items():
        if array.dtype.name not in kinds:
            raise EngineError(f"input {name!r} is {array.dtype}, which MNN's Python interface does not take")
    values = [expr.const(array, list(array.shape), expr.NCHW, kinds[array.dtype.name]) for array in inputs.values()]
    last: list[Any] = []

    def run() -> None:
        last[:] = module.onForward(values)

    def arrays() -> list[np.ndarray]:
        # MNN may return channels in blocks of four.
        plain = [expr.convert(value, expr.NCHW) if value.data_format == expr.NC4HW4 else value for value in last]
        return [np.array(value.read()) for value in plain]

    return run, arrays


def load_litert(path: Path, inputs: Inputs, outputs: list[str], threads: int) -> Loaded:
    """Inputs and outputs of the file are taken in their order."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs.values()):
        interpreter.set_tensor(detail["index"], array)
    places = [detail["index"] for detail in interpreter.get_output_details()]
    return interpreter.invoke, lambda: [interpreter.get_tensor(place) for place in places]


def profile_onnxruntime(path: Path, inputs: Inputs, threads: int, prefix: Path, count: int) -> Profile:
    """The time of each node in `count` inferences, by onnxruntime's profiler, whose files begin with `prefix`."""
    session = onnxruntime_session(path, threads, prefix)
    for _ in range(count + 1):
        session.run(None, inputs)
    written = Path(session.end_profiling())
    found: Profile = {}
    for event in json.loads(written.read_text(encoding="utf-8")):
        name, times = event["name"], event.get("args", {})
        if event["cat"] == "Node" and name.endswith("_kernel_time"):
            node = found.setdefault(name[: -len("_kernel_time")], (times["op_name"], []))
            node[1].append(event["dur"] * 1e-3)
    written.unlink()
    return {name: (kind, times[1:]) for name, (kind, times) in found.items()}  # the first one warmed up


ENGINES: dict[str, Callable[..., Loaded]] = {
    "onnxruntime": load_onnxruntime,
    "ncnn": load_ncnn,
    "mnn": load_mnn,
    "litert": load_litert,
    "ncnn-half": partial(load_ncnn, half=True),
    "mnn-half": partial(load_mnn, precision="low"),
}
NAMES = tuple(ENGINES)


def timed(run: Callable[[], object], count: int, after: Callable[[], object] | None = None) -> list[float]:
    """The time of each inference in seconds; `after` is called after each, untimed."""
    seconds = []
    for _ in range(count):
        started = perf_counter()
        run()
        seconds.append(perf_counter() - started)
        if after:
            after()
    return seconds


def warm_up(run: Callable[[], object]) -> tuple[float, float]:
    """The time of the first inference and the median time, in seconds."""
    times, total = timed(run, 1), 0.0
    while len(times) < _WARMUP_CALLS or total < _WARMUP_S:
        times += timed(run, 1)
        total += times[-1]
    rest()
    return times[0], median(times)


def rest() -> None:
    """Wait until the process's threads have stopped spinning, a second at most."""
    deadline = perf_counter() + _REST_AT_MOST_S
    while perf_counter() < deadline:
        used = process_time()
        sleep(_REST_S)
        if process_time() - used < _REST_S / 10:
            return


def forget_peak() -> None:
    """Reset the system's peak of resident memory, which loading may have reached (proc(5), clear_refs)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_bytes() -> int | None:
    """The most memory that was resident at once (proc(5)); None if the system does not report it."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def main() -> None:
    """Load, run and mark, or answer requests."""
    engine, file, given, written, names_file, *threads = sys.argv[1:]
    path, names = Path(file), json.loads(Path(names_file).read_text(encoding="utf-8"))
    with np.load(given) as arrays:
        inputs = dict(zip(names["inputs"], [arrays[name] for name in arrays.files]))
    if threads:
        answer_requests(engine, path, inputs, names["outputs"], int(threads[0]), written)
        return
    run, outputs = ENGINES[engine](path, inputs, names["outputs"], 1)
    mark = os.getpgid  # a system call that nothing else makes
    for _ in range(2):
        mark(0)
        run()
    mark(0)
    np.savez(written, *outputs())


def answer_requests(engine: str, path: Path, inputs: Inputs, names: list[str], threads: int, written: str) -> None:
    """Load, and answer until there are no more requests."""
    module = engine.partition("-")[0]
    __import__({"mnn": "MNN", "litert": "ai_edge_litert.interpreter"}.get(module, module))
    started = perf_counter()
    run, outputs = ENGINES[engine](path, inputs, names, threads)
    load_s = perf_counter() - started
    forget_peak()
    first_s, typical_s = warm_up(run)
    answer(load_s=load_s, first_s=first_s, typical_s=typical_s)
    for line in sys.stdin:
        request = json.loads(line)
        if "count" in request:
            timed(run, request["warmup"])
            seconds = timed(run, request["count"])
            rest()
            answer(seconds=seconds)
        elif "profile" in request:
            functions = None
            if engine == "onnxruntime":
                functions = profile_onnxruntime(path, inputs, threads, path.with_suffix(".profile"), request["profile"])
            answer(functions=functions)
        else:
            np.savez(written, *outputs())
            answer(peak_bytes=peak_bytes())


def answer(**values: Any) -> None:
    """Write an answer, a line of JSON."""
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    try:
        main()
    except EngineError as error:
        raise SystemExit(str(error)) from error
