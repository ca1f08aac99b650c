"""Facts that boards report, and the stored ones, which are defaults for a profile's open fields."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from edgedeploy.base.documents import Record
from edgedeploy.base.files import write_text
from edgedeploy.base.settings import user_folder
from edgedeploy.target.opencl.device import Device

# Prefix of a virtual board's name in place of an address.
VIRTUAL = "virtual:"
# The address that means this machine, even for other boards' profiles.
HERE = "local"


class Facts(Record):
    """What a board is. Unknown facts are None, or empty."""

    machine: str | None = None  # from `uname`, as is `kernel`
    kernel: str | None = None
    system: str | None = None  # the name of its distribution
    hardware: str | None = None  # the name of the board, or of its processor
    # Of its programs, as are the next two; a 64-bit kernel may run a 32-bit system
    elf_class: Literal[32, 64] | None = None
    elf_machine: str | None = None
    float_abi: Literal["hard", "soft"] | None = None
    glibc: Annotated[str, Field(pattern=r"^\d+(\.\d+)*$")] | None = None
    features: list[str] = []  # of the processor, as in /proc/cpuinfo
    cores: int | None = None
    governor: str | None = None  # of the first core's frequency
    temperature_c: float | None = None  # of the hottest zone
    memory_bytes: int | None = None
    free_bytes: int | None = None  # of the disk below the home folder
    agent: str | None = None  # the build of the agent that answered
    opencl: list[Device] = []

    def line(self) -> str:
        """A one-line summary: hardware, cores, governor, temperature."""
        parts = [
            self.hardware or self.machine or "unknown hardware",
            f"{self.cores} cores" if self.cores else None,
            f"governor {self.governor}" if self.governor else None,
            f"{self.temperature_c:.1f} °C" if self.temperature_c is not None else None,
        ]
        return ", ".join(part for part in parts if part)


class Probed(Record):
    """The facts of the board of a profile, at an address and a time (UTC)."""

    board: str
    host: str
    time: datetime
    facts: Facts


def store(probed: Probed) -> Path:
    """Store the facts of a board, replacing earlier ones from the same host."""
    name = re.sub(r"[^\w.@-]", "_", f"{probed.board}-{probed.host}")
    path = user_folder("data") / "boards" / f"{name}.json"
    write_text(path, probed.model_dump_json(indent=1) + "\n")
    return path


def stored(board: str) -> list[Probed]:
    """The stored facts of the boards of one profile, the latest first; invalid files are skipped."""
    found = []
    for path in user_folder("data").glob("boards/*.json"):
        try:
            found.append(Probed.model_validate_json(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):  # ValidationError is a ValueError
            continue
    return sorted((each for each in found if each.board == board), key=lambda each: each.time, reverse=True)


def defaults(board: str) -> dict[str, Any]:
    """Profile fields from probed boards: the fewest cores and the oldest glibc.

    Virtual boards do not count: their cores and OpenCL devices are this machine's.
    """
    known = of_real_boards(board)
    cores = [facts.cores for facts in known if facts.cores]
    # A profile states two numbers of the version.
    versions = [tuple(map(int, facts.glibc.split(".")[:2])) for facts in known if facts.glibc]
    fields = {"cores": min(cores, default=None), "glibc": ".".join(map(str, min(versions))) if versions else None}
    return {name: value for name, value in fields.items() if value is not None}


def of_real_boards(board: str) -> list[Facts]:
    """The stored facts of one profile's boards, except virtual ones, the latest first."""
    return [each.facts for each in stored(board) if not each.host.startswith(VIRTUAL)]
