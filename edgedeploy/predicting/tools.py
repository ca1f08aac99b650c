"""Everything that predictions for a board need: a core model, LLVM, and a QEMU with the plugin that records.

LLVM's tools disassemble instructions, and give the cycles of straight code on the model of a core.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from edgedeploy.base.cache import FolderCache, key_of
from edgedeploy.base.files import digest_of
from edgedeploy.base.programs import capture
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import ToolchainError, UnsupportedError
from edgedeploy.predicting.record import WIDTH, Block
from edgedeploy.target.board import BOARDS, Board, CoreModel, load_board
from edgedeploy.target.toolchain import c_compiler, link_shared
from edgedeploy.target.triples import architecture_of

NATIVE = Path(__file__).with_name("native")
_SOURCE, _LIBRARY = NATIVE / "recorder.c", "recorder.so"
_PLUGINS = FolderCache("plugins")

# The versions of QEMU that have version 1 of the plugin interface.
_OLDEST, _NEWEST = (6, 0), (8, 2)
_INSTALL_QEMU = "apt-get install qemu-user"


def recorder(progress: Progress = SILENT) -> Path:
    """The plugin, built for this machine once."""
    here = load_board("local")
    key = key_of([c_compiler(here).identity, digest_of(sorted(NATIVE.iterdir()), NATIVE)])[:16]
    what = "building the recorder of instructions"
    return _PLUGINS.get_file(key, _LIBRARY, lambda path: link_shared([_SOURCE], path, here), what, progress)


def recording_emulator(board: Board) -> str:
    """The emulator of a board's programs, if it takes plugins."""
    name = f"qemu-{architecture_of(board.triple).qemu}"
    found = shutil.which(name)
    if found is None:
        raise UnsupportedError(
            f"there is no {name}, which runs and records the board's programs",
            why=f"{name}-static takes no plugins",
            hints=[_INSTALL_QEMU],
        )
    match = re.search(r"version (\d+)\.(\d+)", capture([found, "--version"]).stdout)
    version = (int(match[1]), int(match[2])) if match else None
    if "-plugin" not in capture([found, "--help"]).stdout:
        raise UnsupportedError(
            f"{found} takes no plugins", why="it is linked statically, or was built without", hints=[_INSTALL_QEMU]
        )
    if version is None or not _OLDEST <= version <= _NEWEST:
        stated = ".".join(map(str, version)) if version else "of an unknown version"
        raise UnsupportedError(
            f"{found} is QEMU {stated}",
            why="the recorder is written for the plugin interface of QEMU 6.0 to 8.2",
            hints=["Debian 12 has QEMU 7.2: apt-get install qemu-user"],
        )
    return found


@dataclass(frozen=True)
class Means:
    """The core model and LLVM's tools for a board."""

    core: CoreModel
    llvm: Llvm

    @property
    def name(self) -> str:
        """The model with LLVM's version: predictions of different ones cannot be compared."""
        return f"{self.core.llvm} of LLVM {self.llvm.version}"

    @classmethod
    def of(cls, name: str, board: Board) -> Means:
        """The means for a board called `name`. Call it before the network is built."""
        if board.core_model is None or board.accelerator:
            raise UnsupportedError(
                f"no cycles are predicted for board {name}",
                why=_why_not(board),
                hints=[f"name another board: {', '.join(predictable())}"],
            )
        recording_emulator(board)
        return cls(board.core_model, Llvm.found())


def predictable() -> list[str]:
    """The names of boards for which cycles are predicted."""
    return [name for name in BOARDS.names() if BOARDS.load(name).core_model]


def _why_not(board: Board) -> str:
    if board.accelerator:
        return "networks run on its device, not on the core"
    if board.family == "arm":
        # Of 13 independent `vmla.f32 q`, LLVM 19 starts two in a cycle on its Cortex-A72; of `fmla .4s`, one.
        return (
            "in 32-bit state LLVM's Cortex-A72 multiplies twice as many floats in a cycle as the core does, and it has "
            "no model of Cortex-A7 or Cortex-A53"
        )
    return f"no model of {board.cpu} was confirmed by published times: its profile states no `core_model`"


# In versions 14 and 16 to 18 the models of Cortex-A76 and Neoverse N1 are that of Cortex-A57: half as many products.
OLDEST = 19
_INSTALL_LLVM = f"apt-get install llvm-{OLDEST}"
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
            hints=[_INSTALL_LLVM],
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
