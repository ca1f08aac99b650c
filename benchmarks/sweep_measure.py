"""Builds a network of the sweep, measures it beside onnxruntime on one thread, and says which functions are slow."""

from __future__ import annotations

import resource
import tempfile
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import onnx
from results import read_results, write_results
from sweep_networks import Case
from sweep_page import page
from sweep_result import Result

from edgedeploy.bench.engines import OURS, REFERENCE
from edgedeploy.bench.engines.engine import CPU, CannotRunError, Loaded, Task
from edgedeploy.bench.measure import compare, take_turns
from edgedeploy.bench.worker import Turn
from edgedeploy.runtime.arrays import fill
from edgedeploy.workers import Worker, WorkerError

DEADLINE_S = 1200.0  # of a build, and of the measurement after it, on a busy machine
MEMORY_BYTES = 12 << 30  # of address space, of which libraries take several GB before anything is computed

_WARMUP_CALLS, _INFERENCES = 3, 5
_LISTED = 8  # functions of a network that a result names
_LARGEST_SHARE = 0.005  # of the time, below which a function is not named


def measure_all(cases: Sequence[Case], arguments: Namespace) -> None:
    """Measure what is not known yet, the smallest files first, and write results and page."""
    folder: Path = arguments.folder
    known = read_results(arguments.json, Result) if arguments.resume else []
    known = [result for result in known if result.outcome != "not exported"]  # which takes no time to find again
    done = {result.name for result in known}
    waiting = [case for case in cases if case.name not in done and (_size(case, folder) or _refused(case, folder))]
    waiting.sort(key=lambda case: _size(case, folder))
    with ThreadPoolExecutor(arguments.processes) as pool:
        for result in pool.map(partial(result_of, folder=folder, rounds=arguments.rounds), waiting):
            known.append(result)
            if arguments.json:
                write_results(arguments.json, known)
            said = f"{result.ratio:.2f}" if result.ratio else result.message or result.unmeasured
            print(f"{result.outcome:12} {result.name}: {said}", flush=True)
    if arguments.output:
        names = [case.name for case in cases]
        results = sorted((each for each in known if each.name in names), key=lambda each: names.index(each.name))
        arguments.output.write_text(page(results, names, arguments.rounds, arguments.remark), encoding="utf-8")


def _size(case: Case, folder: Path) -> int:
    file = case.file(folder)
    return file.stat().st_size if file.is_file() else 0


def _refused(case: Case, folder: Path) -> str:
    """Why its exporter refused it; empty if it did not, or was not asked."""
    file = case.refusal(folder)
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def result_of(case: Case, folder: Path, rounds: int) -> Result:
    """What becomes of a network, in a process of its own."""
    result = Result(case.name, bytes=_size(case, folder))
    if not result.bytes:
        return replace(result, outcome="not exported", message=_refused(case, folder))
    with tempfile.TemporaryDirectory() as scratch, Worker(prepare, Path(scratch) / "said.txt") as worker:
        try:
            for part in worker.stream(
                measured, case.file(folder), case.onnx(folder), Path(scratch), rounds, timeout_s=DEADLINE_S
            ):
                result = replace(result, **part)
        except WorkerError as error:
            where = "unmeasured" if result.outcome == "built" else "message"
            result = replace(result, **{where: str(error)})
    return result


def prepare() -> None:
    """In a process that measures: limits."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")


def measured(file: Path, model: Path | None, folder: Path, rounds: int) -> Iterator[dict[str, Any]]:
    """Fields of a network's result, first those of its build, then those of its measurement.

    Args:
        file: the network.
        model: the same network as onnxruntime runs it.
        folder: an empty one, for the package.
        rounds: how often each engine has its turn.
    """
    from edgedeploy.build import build
    from edgedeploy.compile.explain import explain
    from edgedeploy.errors import EdgedeployError, NumericalError
    from edgedeploy.records.best import NO_RECORDS
    from edgedeploy.resolved import resolve
    from edgedeploy.zoo.source import find_source

    package, started = folder / "package.tar.gz", process_time()
    try:
        built = build(find_source(str(file)), resolve("local"), package, tuning=NO_RECORDS)
        outcome = {"outcome": "built"}
    except EdgedeployError as error:
        said = ": ".join(part for part in (error.what, error.why) if part)
        said = said.removeprefix(f"{file}: ").replace(str(file), file.name)
        outcome = {"outcome": "caught" if isinstance(error, NumericalError) else "refused", "message": said}
    except Exception as error:
        outcome = {"outcome": "untyped", "message": f"{type(error).__name__}: {error}"}
    outcome["message"] = " ".join(outcome.get("message", "").split())[:600]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield outcome | {"build_s": round(process_time() - started, 2), "peak_mb": round(peak)}
    if outcome["outcome"] != "built":
        return
    explained = explain(built.compiled)
    inputs = {spec.name: fill(spec, "normal", seed) for seed, spec in enumerate(built.manifest.inputs)}
    yield {"operators": explained["slow_operators"], **_shares(package, inputs, explained["functions"])}
    if model is None:
        yield {"unmeasured": "no exporter writes it as ONNX"}
        return
    try:
        yield _beside_onnxruntime(
            package, model, inputs, [spec.name for spec in built.manifest.results], folder, rounds
        )
    except CannotRunError as error:
        yield {"unmeasured": str(error)}


def _shares(package: Path, inputs: Mapping[str, np.ndarray], functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What part of the time slow functions take, one thread running them."""
    from edgedeploy.runtime.session import Session

    times = Session.open(package, 1).function_times(inputs, repeat=_INFERENCES, warmup=1)
    medians = {name.removesuffix("_scheduled"): median(values) for name, values in times.items()}
    whole = sum(medians.values())
    listed = [
        (each["function"], each["template"], each["fallback"], round(medians.get(each["function"], 0.0) / whole, 4))
        for each in functions
        if not each["free"] and (each["fallback"] or each["template"] in (None, "general"))
    ]
    listed.sort(key=lambda each: -each[-1])
    return {
        "general": round(sum(share for *_, share in listed), 4),
        "scalar": round(sum(share for *_, fallback, share in listed if fallback), 4),
        "functions": [each for each in listed if each[-1] >= _LARGEST_SHARE][:_LISTED],
    }


class _Player:
    """An engine in this process, on one thread, that is timed by the processor time it takes."""

    device = CPU

    def __init__(self, loaded: Loaded) -> None:
        self._run: Callable[[], None] = loaded.run
        self.outputs = loaded.outputs
        self.typical = median(self.turn(1, _WARMUP_CALLS).seconds)

    def turn(self, warmup: int, count: int) -> Turn:
        """As `Worker.turn`."""
        for _ in range(warmup):
            self._run()
        seconds = []
        for _ in range(count):
            started = process_time()
            self._run()
            seconds.append(process_time() - started)
        return Turn(seconds, None)


def _beside_onnxruntime(
    package: Path, model: Path, inputs: Mapping[str, np.ndarray], outputs: Sequence[str], folder: Path, rounds: int
) -> dict[str, Any]:
    """Times of both engines, turn after turn, and how far their outputs are apart.

    The network may go by other names in the model of onnxruntime; the order of inputs and outputs is the same.

    Raises:
        CannotRunError: the outputs are not those of the same network.
    """
    graph = onnx.load(model, load_external_data=False).graph
    weights = {weight.name for weight in graph.initializer}
    given = [value.name for value in graph.input if value.name not in weights]
    theirs = dict(zip(given, inputs.values(), strict=True))
    returned = [value.name for value in graph.output]
    del graph
    ours = _Player(OURS.load(Task(model, package, dict(inputs), list(outputs), 1, folder)))
    other = _Player(REFERENCE.load(Task(model, package, theirs, returned, 1, folder)))
    turns = take_turns({"ours": ours, "other": other}, rounds, lambda name, error: None)
    pairs = [
        (median(mine.seconds), median(its.seconds)) for mine, its in zip(turns["ours"], turns["other"], strict=True)
    ]
    wanted = dict(zip(outputs, other.outputs().values(), strict=True))
    return {
        "ours_ms": round(median(mine for mine, _ in pairs) * 1e3, 4),
        "onnxruntime_ms": round(median(its for _, its in pairs) * 1e3, 4),
        "ratio": round(median(mine / its for mine, its in pairs), 4),
        "difference": float(f"{compare(ours.outputs(), wanted).relative:.2g}"),
    }
