"""What is measured of each engine once its turns are over: the energy of an inference, and its time by function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from edgedeploy.benchmarking.energy import Energy, PowerMeter
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Profile
from edgedeploy.benchmarking.networks import Candidate
from edgedeploy.benchmarking.turns import Player
from edgedeploy.board import Board
from edgedeploy.package.members import read_work
from edgedeploy.progress import Progress
from edgedeploy.runtime.profile import FunctionProfile, profile_of_operators, profiled

# How many inferences are timed by function.
_PROFILED = 10


class Observed(Player, Protocol):
    """What can be looked at further."""

    def profile(self, count: int) -> Profile | None:
        """The times of `count` inferences by function; None if nothing tells."""
        ...


@dataclass(frozen=True)
class Findings:
    """What was found of one engine on one network.

    Attributes:
        energy: of an inference; None if it was not asked for, or could not be measured.
        functions: the time by function, the longest first; None if that was not asked for, or nothing tells.
    """

    energy: Energy | None = None
    functions: tuple[FunctionProfile, ...] | None = None


@dataclass(frozen=True)
class Observer:
    """Measures what was asked for.

    Attributes:
        meter: reads the board's power; None if energy is not asked for.
        board: the board's profile, if the time by function is asked for.
        progress: is told what could not be measured.
    """

    meter: PowerMeter | None
    board: Board | None
    progress: Progress

    def findings(self, network: Candidate, engine: Engine, player: Observed, threads: int) -> Findings:
        """Look at an engine that is not needed any more: it may end."""
        energy, functions = None, None
        try:
            if self.meter:
                with self.progress.stage(f"energy of {network.case} on {engine.name}"):
                    energy = self.meter.energy_of(player)
            if self.board:
                functions = self._functions(network, engine, player, threads, self.board)
        except CannotRunError as error:
            self.progress.note(f"{engine.name} on {network.case} was not looked at further: {error}")
        return Findings(energy, functions)

    def _functions(
        self, network: Candidate, engine: Engine, player: Observed, threads: int, board: Board
    ) -> tuple[FunctionProfile, ...] | None:
        with self.progress.stage(f"profile {network.case} on {engine.name}"):
            times = player.profile(_PROFILED)
        if times is None:
            self.progress.note(f"{engine.name} does not say what its operators take")
            return None
        package = network.package_of(engine)
        if package is None:
            return tuple(profile_of_operators(times))
        work = read_work(package.package_path)
        return tuple(profiled({name: each for name, (_, each) in times.items()}, work, board, threads))
