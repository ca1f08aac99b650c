"""What this machine is, read from the kernel's own files: the values that a profile's `native` stands for."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
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

# Words of an ARM core's "Features" in /proc/cpuinfo that code for it relies on (arm64: Documentation/arch/arm64/
# elf_hwcaps.rst in Linux). The cryptographic ones are left out: the Raspberry Pis' cores lack them, and no network
# uses them.
_ARM_V8 = {"fp", "asimd", "crc32"}
_ARM_V82 = _ARM_V8 | {"atomics", "fphp", "asimdhp", "asimdrdm", "lrcpc", "dcpop", "asimddp"}
_ARM_FEATURES = {
    "cortex-a7": {"vfp", "neon", "vfpv3", "vfpv4", "idiva", "idivt"},
    "cortex-a53": _ARM_V8,
    "cortex-a55": _ARM_V82,
    "cortex-a72": _ARM_V8,
    "cortex-a76": _ARM_V82,
    "neoverse-n1": _ARM_V82,
}
# LLVM's feature flags that code beyond a CPU's own relies on, and the words of /proc/cpuinfo for them.
_FLAGS = {
    "bf16": "bf16",
    "crc": "crc32",
    "dotprod": "asimddp",
    "fullfp16": "asimdhp",
    "i8mm": "i8mm",
    "lse": "atomics",
    "neon": "neon",
    "sve": "sve",
    "sve2": "sve2",
    "vfp4": "vfpv4",
    "avx": "avx",
    "avx2": "avx2",
    "avx512f": "avx512f",
    "avx512vnni": "avx512_vnni",
    "f16c": "f16c",
    "fma": "fma",
}
# A 64-bit kernel states its own words to 32-bit programs: this one means all of these.
_IMPLIED = {"asimd": {"vfp", "neon", "vfpv3", "vfpv4", "idiva", "idivt"}}


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


def host_features() -> list[str]:
    """The features of this machine's processor, as Linux names them."""
    info = _cpuinfo()
    return info.get("flags", info.get("features", "")).split()


def missing_features(cpu: str, features: Iterable[str], flags: Iterable[str] = ()) -> set[str]:
    """What code relies on and a machine does not have, as /proc/cpuinfo names it.

    Empty where nothing is known about the CPU and the flags, or the machine states no features.

    Args:
        cpu: what the code was generated for, as LLVM names it.
        features: the machine's, as /proc/cpuinfo names them.
        flags: LLVM's feature flags beyond the CPU's own; those that begin with `+` count.
    """
    present = set(features)
    for word in present & _IMPLIED.keys():
        present |= _IMPLIED[word]
    needed = set({**dict(_X86_CPUS), **_ARM_FEATURES}.get(cpu, set()))
    needed |= {_FLAGS[flag[1:]] for flag in flags if flag.startswith("+") and flag[1:] in _FLAGS}
    return needed - present if present else set()


def cpuinfo_of(cpu: str, cores: int) -> str:
    """What /proc/cpuinfo says on a machine with so many ARM cores of one kind, in the kernel's form."""
    features = " ".join(sorted(_ARM_FEATURES.get(cpu, _ARM_V8)))
    part = next((number for number, name in _ARM_CPUS.items() if name == cpu), "0x000")
    fields = f"Features\t: {features}\nCPU implementer\t: 0x41\nCPU part\t: {part}\n"
    return "\n".join(f"processor\t: {core}\n{fields}" for core in range(cores))


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


def busyness() -> float:
    """How many times as long as on an idle machine work may take: processes that want to run, for each processor."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
