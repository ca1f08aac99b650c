"""The machine that a benchmark ran on, as its reports name it."""

from __future__ import annotations

import os
import platform

from edgedeploy.documents import Record
from edgedeploy.facts import Facts
from edgedeploy.hosts import cpu_name


class Machine(Record):
    """Where times were measured.

    Attributes:
        cpu: the processor's own name.
        cores: how many processors this process may use.
        os: the system and its kernel.
        load: how many processes ran or waited to, on average over the minute before the first measurement; None
            where that is not known.
        governor: of the frequency of a board's first core.
        temperature_c: of a board's hottest zone, in degrees Celsius, before the first measurement.
        temperature_after_c: of the same zone, after the last measurement.
        throttled: whether a board slowed itself down meanwhile; None where that is not known.
        emulated: true for a board that another processor stands in for.
    """

    cpu: str
    cores: int
    os: str
    load: float | None = None
    governor: str | None = None
    temperature_c: float | None = None
    temperature_after_c: float | None = None
    throttled: bool | None = None
    emulated: bool | None = None

    def line(self) -> str:
        """The machine in one line."""
        parts = [
            self.cpu,
            f"{self.cores} cores",
            self.os,
            f"load before the start {self.load:g}" if self.load is not None else None,
            f"governor {self.governor}" if self.governor else None,
            _warmth(self.temperature_c, self.temperature_after_c),
            None if self.throttled is None else f"{'slowed' if self.throttled else 'did not slow'} itself down",
            "emulated: its times say nothing about a real board" if self.emulated else None,
        ]
        return ", ".join(part for part in parts if part)


def this_machine() -> Machine:
    """The facts of this machine, now."""
    return Machine(
        cpu=cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        os=f"{_system()}, Linux {platform.release()}",
        load=round(os.getloadavg()[0], 2),
    )


def board_machine(facts: Facts, *, emulated: bool) -> Machine:
    """The machine that the facts of a board describe."""
    return Machine(
        cpu=facts.hardware or facts.machine or "unknown processor",
        cores=facts.cores or 1,
        os=f"{facts.system or 'unnamed system'}, Linux {facts.kernel or 'of an unknown version'}",
        governor=facts.governor,
        temperature_c=facts.temperature_c,
        emulated=emulated or None,
    )


def _warmth(before: float | None, after: float | None) -> str | None:
    if before is None:
        return None
    return f"{before:.1f} °C" if after is None else f"{before:.1f} °C before and {after:.1f} °C after"


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return "unnamed system"
