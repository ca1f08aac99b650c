"""The measurement: every engine in turn, round after round, so that changes on the machine affect all of them."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from edgedeploy.base.attempts import each_attempted
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.benchmarking.energy import Energy, PowerMeter
from edgedeploy.benchmarking.engines import OURS, UNTUNED
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Task
from edgedeploy.benchmarking.networks import Candidate
from edgedeploy.benchmarking.report import Machine, Report, Row, Skipped, this_machine
from edgedeploy.benchmarking.turns import Player, take_turns, timing
from edgedeploy.benchmarking.worker import EngineWorker
from edgedeploy.errors import CompileError, EdgedeployError, ModelError
from edgedeploy.package.archive import read_work
from edgedeploy.remote.place import Place
from edgedeploy.runtime.profile import FunctionProfile, profile_of_operators, profiled
from edgedeploy.selftest.tolerance import difference_of
from edgedeploy.target.board import Board
from edgedeploy.tuning.conditions import Run

# A process that keeps this many more processors busy than it has threads is noted.
_EXTRA_PROCESSORS = 0.25
# How many inferences are timed by function.
_PROFILED = 10


class Difference(NamedTuple):
    """The largest |difference| of an output from the reference: divided by the largest |reference|, and absolute."""

    relative: float
    absolute: float


@dataclass(frozen=True)
class Measurement:
    """How engines are measured, and which were left out."""

    rounds: int
    runs: int | None = None  # how many inferences of each are timed; as many as fit into short turns if None
    before: Sequence[Skipped] = ()  # the networks and engines that were left out before
    # The errors of networks that failed before, to which others are added. If None, they are raised.
    failed: dict[str, EdgedeployError] | None = None
    energy: bool = False  # whether the energy of an inference is measured, too
    profiled: Board | None = None  # the profile of the machine or board, if the time by function is measured, too
    progress: Progress = SILENT
    meter: PowerMeter | None = None  # reads the power, if `energy` is measured
    skipped: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # networks by engine and reason

    def metered(self, run: Run) -> Measurement:
        """The same with a meter, if energy is measured; `run` runs scripts where networks run."""
        return replace(self, meter=PowerMeter(run)) if self.energy else self

    def skip(self, engine: Engine, case: str, reason: str, *, where: str = "") -> None:
        """Leave an engine out for a network; the first time for a reason this is noted."""
        if (engine.name, reason) not in self.skipped:
            self.progress.note(f"{engine.name} is left out{where}: {reason}")
        self.skipped.setdefault((engine.name, reason), []).append(case)

    def leave_out(self, network: Candidate, engine: Engine, error: CannotRunError) -> None:
        """Leave an engine out that cannot run a network; edgedeploy itself must run it."""
        if network.package_of(engine):
            if isinstance(error.__cause__, EdgedeployError):
                raise error.__cause__
            raise CompileError(f"edgedeploy's own code for {network.case} does not run", why=str(error)) from error
        self.skip(engine, network.case, str(error), where=f" for {network.case}")

    def rows(
        self, network: Candidate, players: Mapping[Engine, Player], reference: Mapping[str, np.ndarray], threads: int
    ) -> list[Row]:
        """Let all players take turns on one network, and make their rows; `reference` has the expected outputs."""
        number = min(self.rounds, self.runs or self.rounds) * len(players)
        with self.progress.steps(f"measure {network.case}", number) as done:
            turns = take_turns(players, self.rounds, partial(self.leave_out, network), runs=self.runs, done=done)
        ours = timing(turns[OURS]).total.median_ms
        rows = []
        for engine, own in turns.items():
            player, package = players[engine], network.package_of(engine)
            try:
                # Of the last timed inference: this finds an engine that spoils its inputs on the way.
                outputs = player.outputs()
                difference = compare(outputs, reference)
                costs = player.costs()
            except CannotRunError as error:
                self.leave_out(network, engine, error)
                continue
            if package:
                costs = replace(costs, compile_s=package.build_s, size_bytes=package.package_path.stat().st_size)
            energy, functions = self._further(network, engine, player, threads)
            times = timing(own)
            busy = median(turn.processors or 0.0 for turn in own)
            if busy > threads + _EXTRA_PROCESSORS:
                busily = f"kept {busy:.1f} processors busy on {network.case}, with {threads} threads requested"
                self.progress.note(f"{engine.name} {busily}")
            rows.append(
                Row(
                    network.name,
                    engine.name,
                    engine.version(),
                    player.device,
                    threads,
                    times,
                    ours / times.total.median_ms,
                    *difference,
                    same_top1(outputs, reference),
                    network.batch,
                    costs,
                    tuple(median(turn.seconds) * 1e3 for turn in own),
                    energy,
                    functions,
                )
            )
        return rows

    def _further(
        self, network: Candidate, engine: Engine, player: Player, threads: int
    ) -> tuple[Energy | None, tuple[FunctionProfile, ...] | None]:
        """The energy of an inference, and the times of its functions, the longest first; None if not requested or not
        available. The player may end."""
        energy = None
        try:
            if self.meter:
                with self.progress.stage(f"energy of {network.case} on {engine.name}"):
                    energy = self.meter.energy_of(player)
            if self.profiled is None:
                return energy, None
            with self.progress.stage(f"profile {network.case} on {engine.name}"):
                times = player.profile(_PROFILED)
        except CannotRunError as error:
            self.progress.note(f"{engine.name} on {network.case} was not examined further: {error}")
            return energy, None
        if times is None:
            self.progress.note(f"{engine.name} cannot time its operators")
            return energy, None
        if (package := network.package_of(engine)) is None:
            return energy, tuple(profile_of_operators(times))
        work = read_work(package.package_path)
        return energy, tuple(profiled({name: each for name, (_, each) in times.items()}, work, self.profiled, threads))

    def all_rows(self, networks: Sequence[Candidate], measured: Callable[[Candidate], list[Row]]) -> list[Row]:
        """The rows of all networks; raises the first error if all of them failed."""
        found = each_attempted(measured, {network.case: network for network in networks}, self.failed)
        if self.failed and not any(found.values()):
            raise next(iter(self.failed.values()))
        return [row for rows in found.values() for row in rows]

    def report(self, machine: Machine, networks: Sequence[Candidate], rows: list[Row]) -> Report:
        """The report of all rows."""
        reference = " or ".join(dict.fromkeys(network.reference.name for network in networks))
        skipped = [Skipped(engine, models, reason) for (engine, reason), models in self.skipped.items()]
        skipped, failed = [*self.before, *skipped], dict(self.failed or {})
        random = dict.fromkeys(each.name for each in networks if each.prepared.source.options.weights == "random")
        untuned = UNTUNED.name if any(network.untuned for network in networks) else None
        return Report(
            machine, OURS.name, reference, self.rounds, rows, skipped, self.runs, list(random), untuned, failed
        )


def measure(networks: Sequence[Candidate], peers: Sequence[Engine], threads: int, measurement: Measurement) -> Report:
    """Measure networks on edgedeploy and on `peers`.

    The report names engines that are not installed or cannot run a network.
    """
    machine, progress = this_machine(), measurement.progress
    if machine.load and machine.load > 0.5:
        progress.note(f"other programs are running (load {machine.load:g}): times will be longer and less even")
    measurement = measurement.metered(lambda script: Place().run(script).text)
    present = [OURS, *([UNTUNED] if any(network.untuned for network in networks) else [])]
    for engine in peers:
        if reason := engine.absence():
            for network in networks:
                measurement.skip(engine, network.case, reason)
        else:
            present.append(engine)

    def measured(network: Candidate) -> list[Row]:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgedeploy-bench-")))
            file = network.write(folder)
            workers: dict[Engine, EngineWorker] = {}
            with progress.stage(f"load {network.case}"):
                for engine in present:
                    try:
                        task = task_for(network, engine, file, folder, threads)
                        workers[engine] = stack.enter_context(EngineWorker(engine, task))
                    except CannotRunError as error:
                        measurement.leave_out(network, engine, error)
                reference = reference_outputs(network, file, folder, threads, workers.get(network.reference))
            return measurement.rows(network, workers, reference, threads)

    return measurement.report(machine, networks, measurement.all_rows(networks, measured))


def leaving_out(
    peers: Sequence[Engine], skipped: list[Skipped], progress: Progress
) -> Callable[[str, EdgedeployError], None]:
    """A `left_out` for `networks.candidates`: notes a network that no engine gets, and adds it to `skipped`."""

    def leave_out(case: str, error: EdgedeployError) -> None:
        progress.note(f"{case} is left out: {error.cause}")
        skipped.extend(Skipped(engine.name, [case], error.cause) for engine in (OURS, *peers))

    return leave_out


def task_for(network: Candidate, engine: Engine, file: Path, folder: Path, threads: int) -> Task:
    """The task of an engine, with its own folder in `folder` for converted files."""
    package = network.package_of(engine)
    if package is None and file.suffix != engine.suffix:
        raise CannotRunError(f"it reads {engine.suffix} files, and the network is a {file.suffix} file")
    package = package or network.prepared
    scratch = folder / f"{engine.name}-{os.urandom(4).hex()}"
    scratch.mkdir()
    outputs = [spec.name for spec in network.prepared.manifest.results]
    accelerated = package.manifest.device is not None
    return Task(
        file, package.package_path, network.tensors(), outputs, threads, scratch, accelerated, network.batch or 1
    )


def reference_outputs(
    network: Candidate, file: Path, folder: Path, threads: int, running: EngineWorker | None = None
) -> dict[str, np.ndarray]:
    """The outputs of the reference: from its worker if it is measured, else from a new one."""
    try:
        if running:
            return running.outputs()
        with EngineWorker(network.reference, task_for(network, network.reference, file, folder, threads)) as worker:
            return worker.outputs()
    except CannotRunError as error:
        raise ModelError(f"{network.reference.name} cannot run {network.name}", why=str(error)) from error


def compare(outputs: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> Difference:
    """The difference of the output that is relatively furthest from the reference's."""
    worst = Difference(0.0, 0.0)
    for name, wanted in reference.items():
        if name not in outputs:
            raise CannotRunError(f"it gives no output {name!r}")
        if outputs[name].size != wanted.size:
            raise CannotRunError(f"its output {name!r} has {outputs[name].size} values instead of {wanted.size}")
        difference, largest = difference_of(outputs[name], wanted) or (math.inf, 0.0)
        if not math.isfinite(difference):
            raise CannotRunError(f"its output {name!r} has other infinities or NaN")
        if difference and not largest:
            raise CannotRunError(f"its output {name!r} is not zero, as all its values should be")
        if difference:
            worst = max(worst, Difference(difference / largest, difference), key=lambda each: each.relative)
    return worst


def same_top1(outputs: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> bool | None:
    """Whether the first output has its largest value at the same place as the reference's, for every image.

    None unless that output is a row of scores for each image: two dimensions that are not of size one.
    """
    name, wanted = next(iter(reference.items()))
    batch, scores = wanted.shape[:1], [size for size in wanted.shape[1:] if size > 1]
    if not batch or len(scores) != 1:
        return None
    found, top = (np.reshape(array, (*batch, -1)).argmax(axis=1) for array in (outputs[name], wanted))
    return bool(np.array_equal(found, top))
