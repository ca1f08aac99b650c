"""The measurement itself: every engine in turn, round after round, so that what changes meets them all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from edgedeploy.attempts import each_attempted
from edgedeploy.benchmarking.energy import PowerMeter
from edgedeploy.benchmarking.engines import OURS, UNTUNED
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Task
from edgedeploy.benchmarking.further import Findings, Observer
from edgedeploy.benchmarking.judgement import Verdict, judge
from edgedeploy.benchmarking.machine import Machine, this_machine
from edgedeploy.benchmarking.networks import Candidate
from edgedeploy.benchmarking.report import Costs, Report, Row, Skipped
from edgedeploy.benchmarking.turns import take_turns, timing
from edgedeploy.benchmarking.worker import EngineWorker, Turn
from edgedeploy.board import Board
from edgedeploy.building import Prepared
from edgedeploy.errors import CompileError, EdgedeployError, ModelError
from edgedeploy.progress import SILENT, Progress
from edgedeploy.remote.place import ThisMachine

# A process that keeps this many more processors busy than it has threads is noted.
_EXTRA_PROCESSORS = 0.25


@dataclass
class Tally:
    """What was skipped: networks by engine and reason."""

    skipped: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def skip(self, engine: Engine, models: Iterable[str], reason: str) -> bool:
        """Write down that an engine was left out; says whether that is news."""
        news = (engine.name, reason) not in self.skipped
        self.skipped.setdefault((engine.name, reason), []).extend(models)
        return news

    def entries(self) -> list[Skipped]:
        """The same for a report."""
        return [Skipped(engine, models, reason) for (engine, reason), models in self.skipped.items()]


def measure(
    networks: Sequence[Candidate],
    peers: Sequence[Engine],
    *,
    threads: int,
    rounds: int,
    runs: int | None = None,
    skipped: Sequence[Skipped] = (),
    energy: bool = False,
    profiled: Board | None = None,
    failed: dict[str, EdgedeployError] | None = None,
    progress: Progress = SILENT,
) -> Report:
    """Measure networks on edgedeploy and on `peers`.

    An engine that is not installed, or that cannot run a network, is left out there and named in the report.

    Args:
        networks: what to measure.
        peers: the other engines.
        threads: how many threads each engine uses.
        rounds: how often each engine has its turn.
        runs: how many inferences of each engine are timed; as many as fit into short turns if None.
        skipped: what was left out before.
        energy: whether the energy of an inference is measured, too.
        profiled: this machine's profile, if the time by function is measured, too.
        failed: the errors of networks that failed before, to which those that fail here are added; without it, errors
            are raised.
        progress: is told about each network, and about engines that are left out.
    """
    machine = this_machine()
    if machine.load and machine.load > 0.5:
        progress.note(f"other programs are running (load {machine.load:g}): times will be longer and less even")
    meter = PowerMeter(lambda script: ThisMachine().run(script).text) if energy else None
    observer = Observer(meter, profiled, progress)
    tally = Tally()
    present = [UNTUNED] if any(network.untuned for network in networks) else []
    for engine in peers:
        reason = engine.absence()
        if reason is None:
            present.append(engine)
            continue
        progress.note(f"{engine.name} is left out: {reason}")
        tally.skip(engine, [network.case for network in networks], reason)

    def measured(network: Candidate) -> list[Row]:
        return list(_measure_network(network, present, threads, rounds, runs, observer, tally, progress))

    found = each_attempted(measured, {network.case: network for network in networks}, failed)
    return report_of(
        machine, networks, [row for rows in found for row in rows], [*skipped, *tally.entries()], rounds, runs, failed
    )


def report_of(
    machine: Machine,
    networks: Sequence[Candidate],
    rows: list[Row],
    skipped: list[Skipped],
    rounds: int,
    runs: int | None,
    failed: Mapping[str, EdgedeployError] | None,
) -> Report:
    """The report of rows that were measured on a machine; the first error where there are none."""
    if failed and not rows:
        raise next(iter(failed.values()))
    random = [network.name for network in networks if network.prepared.source.options.weights == "random"]
    return Report(
        machine,
        OURS.name,
        " or ".join(dict.fromkeys(network.reference.name for network in networks)),
        rounds,
        rows,
        skipped,
        runs,
        list(dict.fromkeys(random)),
        UNTUNED.name if any(network.untuned for network in networks) else None,
        dict(failed or {}),
    )


def leaving_out(
    peers: Sequence[Engine], skipped: list[Skipped], progress: Progress
) -> Callable[[str, EdgedeployError], None]:
    """What `networks.candidates` tells of a network that is given to no engine: it is noted, and added to `skipped`."""

    def leave_out(case: str, error: EdgedeployError) -> None:
        progress.note(f"{case} is left out: {error.cause}")
        skipped.extend(Skipped(engine.name, [case], error.cause) for engine in (OURS, *peers))

    return leave_out


def row_of(
    network: Candidate,
    engine: Engine,
    device: str,
    threads: int,
    turns: Mapping[str, Sequence[Turn]],
    verdict: Verdict,
    costs: Costs,
    findings: Findings,
) -> Row:
    """The row of an engine; `turns` has those of all engines by name, ours among them."""
    ours, own = timing(turns[OURS.name]), timing(turns[engine.name])
    return Row(
        network.name,
        engine.name,
        engine.version(),
        device,
        threads,
        own,
        ours.total.median_ms / own.total.median_ms,
        verdict.difference.relative,
        verdict.difference.absolute,
        verdict.same_top1,
        network.batch,
        costs,
        tuple(median(turn.seconds) * 1e3 for turn in turns[engine.name]),
        findings.energy,
        findings.functions,
    )


def _measure_network(
    network: Candidate,
    peers: Sequence[Engine],
    threads: int,
    rounds: int,
    runs: int | None,
    observer: Observer,
    tally: Tally,
    progress: Progress,
) -> Iterator[Row]:
    """The rows of one network."""

    def leave_out(engine: Engine, error: CannotRunError) -> None:
        if network.package_of(engine):
            if isinstance(error.__cause__, EdgedeployError):
                raise error.__cause__
            raise CompileError(f"edgedeploy's own code for {network.name} does not run", why=str(error)) from error
        if tally.skip(engine, [network.case], str(error)):
            progress.note(f"{engine.name} is left out for {network.case}: {error}")

    engines = {engine.name: engine for engine in [OURS, *peers]}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgedeploy-bench-")))
        file = network.write(folder)
        workers: dict[str, EngineWorker] = {}
        with progress.stage(f"load {network.case}"):
            for engine in engines.values():
                try:
                    workers[engine.name] = stack.enter_context(_start(engine, network, file, folder, threads))
                except CannotRunError as error:
                    leave_out(engine, error)
            reference = reference_outputs(network, file, folder, threads, workers.get(network.reference.name))
        with progress.steps(f"measure {network.case}", min(rounds, runs or rounds) * len(workers)) as done:
            turns = take_turns(
                workers, rounds, lambda name, error: leave_out(engines[name], error), runs=runs, done=done
            )
        verdicts, costs, findings = {}, {}, {}
        for name in list(turns):
            try:
                # Of the last timed inference: an engine that spoils its inputs on the way is found out.
                verdicts[name] = judge(workers[name].outputs(), reference)
                costs[name] = _costs(workers[name], network.package_of(engines[name]))
                findings[name] = observer.findings(network, engines[name], workers[name], threads)
            except CannotRunError as error:
                leave_out(engines[name], error)
                del turns[name]
    for name, verdict in verdicts.items():
        busy = median(turn.processors or 0.0 for turn in turns[name])
        if busy > threads + _EXTRA_PROCESSORS:
            progress.note(f"{name} kept {busy:.1f} processors busy on {network.case}, with {threads} threads asked for")
        yield row_of(network, engines[name], workers[name].device, threads, turns, verdict, costs[name], findings[name])


def _costs(worker: EngineWorker, package: Prepared | None) -> Costs:
    """What an engine needed beside the time of an inference."""
    start = worker.start
    compile_s, size = start.compile_s, start.file_bytes
    if package:
        compile_s, size = package.build_s, package.package_path.stat().st_size
    return Costs(compile_s, start.load_s, start.first_s, worker.peak_bytes(), size)


def _start(engine: Engine, network: Candidate, file: Path, folder: Path, threads: int) -> EngineWorker:
    """An engine's process with the network loaded."""
    package = network.package_of(engine)
    if package is None and file.suffix != engine.suffix:
        raise CannotRunError(f"it reads {engine.suffix} files, and the network is a {file.suffix} file")
    scratch = folder / f"{engine.name}-{os.urandom(4).hex()}"
    scratch.mkdir()
    outputs = [spec.name for spec in network.outputs]
    package = package or network.prepared
    accelerated = package.manifest.device is not None
    task = Task(
        file, package.package_path, network.tensors(), outputs, threads, scratch, accelerated, network.batch or 1
    )
    return EngineWorker(engine, task)


def reference_outputs(
    network: Candidate, file: Path, folder: Path, threads: int, running: EngineWorker | None = None
) -> dict[str, np.ndarray]:
    """What the reference makes of the inputs: by its worker if it is measured, else by one of its own."""
    try:
        if running:
            return running.outputs()
        with _start(network.reference, network, file, folder, threads) as worker:
            return worker.outputs()
    except CannotRunError as error:
        raise ModelError(f"{network.reference.name} cannot run {network.name}", why=str(error)) from error
