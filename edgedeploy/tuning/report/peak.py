"""The most operations a second that a board's processor could do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgedeploy.compile.types import lanes_for
from edgedeploy.errors import EdgedeployError
from edgedeploy.records.header import Header
from edgedeploy.records.trial import Trial
from edgedeploy.resolved import resolve
from edgedeploy.text import significant

_OPERATIONS = 2  # a multiplication and an addition


@dataclass(frozen=True)
class Peak:
    """A peak: 10^9 operations on float32 a second, or None if it is not known; and how it came about."""

    gflops: float | None
    explanation: str


def peak_of(header: Header, trials: Iterable[Trial]) -> Peak:
    """The peak of the board that records are of.

    It is cores x frequency x fused multiply-adds that start per cycle x float32 lanes x 2, as the board's profile
    states them, at the highest frequency that was read with the trials.
    """
    if header.target.get("kind") != "llvm":
        return Peak(None, "the peak is not known: networks run on a device beside the CPU, whose rate is not stated")
    try:
        board = resolve(header.board).profile
    except EdgedeployError as error:
        return Peak(None, f"the peak is not known: {error.what}")
    read = [trial.conditions.frequency_mhz for trial in trials if trial.conditions]
    frequencies = [frequency for frequency in read if frequency]
    if not frequencies:
        return Peak(None, "the peak is not known: no trial tells the frequency of the board")
    cores = header.target.get("num-cores")
    if not isinstance(cores, int) or not 0 < cores <= 1 << 16:
        cores = board.cores
    lanes, frequency = lanes_for(board, "float32"), max(frequencies)
    gflops = cores * frequency / 1e3 * board.fma.per_cycle * lanes * _OPERATIONS
    return Peak(
        gflops,
        f"the peak is {significant(gflops)} GFLOP/s: {cores} cores x {frequency:.0f} MHz, the highest frequency "
        f"that was read, x {board.fma.per_cycle:g} fused multiply-adds per cycle x {lanes} lanes x {_OPERATIONS}",
    )
