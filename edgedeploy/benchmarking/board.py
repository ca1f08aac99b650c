"""The measurement on a board over SSH: engines are timed there, with the reference's outputs from here."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgedeploy.attempts import each_attempted
from edgedeploy.benchmarking.energy import PowerMeter
from edgedeploy.benchmarking.engines import OURS, UNTUNED
from edgedeploy.benchmarking.engines.engine import CPU, CannotRunError, Engine, Profile, Task, profile_of_functions
from edgedeploy.benchmarking.further import Observer
from edgedeploy.benchmarking.judgement import judge
from edgedeploy.benchmarking.machine import Machine, board_machine
from edgedeploy.benchmarking.measure import Tally, reference_outputs, report_of, row_of
from edgedeploy.benchmarking.networks import Candidate
from edgedeploy.benchmarking.report import Costs, Report, Row, Skipped
from edgedeploy.benchmarking.turns import take_turns
from edgedeploy.benchmarking.visitors import Visitor, Visitors
from edgedeploy.benchmarking.worker import Turn
from edgedeploy.errors import CompileError, EdgedeployError
from edgedeploy.progress import SILENT, Progress
from edgedeploy.remote.address import addresses
from edgedeploy.remote.connection import Connection
from edgedeploy.runtime.opening import Place, open_on
from edgedeploy.runtime.served import RemoteSession
from edgedeploy.tensors import Tensors
from edgedeploy.tuning.conditions import Throttling

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

    def profile(self, count: int) -> Profile:
        """The times of `count` inferences by function."""
        return profile_of_functions(self._session, self._tensors, count)

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
    energy: bool = False,
    profile: bool = False,
    failed: dict[str, EdgedeployError] | None = None,
    progress: Progress = SILENT,
) -> Report:
    """Measure networks on a board, on edgedeploy and on other engines, which are brought there for as long as it takes.

    An engine that the board's Python or CPU cannot load, or that cannot run a network, is left out there and named in
    the report.

    Args:
        networks: what to measure, at least one, built for the board.
        peers: the other engines.
        place: the board.
        threads: how many threads to use; the board's cores if None.
        rounds: how many turns each engine has.
        runs: how many inferences of each are timed; as many as fit into short turns if None.
        skipped: what was left out before.
        energy: whether the energy of an inference is measured, too.
        profile: whether its time by function is measured, too.
        failed: as for `measure`.
        progress: is told about each network, and about engines that are left out.

    Raises:
        UnsupportedError: energy was asked for, and the board does not say what power it takes.
        ModelError: the reference cannot run a network.
        CompileError: the outputs on the board cannot be compared with the reference's.
        EdgedeployError: as `edgedeploy.runtime.opening.opened`.
    """
    tally = Tally()
    machine: Machine | None = None
    [address] = addresses(place.board, place.hosts, virtual=place.virtual, progress=progress)
    with (
        Connection(address, strict=place.strict, progress=progress) as connection,
        Visitors(connection, progress) as visitors,
    ):

        def run(script: str) -> str:
            return connection.run(script).text

        observer = Observer(PowerMeter(run) if energy else None, place.board.profile if profile else None, progress)
        state = Throttling(run)
        state.conditions()

        def measured(network: Candidate) -> list[Row]:
            nonlocal machine
            with ExitStack() as stack:
                board = _Board(connection, place, threads, visitors, stack, progress)
                rows = _measure_network(network, peers, board, rounds, runs, observer, tally, progress)
                machine = machine or board.machine
                return rows

        found = each_attempted(measured, {network.case: network for network in networks}, failed)
        after = state.conditions()
    if failed and machine is None:
        raise next(iter(failed.values()))
    assert machine is not None
    machine = machine.model_copy(update={"temperature_after_c": after.temperature_c, "throttled": after.throttled})
    rows = [row for rows in found for row in rows]
    return report_of(machine, networks, rows, [*skipped, *tally.entries()], rounds, runs, failed)


@dataclass
class _Board:
    """A board that one network is measured on.

    Attributes:
        connection, place, threads, progress: where, and with how many threads.
        visitors: the other engines there.
        stack: ends what is started.
        machine: the board, once a network was opened there.
    """

    connection: Connection
    place: Place
    threads: int | None
    visitors: Visitors
    stack: ExitStack
    progress: Progress
    machine: Machine | None = None

    def open(self, packages: Sequence[Path]) -> list[RemoteSession]:
        """Packages, ready to run."""
        profile = self.place.board.profile
        found = open_on(self.connection, profile, packages, self.stack, self.threads, self.progress)
        facts = found[0].facts
        assert facts is not None  # only this machine has none
        self.machine = board_machine(facts, emulated=self.place.emulated(facts.machine))
        sessions = [each.runner for each in found]
        assert all(isinstance(each, RemoteSession) for each in sessions)
        return sessions  # type: ignore[return-value]


def _measure_network(
    network: Candidate,
    peers: Sequence[Engine],
    board: _Board,
    rounds: int,
    runs: int | None,
    observer: Observer,
    tally: Tally,
    progress: Progress,
) -> list[Row]:
    """The rows of one network."""
    packages = {engine: package for engine in (OURS, UNTUNED) if (package := network.package_of(engine))}
    engines = {engine.name: engine for engine in (*packages, *peers)}

    def leave_out(name: str, error: CannotRunError) -> None:
        if tally.skip(engines[name], [network.case], str(error)):
            progress.note(f"{name} is left out for {network.case}: {error}")

    sessions = board.open([package.package_path for package in packages.values()])
    threads = sessions[0].threads
    players: dict[str, OnBoard | Visitor] = {
        engine.name: OnBoard(session, network.tensors()) for engine, session in zip(packages, sessions, strict=True)
    }
    with tempfile.TemporaryDirectory(prefix="edgedeploy-bench-") as folder:
        file = network.write(Path(folder))
        reference = reference_outputs(network, file, Path(folder), _REFERENCE_THREADS)
        outputs = [spec.name for spec in network.outputs]
        for engine in peers:
            scratch = Path(folder) / f"{engine.name}-on-board"
            scratch.mkdir()
            task = Task(
                file,
                network.prepared.package_path,
                network.tensors(),
                outputs,
                threads,
                scratch,
                batch=network.batch or 1,
            )
            try:
                players[engine.name] = board.stack.enter_context(board.visitors.visit(engine, task))
            except CannotRunError as error:
                leave_out(engine.name, error)
    with progress.steps(f"measure {network.case}", min(rounds, runs or rounds) * len(players)) as done:
        turns = take_turns(players, rounds, leave_out, runs=runs, done=done)
    rows = []
    for name in turns:
        engine, player = engines[name], players[name]
        try:
            verdict = judge(player.outputs(), reference)
        except CannotRunError as error:
            if engine in packages:
                raise CompileError(f"edgedeploy's own code for {network.case} does not run", why=str(error)) from error
            leave_out(name, error)
            continue
        package = packages.get(engine)
        costs = Costs(package.build_s, size_bytes=package.package_path.stat().st_size) if package else _needed(player)
        findings = observer.findings(network, engine, player, threads)
        rows.append(row_of(network, engine, player.device, threads, turns, verdict, costs, findings))
    return rows


def _needed(player: OnBoard | Visitor) -> Costs:
    return player.costs() if isinstance(player, Visitor) else Costs()
