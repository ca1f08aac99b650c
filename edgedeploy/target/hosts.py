"""Facts of this machine, from the kernel's own files: the values that a profile's `native` stands for."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from edgedeploy.target.triples import architecture_of, architectures

_CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_BOARD_NAME = Path("/proc/device-tree/model")


@cache
def host_facts() -> dict[str, Any]:
    """Facts of this machine under the names of a board profile's fields.

    `cpu` is LLVM's name; `vector`, `fma` and `cache` are dictionaries. `glibc` is None for other C libraries.
    """
    machine = platform.machine()
    architecture, cpuinfo, features = architecture_of(machine), _cpuinfo(), set(host_features())
    libc, version = platform.libc_ver()
    unit = next(unit for unit in architecture.vectors if features.issuperset(unit.features))
    return {
        "triple": f"{machine}-unknown-linux-gnu",
        "cpu": architecture.core_of(cpuinfo, features).name,
        "cores": len(os.sched_getaffinity(0)),
        "vector": {"bits": unit.bits, "registers": unit.registers},
        "fma": architecture.fma.model_dump(),
        "cache": {"l1_kib": _cache_kib(1) or 32, "l2_kib": _cache_kib(2) or 256},
        "glibc": re.sub(r"^(\d+\.\d+).*", r"\1", version) if libc == "glibc" else None,
    }


def cpu_name() -> str:
    """The processor's name for people; for boards, whose processors have none, the board's and LLVM's of the core."""
    name = _cpuinfo().get("model name", "")
    if name and "model name" in architecture_of(platform.machine()).cpuinfo:
        return name
    try:
        board = _BOARD_NAME.read_text(encoding="utf-8").rstrip("\0\n")
    except OSError:
        board = platform.machine()
    return f"{board} ({host_facts()['cpu']})"


def host_features() -> list[str]:
    """The features of this machine's processor, as Linux names them."""
    info = _cpuinfo()
    return info.get("flags", info.get("features", "")).split()


def missing_features(cpu: str, features: Iterable[str], flags: Iterable[str] = ()) -> set[str]:
    """The features that code relies on and a machine lacks, as in /proc/cpuinfo; empty if too little is known.

    `cpu` is LLVM's name of what the code was generated for, `flags` are LLVM's beyond the CPU's own (`+neon`).
    """
    present = set(features)
    needed: set[str] = set()
    for row in architectures():  # each name of a CPU or feature belongs to one architecture
        present |= {each for word in present & row.implied_features.keys() for each in row.implied_features[word]}
        needed |= {each for core in row.cpus if core.name == cpu for each in core.features}
        needed |= {row.feature_words.get(flag[1:], "") for flag in flags if flag.startswith("+")}
    return needed - present - {""} if present else set()


def cpuinfo_of(triple: str, cpu: str, cores: int) -> str:
    """The /proc/cpuinfo of a machine with this many cores of one kind."""
    architecture = architecture_of(triple)
    core = architecture.core(cpu)
    words = {"name": core.name, "part": core.part or "0x000", "features": " ".join(sorted(core.features))}
    fields = "".join(f"{name}\t: {text.format(**words)}\n" for name, text in architecture.cpuinfo.items())
    return "\n".join(f"processor\t: {number}\n{fields}" for number in range(cores))


def _cpuinfo() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo, names in lower case."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _cache_kib(level: int) -> int | None:
    for index in sorted(_CACHE_FOLDER.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            if int((index / "level").read_text()) == level and kind in ("Data", "Unified"):
                return int((index / "size").read_text().strip().rstrip("K"))
        except (OSError, ValueError):
            continue
    return None


def busyness() -> float:
    """How many times longer than on an idle machine work may take: runnable processes per processor, at least 1."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
