"""Runs a network in another engine where nothing of edgedeploy is: on a board, or under emulation.

    python3 peer.py ENGINE FILE INPUTS.npz OUTPUTS.npz NAMES.json
    python3 peer.py ENGINE FILE INPUTS.npz OUTPUTS.npz NAMES.json THREADS

It needs NumPy and the engine. The network is in the engine's own form; INPUTS has an array for each of its inputs, in
order, and NAMES says how inputs and outputs are called there.

Without THREADS, two inferences are run with one and marked by system calls, and the outputs of the second are written.
With THREADS it answers requests, each a line of JSON, by another line. First it says how long loading and the first
inference took, and the time of one once warm. `{"warmup": 2, "count": 10}` times inferences; `{}` writes the outputs of
the last one and says how much memory was in use at most; `{"profile": 10}` times so many inferences by operator, in
engines that tell.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np

SCRIPT = Path(__file__)

Inputs = dict[str, np.ndarray]
# One inference, and what gives the outputs of the last one.
Loaded = tuple[Callable[[], object], Callable[[], list[np.ndarray]]]
# By name of each operator: of what kind it is, and its time in each inference in ms.
Profile = dict[str, tuple[str, list[float]]]


def load_onnxruntime(path: Path, inputs: Inputs, outputs: list[str], threads: int) -> Loaded:
    """Inputs and outputs are bound in place."""
    session = onnxruntime_session(path, threads)
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for name in outputs:
        binding.bind_output(name)
    return lambda: session.run_with_iobinding(binding), binding.copy_outputs_to_cpu


def onnxruntime_session(path: Path, threads: int, *, profiled: bool = False) -> Any:
    """A session on the processor; if it is profiled, it writes a file beside the network."""
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    settings.log_severity_level = 4
    settings.enable_profiling, settings.profile_file_prefix = profiled, str(path.with_suffix(".profile"))
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])  # noqa: TID251


def load_ncnn(path: Path, inputs: Inputs, outputs: list[str], threads: int) -> Loaded:
    """In single precision; blobs go by their order, as pnnx numbers them."""
    import ncnn

    network = ncnn.Net()
    network.opt.num_threads = threads
    network.opt.use_fp16_packed = network.opt.use_fp16_storage = network.opt.use_fp16_arithmetic = False
    weights = path.with_suffix(".bin")
    # The networks of ncnn's own benchmark have no weights: zeros.
    given = str(weights) if weights.is_file() else ncnn.DataReaderFromEmpty()
    if network.load_param(str(path)) or network.load_model(given):
        raise SystemExit("ncnn cannot load it")
    arrays = [array[0] if array.ndim > 1 and array.shape[0] == 1 else array for array in inputs.values()]
    matrices = [ncnn.Mat(np.ascontiguousarray(array)).clone() for array in arrays]
    taken, given_back = (sorted(names, key=lambda name: (len(name), name)) for names in _blobs(network))
    last: list[Any] = []

    def run() -> None:
        last.clear()
        with network.create_extractor() as extractor:
            for name, matrix in zip(taken, matrices, strict=True):
                extractor.input(name, matrix)
            for name in given_back:
                code, value = extractor.extract(name)
                if code:
                    raise SystemExit(f"ncnn ends with code {code} at {name}")
                last.append(value)

    return run, lambda: [np.array(matrix) for matrix in last]


def _blobs(network: Any) -> tuple[list[str], list[str]]:
    return network.input_names(), network.output_names()


def load_mnn(path: Path, inputs: Inputs, outputs: list[str], threads: int) -> Loaded:
    """As a module; on CPUs "normal" is single precision."""
    import MNN.expr as expr
    import MNN.nn as nn

    runtime = nn.create_runtime_manager(({"backend": "CPU", "numThread": threads, "precision": "normal"},))
    module = nn.load_module_from_file(str(path), list(inputs), outputs, runtime_manager=runtime, shape_mutable=False)
    kinds = {"float32": expr.float, "int32": expr.int, "uint8": expr.uint8, "int8": expr.int8}
    given = [expr.const(array, list(array.shape), expr.NCHW, kinds[array.dtype.name]) for array in inputs.values()]
    last: list[Any] = []

    def run() -> None:
        last[:] = module.onForward(given)

    def arrays() -> list[np.ndarray]:
        plain = [expr.convert(value, expr.NCHW) if value.data_format == expr.NC4HW4 else value for value in last]
        return [np.array(value.read()) for value in plain]

    return run, arrays


def load_litert(path: Path, inputs: Inputs, outputs: list[str], threads: int) -> Loaded:
    """Inputs and outputs of the file are taken in their order."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs.values(), strict=True):
        interpreter.set_tensor(detail["index"], array)
    places = [detail["index"] for detail in interpreter.get_output_details()]
    return interpreter.invoke, lambda: [interpreter.get_tensor(place) for place in places]


def profile_onnxruntime(session: Any, inputs: Inputs, count: int) -> Profile:
    """The times of `count` inferences in a session that is profiled, which ends that."""
    for _ in range(count + 1):
        session.run(None, inputs)
    written = Path(session.end_profiling())
    found: Profile = {}
    for event in json.loads(written.read_text(encoding="utf-8")):
        name, times = event["name"], event.get("args", {})
        if event["cat"] == "Node" and name.endswith("_kernel_time"):
            kept = found.setdefault(name.removesuffix("_kernel_time"), (times["op_name"], []))
            kept[1].append(event["dur"] * 1e-3)
    written.unlink()
    return {name: (kind, times[1:]) for name, (kind, times) in found.items()}  # the first one warmed up


ENGINES = {"onnxruntime": load_onnxruntime, "ncnn": load_ncnn, "mnn": load_mnn, "litert": load_litert}
NAMES = tuple(ENGINES)


def main() -> None:
    """Load, run and mark, or answer requests."""
    engine, path, given, written, said, *threads = sys.argv[1:]
    names = json.loads(Path(said).read_text(encoding="utf-8"))
    with np.load(given) as file:
        inputs = dict(zip(names["inputs"], [file[name] for name in file.files], strict=True))

    def load() -> Loaded:
        return ENGINES[engine](Path(path), inputs, names["outputs"], int(threads[0]) if threads else 1)

    def profile(count: int) -> Profile | None:
        if engine != "onnxruntime":
            return None
        return profile_onnxruntime(onnxruntime_session(Path(path), int(threads[0]), profiled=True), inputs, count)

    if threads:
        answer_requests(engine, load, profile, written)
        return
    run, outputs = load()
    mark = os.getpgid  # a system call that nothing else makes
    for _ in range(2):
        mark(0)
        run()
    mark(0)
    np.savez(written, *outputs())


def answer_requests(
    engine: str, load: Callable[[], Loaded], profile: Callable[[int], Profile | None], written: str
) -> None:
    """Load, and answer until there are no more requests."""
    __import__({"mnn": "MNN", "litert": "ai_edge_litert.interpreter"}.get(engine, engine))
    started = perf_counter()
    run, outputs = load()
    load_s = perf_counter() - started
    times = timed(run, 1)
    while len(times) < 3 or (sum(times) < 0.2 and len(times) < 1000):
        times += timed(run, 1)
    say({"load_s": load_s, "first_s": times[0], "typical_s": median(times)})
    for line in sys.stdin:
        request = json.loads(line)
        if "count" in request:
            timed(run, request["warmup"])
            seconds = timed(run, request["count"])
            rest()
            say({"seconds": seconds})
        elif "profile" in request:
            say({"functions": profile(request["profile"])})
        else:
            np.savez(written, *outputs())
            say({"peak_bytes": peak_bytes()})


def timed(run: Callable[[], object], count: int) -> list[float]:
    """The time of each inference in seconds."""
    seconds = []
    for _ in range(count):
        started = perf_counter()
        run()
        seconds.append(perf_counter() - started)
    return seconds


def rest() -> None:
    """Wait until threads have stopped to spin, a second at most."""
    deadline = perf_counter() + 1
    while perf_counter() < deadline:
        used = process_time()
        sleep(0.005)
        if process_time() - used < 0.0005:
            return


def peak_bytes() -> int | None:
    """The most that was resident at once, as proc(5) has it."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def say(answer: dict[str, Any]) -> None:
    """Write an answer, a line."""
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
