"""The measurement on a board over SSH: edgedeploy alone, timed there, with the reference's outputs from here."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgedeploy.bench.engines import OURS, REFERENCE
from edgedeploy.bench.engines.engine import CannotRunError, Engine
from edgedeploy.bench.machine import Machine, board_machine
from edgedeploy.bench.measure import compare, median_ms, reference_outputs, take_turns
from edgedeploy.bench.networks import Candidate
from edgedeploy.bench.report import Report, Row, Skipped
from edgedeploy.bench.worker import Turn
from edgedeploy.errors import CompileError
from edgedeploy.progress import SILENT, Progress
from edgedeploy.runtime.interface import Runner, Tensors
from edgedeploy.runtime.opening import Place, opened

# The reference runs on this machine, for its outputs only.
_REFERENCE_THREADS = 1

_WARMUP_CALLS = 3


class OnBoard:
    """A network on a board that takes turns as a `Worker` does; no transfer is in its times."""

    def __init__(self, runner: Runner, tensors: Tensors) -> None:
        self._runner, self._tensors = runner, tensors
        # The median time of an inference once warm, in seconds.
        self.typical = runner.measure(tensors, repeat=_WARMUP_CALLS, warmup=1).median_ms / 1e3

    def turn(self, warmup: int, count: int) -> Turn:
        """Run `warmup` inferences, then time `count`; how many processors were busy is not known."""
        timing = self._runner.measure(self._tensors, repeat=count, warmup=warmup)
        return Turn([milliseconds / 1e3 for milliseconds in timing.runs_ms], None)

    def outputs(self) -> dict[str, np.ndarray]:
        """The outputs of one more inference by name."""
        return self._runner.run(self._tensors)


def measure_on_board(
    networks: Sequence[Candidate],
    peers: Sequence[Engine],
    place: Place,
    *,
    threads: int | None,
    rounds: int,
    progress: Progress = SILENT,
) -> Report:
    """Measure networks on a board. The other engines do not run there: they are named as left out.

    Args:
        networks: what to measure, at least one, built for the board.
        peers: the other engines.
        place: the board.
        threads: how many threads to use; the board's cores if None.
        rounds: how many turns each network has.
        progress: is told about each network.

    Raises:
        ModelError: the reference cannot run a network.
        CompileError: the outputs on the board cannot be compared with the reference's.
        EdgedeployError: as `edgedeploy.runtime.opening.opened`.
    """
    rows: list[Row] = []
    machine: Machine | None = None
    for network in networks:
        tensors = network.tensors()
        with opened(network.prepared.package_path, place, threads, progress) as there:
            assert there.facts is not None  # only this machine has none
            machine = machine or board_machine(there.facts, emulated=place.emulated(there.facts.machine))
            with progress.stage(f"measure {network.name}"):
                player = OnBoard(there.runner, tensors)
                turns = take_turns({OURS.name: player}, rounds, lambda *_: None)[OURS.name]
                outputs = player.outputs()
        with tempfile.TemporaryDirectory(prefix="edgedeploy-bench-") as folder:
            reference = reference_outputs(network, network.write(Path(folder)), Path(folder), _REFERENCE_THREADS)
        try:
            found = compare(outputs, reference)
        except CannotRunError as error:
            raise CompileError(f"edgedeploy's own code for {network.name} does not run", why=str(error)) from error
        rows.append(
            Row(
                network.name,
                OURS.name,
                OURS.version(),
                there.runner.threads,
                median_ms(turns),
                1.0,
                found.relative,
                found.absolute,
            )
        )
    assert machine is not None
    models = [network.name for network in networks]
    skipped = [Skipped(peer.name, models, "engines are compared on this machine only") for peer in peers]
    return Report(machine, OURS.name, REFERENCE.name, rounds, rows, skipped)
