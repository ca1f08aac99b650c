"""Turns: engines run interleaved, so that changes on the machine affect all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from edgedeploy.benchmarking.engines.engine import CannotRunError, Profile
from edgedeploy.runtime.timing import EndToEnd, Timing

Key = TypeVar("Key")

# A turn: inferences that are not timed, until caches and threads are warm again, then about as many as fit.
_WARMUP_CALLS, _TURN_S, _CALLS_AT_MOST = 2, 0.1, 200


@dataclass(frozen=True)
class Turn:
    """The times of one turn's inferences, and how many processors were busy on average; None if unknown."""

    seconds: list[float]
    processors: float | None
    kernel_seconds: list[float] | None = None  # of each inference, the sum of its kernels by the device's own clock


@dataclass(frozen=True)
class Costs:
    """What an engine needs besides the time of an inference; None if unknown."""

    # The time of its compiler or converter before the network could be loaded; for edgedeploy, the time of building the
    # package
    compile_s: float | None = None
    load_s: float | None = None  # from the file to a network that is ready, without importing the engine itself
    first_s: float | None = None
    # The most memory that its process had in use after that, the engine's own code included
    peak_bytes: int | None = None
    size_bytes: int | None = None  # of the files that it reads, or of edgedeploy's package, which is compressed


class Player(Protocol):
    """An engine with a network; `typical` is the median time of an inference once warm, in seconds."""

    typical: float
    device: str

    def turn(self, warmup: int, count: int) -> Turn:
        """Run `warmup` inferences, then time `count`."""
        ...

    def outputs(self) -> dict[str, np.ndarray]:
        """The outputs of the last inference by name."""
        ...

    def profile(self, count: int) -> Profile | None:
        """The times of `count` inferences by function; None if the engine does not support it."""
        ...

    def costs(self) -> Costs:
        """What it needed besides the time of an inference."""
        ...


def take_turns(
    players: Mapping[Key, Player],
    rounds: int,
    failed: Callable[[Key, CannotRunError], None],
    *,
    runs: int | None = None,
    done: Callable[[], None] = lambda: None,
) -> dict[Key, list[Turn]]:
    """Let every player have a turn, in order, `rounds` times over: A B C, A B C.

    A player that fails is reported to `failed` and takes no further turns; its earlier ones do not count. `runs` is how
    many inferences of each are timed in all its turns: as many as fit into short turns if None; if there are fewer than
    rounds, there are as many rounds.
    """
    turns: dict[Key, list[Turn]] = {name: [] for name in players}
    for count in [None] * rounds if runs is None else shares(runs, rounds):
        for name in list(turns):
            player = players[name]
            try:
                turns[name].append(player.turn(_WARMUP_CALLS, count or calls_per_turn(player.typical)))
            except CannotRunError as error:
                del turns[name]
                failed(name, error)
            done()
    return turns


def shares(runs: int, rounds: int) -> list[int]:
    """`runs` in `rounds` parts that differ by one at most; as many parts of one if there are fewer runs than rounds."""
    return [part for index in range(rounds) if (part := (runs + rounds - 1 - index) // rounds)]


def calls_per_turn(typical: float) -> int:
    """How many inferences of `typical` seconds are timed in one turn: about a tenth of a second's, 1 to 200."""
    return max(1, min(_CALLS_AT_MOST, round(_TURN_S / max(typical, 1e-9))))


def timing(turns: Sequence[Turn]) -> EndToEnd:
    """The times of all inferences of all turns."""
    kernels = [seconds for turn in turns for seconds in turn.kernel_seconds or ()]
    total = Timing.of_seconds([seconds for turn in turns for seconds in turn.seconds])
    return EndToEnd(total, Timing.of_seconds(kernels) if kernels else None)
