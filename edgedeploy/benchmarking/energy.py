"""The energy of inferences, on boards that measure their power."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

from edgedeploy.base.programs import script
from edgedeploy.benchmarking.engines.engine import CannotRunError
from edgedeploy.benchmarking.turns import Player
from edgedeploy.errors import UnsupportedError
from edgedeploy.tuning.conditions import Run

_SCRIPT = script(__package__, "power.sh")

# The number of power samples, the time between them, and how long inferences run before the first one.
_SAMPLES, _PAUSE_S, _AFTER_S = 20, 0.1, 0.5
# The time that reading takes on a slow board, without the pauses.
_READING_S = 1.0
_WARMUP_CALLS, _ATTEMPTS = 2, 4

# As the firmware prints what the power chip of a Raspberry Pi 5 measures: `VDD_CORE_A current(7)=1.16321400A`, and
# in some versions `VDD_CORE_A=1.163A`.
_RAIL = re.compile(r"^\s*(\w+)_([AV])(?: \w+\(\d+\))?\s*=\s*(\d{1,6}(?:\.\d{1,15})?)[AV]\s*$", re.ASCII | re.M)
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True)
class Energy:
    """The energy of one call, including the board's idle power, and the mean power while calls follow one another."""

    joules: float
    watts: float
    idle_watts: float
    source: str  # a key of `SOURCES`
    estimated: bool  # whether the source misses a part of the board


class PowerMeter:
    """Reads the power of a board, which is idle when this is created."""

    def __init__(self, run: Run, root: str = "") -> None:
        """Read the idle power; `run` runs scripts on the board, `root` is a prefix for the paths of system files."""
        self._run, self._root = run, root
        self.source, self.idle_watts = self._read()

    def energy_of(self, player: Player) -> Energy:
        """The energy of an inference while one follows another."""
        seconds = _AFTER_S + _SAMPLES * _PAUSE_S + _READING_S
        for _ in range(_ATTEMPTS):
            count = max(1, math.ceil(seconds / player.typical))
            with ThreadPoolExecutor(1) as pool:
                reading = pool.submit(lambda: (self._read()[1], perf_counter()))
                turn = player.turn(_WARMUP_CALLS, count)
                ended = perf_counter()
                watts, read = reading.result()
            if read <= ended:
                each = fmean(turn.seconds)
                return Energy(watts * each, watts, self.idle_watts, self.source, SOURCES[self.source].estimated)
            seconds *= 2
        raise CannotRunError("its inferences end before its power is read")

    def _read(self) -> tuple[str, float]:
        """The source, and the mean of the samples in watts."""
        values = {"root": self._root, "count": _SAMPLES, "pause": _PAUSE_S, "after": _AFTER_S}
        head = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())
        output = self._run(head + _SCRIPT)
        first, _, rest = output.partition("\n")
        source = first.removeprefix("source ").strip()
        samples = [_sample(each) for each in rest.split("sample ")[1:]]
        watts = SOURCES[source].mean(samples) if source in SOURCES else None
        if watts is None:
            raise UnsupportedError(
                "the board does not say what power it takes",
                why="it has no sensor such as an INA219 with a driver, no power chip that vcgencmd knows, as a "
                "Raspberry Pi 5 has, and no counters of energy that may be read",
                hints=[
                    "put an INA219 into the supply line, and load its driver: "
                    "echo ina219 0x40 | sudo tee /sys/bus/i2c/devices/i2c-1/new_device",
                    "on x86: sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj",
                ],
            )
        return source, watts


# The clock in seconds, and the source's output.
_Sample = tuple[float, str]


def _sample(text: str) -> _Sample:
    clock, _, output = text.partition("\n")
    try:
        return float(clock), output
    except ValueError:
        return math.nan, output


def _of_sensor(samples: list[_Sample]) -> float | None:
    read = [int(output) * 1e-6 for _, output in samples if _WHOLE.fullmatch(output.strip())]
    return fmean(read) if read else None


def _of_rails(samples: list[_Sample]) -> float | None:
    """The sum of the rails' powers; the supply and the battery have a voltage, and no current."""
    sums = []
    for _, output in samples:
        read = {(name, unit): float(value) for name, unit, value in _RAIL.findall(output)}
        rails = [value * read[name, "V"] for (name, unit), value in read.items() if unit == "A" and (name, "V") in read]
        if rails:
            sums.append(math.fsum(rails))
    return fmean(sums) if sums else None


def _of_counters(samples: list[_Sample]) -> float | None:
    """The increase of all counters; they begin at zero again after some minutes, or an hour."""
    read = [(clock, [int(each) for each in output.split() if _WHOLE.fullmatch(each)]) for clock, output in samples]
    grown = seconds = 0.0
    for (before, old), (after, new) in pairwise(read):
        if after > before and len(old) == len(new) and new and all(b >= a for a, b in zip(old, new, strict=True)):
            grown += sum(new) - sum(old)
            seconds += after - before
    return grown * 1e-6 / seconds if seconds else None


class Source(NamedTuple):
    """A source of power readings: its description, whether it misses a part of the board, and the mean of samples."""

    description: str
    estimated: bool
    mean: Callable[[list[_Sample]], float | None]


SOURCES = {
    "sensor": Source("a sensor in the supply line", False, _of_sensor),
    "rails": Source(
        "the rails of the power chip, summed, without the losses of its regulators and what is plugged in",
        True,
        _of_rails,
    ),
    "counters": Source("the processor's own counters, without the rest of the board", True, _of_counters),
}
