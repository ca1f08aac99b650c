"""What this machine is, read from the kernel's own files: the values that a profile's `native` stands for."""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from pathlib import Path
from typing import Any

_CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_BOARD_NAME = Path("/proc/device-tree/model")

# Flags of /proc/cpuinfo that name a micro-architecture to LLVM, newest first. A machine gets the first
# line of which it has all flags. The names are those of LLVM's X86TargetParser.
_X86_CPUS: list[tuple[str, set[str]]] = [
    ("sapphirerapids", {"amx_tile", "avx512_fp16", "avx512f"}),
    ("cooperlake", {"avx512_bf16", "avx512_vnni"}),
    ("icelake-server", {"avx512_vbmi2", "avx512_vnni", "avx512vl"}),
    ("cascadelake", {"avx512_vnni", "avx512vl"}),
    ("skylake-avx512", {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"}),
    ("x86-64-v3", {"avx2", "fma", "bmi1", "bmi2", "f16c", "abm", "movbe"}),
    ("x86-64-v2", {"sse4_2", "ssse3", "popcnt", "cx16"}),
]

# Part numbers of /proc/cpuinfo's "CPU part" for ARM's own cores (implementer 0x41).
_ARM_CPUS = {
    "0xc07": "cortex-a7",
    "0xd03": "cortex-a53",
    "0xd05": "cortex-a55",
    "0xd08": "cortex-a72",
    "0xd0b": "cortex-a76",
    "0xd0c": "neoverse-n1",
    "0xd40": "neoverse-v1",
    "0xd49": "neoverse-n2",
}


@cache
def host_facts() -> dict[str, Any]:
    """Facts of this machine under the names of a board profile's fields.

    `cpu` is a name that LLVM knows; `vector`, `fma` and `cache` are dictionaries. `glibc` is None where
    the C library is another one.
    """
    machine = platform.machine()
    cpuinfo = _cpuinfo()
    flags = set(cpuinfo.get("flags", cpuinfo.get("features", "")).split())
    libc, version = platform.libc_ver()
    facts: dict[str, Any] = {
        "triple": f"{machine}-unknown-linux-gnu",
        "cores": len(os.sched_getaffinity(0)),
        "cache": {"l1_kib": _cache_kib(1) or 32, "l2_kib": _cache_kib(2) or 256},
        "glibc": re.sub(r"^(\d+\.\d+).*", r"\1", version) if libc == "glibc" else None,
    }
    if machine == "x86_64":
        bits = 512 if "avx512vl" in flags else 256 if "avx2" in flags else 128
        # Intel and AMD cores of the last decade: 4 cycles, two units; 512-bit servers have two as well.
        facts |= {
            "vector": {"bits": bits, "registers": 32 if bits == 512 else 16},
            "fma": {"latency": 4, "per_cycle": 2},
        }
        facts["cpu"] = next((name for name, needed in _X86_CPUS if needed <= flags), "x86-64")
    else:
        facts |= {"vector": {"bits": 128, "registers": 32}, "fma": {"latency": 4, "per_cycle": 2}}
        facts["cpu"] = _ARM_CPUS.get(cpuinfo.get("cpu part", ""), "generic")
    return facts


def cpu_name() -> str:
    """The processor's name for people; boards have none, and go by the board's name and LLVM's of the core."""
    name = _cpuinfo().get("model name", "")
    if name and platform.machine() == "x86_64":
        return name
    try:
        board = _BOARD_NAME.read_text(encoding="utf-8").rstrip("\0\n")
    except OSError:
        board = platform.machine()
    return f"{board} ({host_facts()['cpu']})"


def missing_flags(cpu: str) -> set[str]:
    """The processor features, as Linux names them, that code for an x86 CPU uses and this machine lacks.

    Empty where nothing is known about that CPU: ARM cores are told apart by their ELF machine only.
    """
    info = _cpuinfo()
    return dict(_X86_CPUS).get(cpu, set()) - set(info.get("flags", "").split()) if "flags" in info else set()


def _cpuinfo() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo, names in lower case."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _cache_kib(level: int) -> int | None:
    """Size of the first processor's data cache of a level, as the kernel states it."""
    for index in sorted(_CACHE_FOLDER.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            if int((index / "level").read_text()) == level and kind in ("Data", "Unified"):
                return int((index / "size").read_text().strip().rstrip("K"))
        except (OSError, ValueError):
            continue
    return None
