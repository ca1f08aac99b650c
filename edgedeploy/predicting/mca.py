"""LLVM's tools: disassembled instructions, and the cycles of straight code on the model of a core."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from edgedeploy.base.programs import capture
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import ToolchainError, UnsupportedError
from edgedeploy.predicting.record import WIDTH, Block

# In versions 14 and 16 to 18 the models of Cortex-A76 and Neoverse N1 are that of Cortex-A57: half as many products.
OLDEST = 19
_INSTALL = f"apt-get install llvm-{OLDEST}"
_NEWEST_TRIED = 30

_BATCH = 100  # regions that one call of llvm-mca is given

# Instructions without cycles in LLVM's models, or that would end a window: system calls, hints, barriers, atomics.
_OPAQUE = re.compile(
    r"(svc|hint|dmb|dsb|isb|mrs|msr|brk|udf|dc|ic|prfu?m|ldx\w+|ldax\w+|stx\w+|stlx\w+|yield|clrex|cas\w*|swp\w*"
    r"|ld(add|set|clr|eor|[su]max|[su]min)\w*|bti|paci\w+|auti\w+|xpac\w*|sysl?)\b"
)


@dataclass(frozen=True)
class Llvm:
    """The programs llvm-mca and llvm-mc, and their version, such as 19.1.7."""

    mca: str
    mc: str
    version: str

    @classmethod
    def found(cls) -> Llvm:
        """The oldest version here that is new enough: predictions were confirmed with that one."""
        refused = []
        for suffix in (*(f"-{number}" for number in range(OLDEST, _NEWEST_TRIED)), ""):
            mca, mc = shutil.which(f"llvm-mca{suffix}"), shutil.which(f"llvm-mc{suffix}")
            if mca is None or mc is None:
                continue
            match = re.search(r"LLVM version (\d+(?:\.\d+)*)", capture([mca, "--version"]).stdout)
            version = match[1] if match else None
            if version and int(version.partition(".")[0]) >= OLDEST:
                return cls(mca, mc, version)
            refused.append(f"{mca} is {version or 'of an unknown version'}")
        raise UnsupportedError(
            f"there is no llvm-mca {OLDEST} or later, which knows the cycles of instructions",
            why="; ".join([*refused, f"before {OLDEST} it takes a Cortex-A76 for a Cortex-A57"]),
            hints=[_INSTALL],
        )

    def disassembled(self, blocks: Sequence[Block]) -> list[list[str]]:
        """The instructions of each block as text; those without cycles are `nop`."""
        words = [block.code[at : at + WIDTH] for block in blocks for at in range(0, len(block.code), WIDTH)]
        text = "".join(" ".join(f"0x{byte:02x}" for byte in word) + "\n" for word in words)
        command = [self.mc, "--disassemble", "-triple=aarch64", "-mattr=+v9.2a,+fullfp16,+dotprod,+sve2,+bf16,+i8mm"]
        done = capture(command, input=text)
        invalid = {int(line) - 1 for line in re.findall(r"<stdin>:(\d+):\d+: warning: invalid", done.stderr)}
        lines = [line for line in done.stdout.splitlines() if line.strip() and not line.strip().startswith(".")]
        if len(lines) != len(words) - len(invalid):
            raise ToolchainError(f"{self.mc} does not read the code that ran", why=done.stderr.strip()[:500] or None)
        valid = iter(lines)
        every = iter("nop" if place in invalid else plain(next(valid)) for place in range(len(words)))
        return [[next(every) for _ in range(block.length)] for block in blocks]

    def cycles(
        self, regions: Sequence[Sequence[str]], model: str, progress: Progress = SILENT, title: str = "predict"
    ) -> list[int]:
        """The cycles that each sequence of instructions takes once, all data in the first cache, all branches foreseen.

        `model` is LLVM's name of the core, `title` says what is predicted.
        """
        command = [self.mca, "-mtriple=aarch64", f"-mcpu={model}", "-mattr=+v8.2a,+fullfp16,+dotprod", "-iterations=1"]
        command += ["-instruction-info=0", "-resource-pressure=0", "-noalias=1"]

        def measured(part: Sequence[Sequence[str]]) -> list[int]:
            text = "".join(
                f"# LLVM-MCA-BEGIN {place}\n" + "\n".join(lines) + "\n# LLVM-MCA-END\n"
                for place, lines in enumerate(part)
            )
            done = capture(command, input=text)
            found = [int(cycles) for cycles in re.findall(r"^Total Cycles:\s+(\d+)", done.stdout, re.MULTILINE)]
            if len(found) != len(part):
                raise ToolchainError(f"{self.mca} does not predict {model}", why=done.stderr.strip()[:500] or None)
            advance()
            return found

        parts = [regions[at : at + _BATCH] for at in range(0, len(regions), _BATCH)]
        with progress.steps(title, len(parts)) as advance, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return [cycles for part in pool.map(measured, parts) for cycles in part]


def plain(line: str) -> str:
    """An instruction with one blank after its mnemonic and no comment; `nop` if LLVM's models do not know it."""
    text = re.sub(r"\s+", " ", line.partition("//")[0]).strip()
    return "nop" if _OPAQUE.match(text) else text


# How many products of 64-bit ARM instructions are added to sums (or begin them), by the type that is multiplied:
# multiply-adds of floats; of bytes four for each of four sums, one for each of eight, or one after both became 16 bits.
_FLOATS = ((r"fml[as] v\d+\.4s", 4), (r"fml[as] v\d+\.2[sd]", 2), (r"(fn?m(add|sub)|fml[as]) [sd]\d+", 1))
_HALVES = ((r"fml[as] v\d+\.8h", 8), (r"fml[as] v\d+\.4h", 4), (r"(fn?m(add|sub)|fml[as]) h\d+", 1))
_INTEGERS = (
    (r"[su]dot v\d+\.4s", 16),
    (r"[su]dot v\d+\.2s", 8),
    (r"([su](mull|ml[as]l)2?|ml[as]) v\d+\.8h", 8),
    (r"[su](mull|ml[as]l)2? v\d+\.4s", 4),
    (r"ml[as] v\d+\.4[sh]", 4),
)


class Products(NamedTuple):
    """How many products of floats, of integers of at most 16 bits and of floats in half precision there are."""

    floats: int = 0
    integers: int = 0
    halves: int = 0


@cache
def products(instruction: str) -> Products:
    """The products of one instruction: mnemonic, one blank, operands."""
    tables = (_FLOATS, _INTEGERS, _HALVES)
    return Products(*(next((count for each, count in table if re.match(each, instruction)), 0) for table in tables))
