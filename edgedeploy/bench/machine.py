"""The machine that a benchmark ran on, as its reports name it."""

from __future__ import annotations

import os
import platform

from edgedeploy.documents import Record
from edgedeploy.hosts import cpu_name


class Machine(Record):
    """Where times were measured.

    Attributes:
        cpu: the processor's own name.
        cores: how many processors this process may use.
        os: the system and its kernel.
        load: how many processes ran or waited to, on average over the minute before the first measurement.
    """

    cpu: str
    cores: int
    os: str
    load: float


def this_machine() -> Machine:
    """The facts of this machine, now."""
    return Machine(
        cpu=cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        os=f"{_system()}, Linux {platform.release()}",
        load=round(os.getloadavg()[0], 2),
    )


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return "unnamed system"
