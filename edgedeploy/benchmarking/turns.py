"""Turns: engines run interleaved, so that what changes on the machine meets them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from edgedeploy.benchmarking.engines.engine import CannotRunError
from edgedeploy.benchmarking.worker import Turn
from edgedeploy.runtime.timing import EndToEnd, Timing

# A turn: inferences that are not timed, until caches and threads are warm again, then about as many as fit.
_WARMUP_CALLS, _TURN_S, _CALLS_AT_MOST = 2, 0.1, 200


class Player(Protocol):
    """What runs interleaved: a `EngineWorker`, a network on a board, or a test's stand-in.

    Attributes:
        typical: the median time of an inference once warm, in seconds.
        device: what runs the network.
    """

    typical: float
    device: str

    def turn(self, warmup: int, count: int) -> Turn:
        """Run `warmup` inferences, then time `count`."""
        ...


def take_turns(
    players: Mapping[str, Player],
    rounds: int,
    failed: Callable[[str, CannotRunError], None],
    *,
    runs: int | None = None,
    done: Callable[[], None] = lambda: None,
) -> dict[str, list[Turn]]:
    """Let everyone have a turn, in order, `rounds` times over: A B C, A B C.

    Who fails is reported to `failed` and takes no further turns; its earlier ones do not count.

    Args:
        players: who runs interleaved.
        rounds: how many each has; fewer if there are fewer `runs`.
        failed: is told who failed.
        runs: how many inferences of each are timed in all its turns; as many as fit into short turns if None.
        done: is called after each turn.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in players}
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
