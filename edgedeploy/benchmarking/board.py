"""The measurement on a board over SSH: engines are timed there, with the reference's outputs from this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from edgedeploy.benchmarking.board_engines import BoardEngines
from edgedeploy.benchmarking.engines import OURS, UNTUNED
from edgedeploy.benchmarking.engines.engine import CPU, CannotRunError, Engine, Profile, profile_of_functions
from edgedeploy.benchmarking.measure import Measurement, reference_outputs, task_for
from edgedeploy.benchmarking.networks import Candidate
from edgedeploy.benchmarking.report import Machine, Report, Row, board_machine
from edgedeploy.benchmarking.turns import Costs, Player, Turn
from edgedeploy.model.tensors import Tensors
from edgedeploy.remote.address import addresses
from edgedeploy.remote.connection import Connection
from edgedeploy.runtime.opening import Place, open_on
from edgedeploy.runtime.served import RemoteSession
from edgedeploy.tuning.conditions import Throttling

_WARMUP_CALLS = 3


class _BoardPackage:
    """A package on a board, as a player; no transfer to the board is part of its times."""

    def __init__(self, session: RemoteSession, tensors: Tensors) -> None:
        self._session, self._tensors = session, tensors
        self.typical = session.measure_end_to_end(tensors, repeat=_WARMUP_CALLS, warmup=1).total.median_ms / 1e3
        self.device = session.device_name or CPU

    def turn(self, warmup: int, count: int) -> Turn:
        times = self._session.measure_end_to_end(self._tensors, repeat=count, warmup=warmup)
        kernels = [milliseconds / 1e3 for milliseconds in times.kernels.runs_ms] if times.kernels else None
        return Turn([milliseconds / 1e3 for milliseconds in times.total.runs_ms], None, kernels)

    def profile(self, count: int) -> Profile:
        return profile_of_functions(self._session, self._tensors, count)

    def outputs(self) -> dict[str, np.ndarray]:
        return self._session.run(self._tensors)  # one more inference

    def costs(self) -> Costs:
        return Costs()  # the agent measures none


def measure_on_board(
    networks: Sequence[Candidate], peers: Sequence[Engine], place: Place, threads: int | None, measurement: Measurement
) -> Report:
    """Measure networks on a board, on edgedeploy and on other engines, which are removed from the board afterwards.

    The report names engines that the board's Python or CPU cannot load, or that cannot run a network. There is at least
    one network, built for the board. There are as many `threads` as the board has cores if None.
    """
    machine: Machine | None = None
    progress = measurement.progress
    [address] = addresses(place.board, place.hosts, virtual=place.virtual, progress=progress)
    with (
        Connection(address, strict=place.strict, progress=progress) as connection,
        BoardEngines(connection, progress) as board_engines,
    ):

        def run(script: str) -> str:
            return connection.run(script).text

        measurement, state = measurement.metered(run), Throttling(run)
        state.conditions()

        def measured(network: Candidate) -> list[Row]:
            nonlocal machine
            with ExitStack() as stack:
                packages = {engine: package for engine in (OURS, UNTUNED) if (package := network.package_of(engine))}
                paths = [package.package_path for package in packages.values()]
                opened = open_on(connection, place.board.profile, paths, stack, threads, progress)
                facts = opened[0].facts
                assert facts is not None  # only this machine has none
                machine = machine or board_machine(facts, emulated=place.emulated(facts.machine))
                players: dict[Engine, Player] = {}
                for engine, each in zip(packages, opened, strict=True):
                    assert isinstance(each.runner, RemoteSession)
                    players[engine] = _BoardPackage(each.runner, network.tensors())
                used = opened[0].runner.threads
                with tempfile.TemporaryDirectory(prefix="edgedeploy-bench-") as name:
                    folder = Path(name)
                    file = network.write(folder)
                    reference = reference_outputs(network, file, folder, threads=1)  # on this machine
                    for engine in peers:
                        try:
                            task = task_for(network, engine, file, folder, used)
                            players[engine] = stack.enter_context(board_engines.load(engine, task))
                        except CannotRunError as error:
                            measurement.leave_out(network, engine, error)
                return measurement.rows(network, players, reference, used)

        rows = measurement.all_rows(networks, measured)
        after = state.conditions()
    assert machine is not None
    machine = machine.model_copy(update={"temperature_after_c": after.temperature_c, "throttled": after.throttled})
    return measurement.report(machine, networks, rows)
