"""The measurement on a board over SSH: edgedeploy alone, timed there, with the reference's outputs from here."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgedeploy.benchmarking.engines import OURS, UNTUNED
from edgedeploy.benchmarking.engines.engine import CPU, CannotRunError, Engine
from edgedeploy.benchmarking.machine import Machine, board_machine
from edgedeploy.benchmarking.measure import (
    compare,
    reference_outputs,
    references,
    same_top1,
    take_turns,
    timing,
    turn_medians,
    with_random_weights,
)
from edgedeploy.benchmarking.networks import Candidate
from edgedeploy.benchmarking.report import Costs, Report, Row, Skipped
from edgedeploy.benchmarking.worker import Turn
from edgedeploy.errors import CompileError
from edgedeploy.progress import SILENT, Progress
from edgedeploy.runtime.opening import Opened, Place, opened_together
from edgedeploy.runtime.remote import RemoteSession
from edgedeploy.tensors import Tensors

# The reference runs on this machine, for its outputs only.
_REFERENCE_THREADS = 1

_WARMUP_CALLS = 3


class OnBoard:
    """A network on a board that runs interleaved as a `Worker` does; no transfer to the board is in its times."""

    def __init__(self, session: RemoteSession, tensors: Tensors) -> None:
        self._session, self._tensors = session, tensors
        self.typical = session.measure_end_to_end(tensors, repeat=_WARMUP_CALLS, warmup=1).total.median_ms / 1e3
        self.device = session.device_name or CPU

    def turn(self, warmup: int, count: int) -> Turn:
        """Run `warmup` inferences, then time `count`; how many processors were busy is not known."""
        times = self._session.measure_end_to_end(self._tensors, repeat=count, warmup=warmup)
        kernels = [milliseconds / 1e3 for milliseconds in times.kernels.runs_ms] if times.kernels else None
        return Turn([milliseconds / 1e3 for milliseconds in times.total.runs_ms], None, kernels)

    def outputs(self) -> dict[str, np.ndarray]:
        """The outputs of one more inference by name."""
        return self._session.run(self._tensors)


def measure_on_board(
    networks: Sequence[Candidate],
    peers: Sequence[Engine],
    place: Place,
    *,
    threads: int | None,
    rounds: int,
    runs: int | None = None,
    skipped: Sequence[Skipped] = (),
    progress: Progress = SILENT,
) -> Report:
    """Measure networks on a board. The other engines do not run there: they are named as left out.

    Args:
        networks: what to measure, at least one, built for the board.
        peers: the other engines.
        place: the board.
        threads: how many threads to use; the board's cores if None.
        rounds: how many turns each network has.
        runs: how many inferences of each are timed; as many as fit into short turns if None.
        skipped: what was left out before.
        progress: is told about each network.

    Raises:
        ModelError: the reference cannot run a network.
        CompileError: the outputs on the board cannot be compared with the reference's.
        EdgedeployError: as `edgedeploy.runtime.opening.opened`.
    """
    rows: list[Row] = []
    machine: Machine | None = None
    for network in networks:
        packages = {engine.name: package for engine in (OURS, UNTUNED) if (package := network.package_of(engine))}
        paths = [package.package_path for package in packages.values()]
        with opened_together(paths, place, threads, progress) as found_there:
            there = dict(zip(packages, found_there, strict=True))
            facts = there[OURS.name].facts
            assert facts is not None  # only this machine has none
            machine = machine or board_machine(facts, emulated=place.emulated(facts.machine))
            players = {name: OnBoard(_session(each), network.tensors()) for name, each in there.items()}
            with progress.steps(f"measure {network.case}", min(rounds, runs or rounds) * len(players)) as done:
                turns = take_turns(players, rounds, lambda *_: None, runs=runs, done=done)
            outputs = {name: player.outputs() for name, player in players.items()}
            threads_there = there[OURS.name].runner.threads
        with tempfile.TemporaryDirectory(prefix="edgedeploy-bench-") as folder:
            reference = reference_outputs(network, network.write(Path(folder)), Path(folder), _REFERENCE_THREADS)
        times = {name: timing(taken) for name, taken in turns.items()}
        for name, package in packages.items():
            try:
                found = compare(outputs[name], reference)
            except CannotRunError as error:
                raise CompileError(f"edgedeploy's own code for {network.case} does not run", why=str(error)) from error
            rows.append(
                Row(
                    network.name,
                    name,
                    OURS.version(),
                    players[name].device,
                    threads_there,
                    times[name],
                    times[OURS.name].total.median_ms / times[name].total.median_ms,
                    found.relative,
                    found.absolute,
                    same_top1(outputs[name], reference),
                    network.batch,
                    Costs(package.build_s, size_bytes=package.package_path.stat().st_size),
                    turn_medians(turns[name]),
                )
            )
    assert machine is not None
    models = [network.case for network in networks]
    reason = "engines are compared where edgedeploy itself runs; installed on the board, it measures with --host local"
    return Report(
        machine,
        OURS.name,
        references(networks),
        rounds,
        rows,
        [*skipped, *(Skipped(peer.name, models, reason) for peer in peers)],
        runs,
        with_random_weights(networks),
        UNTUNED.name if any(network.untuned for network in networks) else None,
    )


def _session(there: Opened) -> RemoteSession:
    assert isinstance(there.runner, RemoteSession)
    return there.runner
