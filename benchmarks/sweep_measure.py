"""Builds a network of the sweep, measures it beside onnxruntime, and says which functions are slow."""

from __future__ import annotations

import resource
import tempfile
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import onnx
from results import read_results, write_results
from sweep_networks import LEGACY, Case, read_cases
from sweep_page import page, read_page
from sweep_result import Result

from edgedeploy.base.workers import Worker, WorkerError
from edgedeploy.benchmarking.engines import OURS, REFERENCE
from edgedeploy.benchmarking.engines.engine import CPU, CannotRunError, Engine, Loaded, Task
from edgedeploy.benchmarking.measure import compare
from edgedeploy.benchmarking.turns import Player, Turn, take_turns
from edgedeploy.benchmarking.worker import EngineWorker
from edgedeploy.package.archive import read_manifest
from edgedeploy.package.manifest import Manifest
from edgedeploy.runtime.arrays import fill

DEADLINE_S = 1200.0  # of a build, and of the measurement after it, on a busy machine
MEMORY_BYTES = 12 << 30  # of address space, of which libraries take several GB before anything is computed

_WARMUP_CALLS, _INFERENCES = 3, 5
_THEIRS = REFERENCE.name
_LISTED = 8  # functions of a network that a result names
_LARGEST_SHARE = 0.005  # of the time, below which a function is not named


def measure_all(cases: Sequence[Case], arguments: Namespace) -> None:
    """Measure what is not known yet, the smallest files first, and write results and page."""
    folder: Path = arguments.folder
    known = read_results(arguments.json, Result) if arguments.resume else []
    known = [result for result in known if result.outcome != "not exported"]  # which takes no time to find again
    done = {result.name for result in known}
    groups: dict[int, list[Case]] = {}
    for case in cases:
        if case.name not in done and (_size(case, folder) or _refused(case, folder)):
            groups.setdefault(id(case.network), []).append(case)
    waiting = sorted(groups.values(), key=lambda group: max(_size(case, folder) for case in group))
    with ThreadPoolExecutor(arguments.processes) as pool:
        for results in pool.map(
            partial(results_of, folder=folder, rounds=arguments.rounds, threads=arguments.threads), waiting
        ):
            known.extend(results)
            if arguments.json:
                write_results(arguments.json, known)
            for result in results:
                said = f"{result.ratio:.2f}" if result.ratio else result.message or result.unmeasured
                print(f"{result.outcome:12} {result.name}: {said}", flush=True)
    if arguments.output:
        every = read_cases()
        names = (
            list(dict.fromkeys(case.name for case in [*every, *cases])) if arguments.keep else [c.name for c in cases]
        )
        if arguments.keep:
            measured = {result.name for result in known}
            known += [each for each in read_page(arguments.output) if each.name not in measured]
        results = sorted((each for each in known if each.name in names), key=lambda each: names.index(each.name))
        arguments.output.write_text(
            page(results, names, arguments.rounds, arguments.threads, arguments.remark), encoding="utf-8"
        )


def _size(case: Case, folder: Path) -> int:
    file = case.file(folder)
    return file.stat().st_size if file.is_file() else 0


def _refused(case: Case, folder: Path) -> str:
    """Why its exporter refused it; empty if it did not, or was not asked."""
    file = case.refusal(folder)
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def results_of(cases: Sequence[Case], folder: Path, rounds: int, threads: int = 1) -> list[Result]:
    """What becomes of a network as some exporters write it, in a process of its own.

    It is measured on one thread and, if there are more, on `threads`.
    """
    results = {case.exporter: Result(case.name, bytes=_size(case, folder)) for case in cases}
    for case in cases:
        if not _size(case, folder):
            results[case.exporter] = replace(
                results[case.exporter], outcome="not exported", message=_refused(case, folder)
            )
    files = {case.exporter: case.file(folder) for case in cases if _size(case, folder)}
    if not files:
        return list(results.values())
    first = Case(cases[0].network, LEGACY).file(folder)
    if first.is_file():  # which the others are compared with
        files = {LEGACY: first} | files
    model = cases[0].onnx(folder)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        with Worker(prepare, scratch / "said.txt") as worker:
            try:
                for exporter, part in worker.stream(measured, files, model, scratch, rounds, timeout_s=DEADLINE_S):
                    if exporter in results:
                        results[exporter] = replace(results[exporter], **part)
            except WorkerError as error:
                for exporter in results.keys() & files:
                    where = "unmeasured" if results[exporter].outcome == "built" else "message"
                    results[exporter] = replace(results[exporter], **{where: str(error)})
        packages = {each: _package(scratch, each) for each, result in results.items() if result.ratio is not None}
        if packages and model and threads > 1:
            try:
                for exporter, ratio in _on_threads(tasks_of(packages, model, scratch, threads), rounds).items():
                    results[exporter] = replace(results[exporter], parallel_ratio=ratio)
            except CannotRunError as error:
                for exporter in packages:
                    results[exporter] = replace(results[exporter], unmeasured=f"on {threads} threads: {error}")
    return list(results.values())


def prepare() -> None:
    """In a process that measures: limits."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")


def measured(
    files: Mapping[str, Path], model: Path | None, folder: Path, rounds: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Exporters and fields of the results of their files, first those of builds, then those of the measurement.

    Args:
        files: the same network, by exporter.
        model: it as onnxruntime runs it.
        folder: an empty one, for packages.
        rounds: how often each engine has its turn.
    """
    from edgedeploy.compile.output.explain import explain

    packages: dict[str, Path] = {}
    for exporter, file in files.items():
        package = _package(folder, exporter)
        made, outcome = _built(file, package)
        yield exporter, outcome
        if made is None:
            continue
        explained = explain(made.compiled)
        shares = _shares(package, _inputs(made.manifest), explained["functions"])
        yield exporter, {"operators": explained["slow_operators"], **shares}
        if model is None:
            yield exporter, {"unmeasured": "no exporter writes it as ONNX"}
        else:
            packages[exporter] = package
    if packages and model:
        yield from _beside_onnxruntime(tasks_of(packages, model, folder), rounds)


def _package(folder: Path, exporter: str) -> Path:
    """Where the network is built that an exporter wrote."""
    return folder / f"{exporter}.tar.gz"


def _inputs(manifest: Manifest) -> dict[str, np.ndarray]:
    """Values for a network's inputs."""
    return {spec.name: fill(spec, "normal", seed) for seed, spec in enumerate(manifest.inputs)}


def tasks_of(packages: Mapping[str, Path], model: Path, folder: Path, threads: int = 1) -> dict[str, Task]:
    """What each package's engine runs, by exporter, and onnxruntime, with the same values.

    The network may go by other names in the model of onnxruntime; the order of inputs and outputs is the same.
    """
    tasks = {}
    for name, package in packages.items():
        manifest = read_manifest(package)
        outputs = [spec.name for spec in manifest.results]
        tasks[name] = Task(model, package, _inputs(manifest), outputs, threads, folder)
    graph = onnx.load(model, load_external_data=False).graph
    weights = {weight.name for weight in graph.initializer}
    given = [value.name for value in graph.input if value.name not in weights]
    first = next(iter(tasks.values()))
    theirs = dict(zip(given, first.inputs.values(), strict=True))
    return {**tasks, _THEIRS: replace(first, inputs=theirs, outputs=[value.name for value in graph.output])}


def _engine(name: str) -> Engine:
    return REFERENCE if name == _THEIRS else OURS


def _built(file: Path, package: Path) -> tuple[Any, dict[str, Any]]:
    """A network's build, None if it failed, and the fields of its result."""
    from edgedeploy.building import build
    from edgedeploy.errors import EdgedeployError, NumericalError
    from edgedeploy.records.best import NO_RECORDS
    from edgedeploy.target.resolved import resolve
    from edgedeploy.zoo.source import find_source

    made, started = None, process_time()
    try:
        made = build(find_source(str(file)), resolve("local"), package, tuning=NO_RECORDS)
        outcome = {"outcome": "built"}
    except EdgedeployError as error:
        said = ": ".join(part for part in (error.what, error.why) if part)
        said = said.removeprefix(f"{file}: ").replace(str(file), file.name)
        outcome = {"outcome": "caught" if isinstance(error, NumericalError) else "refused", "message": said}
    except Exception as error:
        outcome = {"outcome": "untyped", "message": f"{type(error).__name__}: {error}"}
    outcome["message"] = " ".join(outcome.get("message", "").split())[:600]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return made, outcome | {"build_s": round(process_time() - started, 2), "peak_mb": round(peak)}


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


def _beside_onnxruntime(tasks: Mapping[str, Task], rounds: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """By exporter times of both engines, turn after turn, and how far their outputs are apart."""
    players: dict[str, _Player] = {}
    for name, task in tasks.items():
        try:
            players[name] = _Player(_engine(name).load(task))
        except CannotRunError as error:
            if name == _THEIRS:
                raise
            yield name, {"unmeasured": str(error)}
    times = _times(players, rounds)
    other = players.pop(_THEIRS).outputs().values()
    for exporter, player in players.items():
        wanted = dict(zip(tasks[exporter].outputs, other, strict=True))
        try:
            difference = compare(player.outputs(), wanted).relative
        except CannotRunError as error:
            yield exporter, {"unmeasured": str(error)}
            continue
        yield (
            exporter,
            {
                "ours_ms": round(median(times[exporter]) * 1e3, 4),
                "onnxruntime_ms": round(median(times[_THEIRS]) * 1e3, 4),
                "ratio": _ratio(times[exporter], times[_THEIRS]),
                "to_legacy": _ratio(times[exporter], times[LEGACY])
                if LEGACY in players and exporter != LEGACY
                else None,
                "difference": float(f"{difference:.2g}"),
            },
        )


def _on_threads(tasks: Mapping[str, Task], rounds: int) -> dict[str, float]:
    """By exporter the ratio of times by the clock; each engine has a process of its own."""
    with ExitStack() as stack:
        players = {}
        for name, task in tasks.items():
            scratch = task.folder / f"{name}-threads"
            scratch.mkdir()
            players[name] = stack.enter_context(EngineWorker(_engine(name), replace(task, folder=scratch)))
        times = _times(players, rounds)
    return {name: _ratio(each, times[_THEIRS]) for name, each in times.items() if name != _THEIRS}


def _times(players: Mapping[str, Player], rounds: int) -> dict[str, list[float]]:
    """The median of each turn, in seconds."""

    def failed(name: str, error: CannotRunError) -> None:
        raise error

    turns = take_turns(players, rounds, failed)
    return {name: [median(turn.seconds) for turn in each] for name, each in turns.items()}


def _ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """The median over all rounds of one time divided by the other."""
    return round(median(mine / its for mine, its in zip(times, others, strict=True)), 4)
