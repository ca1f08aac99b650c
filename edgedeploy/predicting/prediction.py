"""The cycles of a network on a board's core: arithmetic by LLVM's model, and the penalties of the board's profile."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path

import numpy as np

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import InputError, PackageError
from edgedeploy.package.archive import read_package
from edgedeploy.package.manifest import MANIFEST_NAME, Manifest, parse_manifest
from edgedeploy.predicting.record import LINE, MISSES, RUNTIME, Ownership, Record, owners, windows
from edgedeploy.predicting.recording import record_package
from edgedeploy.predicting.tools import Llvm, Means, products
from edgedeploy.target.board import Board, CoreModel, Memory

_FORESEEN_TURNS = 32  # the most turns of a loop whose end the branch predictor foresees, if their number never changes


@dataclass(frozen=True)
class Cycles:
    """Cycles by their cause."""

    core: float = 0  # instructions, all data in the first cache
    branches: float = 0  # ends of loops that the branch predictor does not foresee
    caches: float = 0  # lines that loads take from the second and third cache
    memory: float = 0  # lines that loads take from memory
    stores: float = 0  # lines that stores miss, and lines that are written back to memory

    @property
    def total(self) -> float:
        """The sum."""
        return sum(self.by_kind().values())

    def by_kind(self) -> dict[str, float]:
        """By the names of the attributes."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __add__(self, other: Cycles) -> Cycles:
        return Cycles(*(a + b for a, b in zip(self.by_kind().values(), other.by_kind().values(), strict=True)))


@dataclass(frozen=True)
class Executed:
    """What one function of a network executes in an inference, without the cost of waiting for memory."""

    name: str
    calls: int  # how often it is entered
    instructions: int  # how many it executes
    core: float  # cycles of these by LLVM's model, all data in the first cache, all branches foreseen
    core_error: float  # the standard error of `core`, due to sampling
    ends: int  # ends of loops that the branch predictor does not foresee
    # Products that it adds up: of floats, of integers of at most 16 bits, and of floats in half precision (`halves`).
    floats: int
    integers: int
    misses: Mapping[str, float]  # lines of 64 bytes that it misses, by the names in `record.MISSES`
    halves: int = 0


@dataclass(frozen=True)
class FunctionCycles(Executed):
    """The cycles of one function of a network in an inference, all its calls together.

    `bound` is the cycles of its products at the peak of all cores that it runs on.
    """

    cycles: Cycles = field(kw_only=True)
    bound: float = field(kw_only=True)

    @property
    def products(self) -> int:
        """Products of all types."""
        return self.floats + self.halves + self.integers

    @property
    def products_per_cycle(self) -> float:
        """Products in a cycle of all cores, including everything else that the function executes."""
        return self.products / self.cycles.core if self.cycles.core else 0.0

    @property
    def of_peak(self) -> float:
        """The share of the cores' peak, memory included."""
        return self.bound / self.cycles.total if self.cycles.total else 0.0


@dataclass(frozen=True)
class Prediction:
    """The cycles of one inference; `error` is the fraction by which predictions differed from published times."""

    functions: Sequence[FunctionCycles]
    clock_mhz: int
    error: float

    @cached_property
    def cycles(self) -> Cycles:
        """Of all functions."""
        return sum((function.cycles for function in self.functions), Cycles())

    @property
    def misses(self) -> dict[str, int]:
        """Lines of 64 bytes that all functions missed, by the names in `record.MISSES`."""
        return {name: round(sum(function.misses[name] for function in self.functions)) for name in MISSES}

    @property
    def ms(self) -> float:
        """The time of an inference in milliseconds."""
        return self.cycles.total / (self.clock_mhz * 1e3)

    @property
    def instructions(self) -> int:
        """Of all functions."""
        return sum(function.instructions for function in self.functions)

    @property
    def of_peak(self) -> float:
        """The share of the cores' peak."""
        return sum(function.bound for function in self.functions) / self.cycles.total

    @property
    def core_error(self) -> float:
        """The standard error of `cycles.core`, due to sampling."""
        return math.hypot(*(function.core_error for function in self.functions))


def executed(
    record: Record, ownership: Ownership, model: str, llvm: Llvm, progress: Progress = SILENT
) -> list[Executed]:
    """The contents of a record by owner, with the cycles of its instructions on LLVM's model of a core."""
    text = llvm.disassembled(record.blocks)
    rates = _rates(record, ownership, text, model, llvm, progress)
    # int64 [owners, blocks]: how often each ran each block.
    keys = ownership.runs * len(record.blocks) + record.runs[:, 0]
    flat = np.bincount(keys, record.runs[:, 1], len(ownership.names) * len(record.blocks)).astype(np.int64)
    counts = flat.reshape(len(ownership.names), -1)
    ends = _unforeseen_ends(record, ownership)
    multiplied = np.array([np.sum([products(line) for line in lines], axis=0) for lines in text], np.int64)
    misses = np.array([block.misses for block in record.blocks], np.float64)
    # Shared code, such as the C library's, has missed in proportion to how often each function ran it.
    shares = counts / counts.sum(axis=0)
    found = []
    for owner, (rate, error) in rates.items():
        name, calls, instructions = ownership.names[owner], ownership.calls[owner], int(counts[owner] @ record.lengths)
        core, core_error = instructions * rate, instructions * error
        floats, integers, halves = (counts[owner] @ multiplied).tolist()
        missed = dict(zip(MISSES, (shares[owner] @ misses).tolist(), strict=True))
        found.append(
            Executed(name, calls, instructions, core, core_error, ends[owner], floats, integers, missed, halves)
        )
    return found


def priced(functions: Sequence[Executed], board: Board, core: CoreModel, threads: int = 1) -> Prediction:
    """The cycles on a board of functions that one thread executed, with the cost of waiting for memory.

    `threads` share the work of each function evenly; one executes the runtime's own.
    """
    peak = board.vector.bits / 32 * board.fma.per_cycle
    found = []
    for each in functions:
        number = 1 if each.name == RUNTIME else threads
        # Never more than with one thread.
        cycles = min((_cycles(each, core, number) for number in (1, number)), key=lambda each: each.total)
        bound = each.floats / peak + each.halves / (2 * peak) + each.integers / core.byte_products
        found.append(FunctionCycles(**vars(each), cycles=cycles, bound=bound / number))
    found.sort(key=lambda function: -function.cycles.total)
    of_integers = 2 * sum(each.integers for each in found) > sum(each.products for each in found)
    error = core.integer_error if of_integers else core.error
    return Prediction(found, core.clock_mhz, core.threads_error if threads > 1 else error)


def _cycles(executed: Executed, core: CoreModel, threads: int) -> Cycles:
    waiting = {"caches": 0.0, "memory": 0.0, "stores": 0.0}
    for name, cost in miss_costs(core, threads).items():
        level, _, kind = name.partition("_")
        cause = "stores" if kind in ("store", "written_back") else "memory" if level == "memory" else "caches"
        waiting[cause] += executed.misses[name] * cost
    return Cycles(executed.core / threads, executed.ends * core.branch / threads, **waiting)


def miss_costs(core: CoreModel, threads: int = 1) -> dict[str, float]:
    """Cycles of a line, by the names in `record.MISSES`, of all levels that the core has.

    Several threads wait at the same time for lines of their own caches. Lines of caches that they share come one after
    the other, and the bandwidth of memory limits how fast lines come and go.
    """
    costs = {}
    for name, level in {"l2": core.l2, "l3": core.l3, "memory": core.memory}.items():
        if level is None:
            continue
        kinds = level.model_dump(include={"foreseen", "random", "store", "written_back"})
        for kind, cost in kinds.items():
            if isinstance(level, Memory):
                passed_on = LINE * core.clock_mhz / (level.gb_per_s * 1e3)
                costs[f"{name}_{kind}"] = cost if threads == 1 else max(cost / threads, passed_on)
            else:
                costs[f"{name}_{kind}"] = cost if level.shared else cost / threads
    return costs


def _rates(
    record: Record, ownership: Ownership, text: Sequence[Sequence[str]], model: str, llvm: Llvm, progress: Progress
) -> dict[int, tuple[float, float]]:
    """By owner, cycles per instruction, and their standard error."""
    sampled = windows(record, ownership)
    distinct = list(dict.fromkeys(window for each in sampled.values() for window in each))
    regions = []
    for window in distinct:
        lead = [line for block in window.lead for line in text[block]] or ["nop"]
        regions += [lead, [*lead, *(line for block in window.measured for line in text[block])]]
    cycles = llvm.cycles(regions, model, progress, f"predict {len(distinct)} windows on {model}")
    taken = {window: cycles[2 * place + 1] - cycles[2 * place] for place, window in enumerate(distinct)}
    rates = {}
    for owner, each in sampled.items():
        lengths = np.array([record.lengths[list(window.measured)].sum() for window in each], np.float64)
        times = np.array([taken[window] for window in each], np.float64)
        rate = times.sum() / lengths.sum()
        # Of a ratio of sums (Cochran, Sampling Techniques, section 6.4).
        spread = math.sqrt(float(((times - rate * lengths) ** 2).sum()) / max(1, len(each) - 1) / len(each))
        rates[owner] = float(rate), spread / float(lengths.mean())
    return rates


def _unforeseen_ends(record: Record, ownership: Ownership) -> list[int]:
    """By owner, ends of loops of one block after another number of turns than the last time, or after many."""
    loops = np.flatnonzero(record.runs[:, 1] > 1)
    order = loops[np.argsort(record.runs[loops, 0], kind="stable")]
    block, turns = record.runs[order].T
    foreseen = np.zeros(len(order), bool)
    foreseen[1:] = (block[1:] == block[:-1]) & (turns[1:] == turns[:-1]) & (turns[1:] <= _FORESEEN_TURNS)
    ends = np.bincount(ownership.runs[order][~foreseen], minlength=len(ownership.names))
    return [int(count) for count in ends]


def open_package(path: Path) -> tuple[Manifest, dict[str, bytes]]:
    """A package: an archive, or the folder that it was unpacked into."""
    if not path.is_dir():
        return read_package(path)
    try:
        manifest = parse_manifest((path / MANIFEST_NAME).read_bytes())
        return manifest, {name: (path / name).read_bytes() for name in manifest.files}
    except (OSError, ValueError) as error:
        raise PackageError(f"{path} is not a sound package", why=str(error)) from error


def predict_package(
    manifest: Manifest,
    contents: Mapping[str, bytes],
    board: Board,
    means: Means,
    progress: Progress = SILENT,
    *,
    threads: int = 1,
) -> Prediction:
    """The cycles of one inference of a package on a board with this number of threads."""
    built_for = manifest.target.get("mcpu")
    if built_for != board.cpu:
        raise InputError(
            f"the package of {manifest.model} is for {built_for}, the board is a {board.cpu}",
            hints=[f"name the board that it was built for: --board {manifest.board}"],
        )
    with tempfile.TemporaryDirectory(prefix="edgedeploy-predict-") as folder:
        record = record_package(manifest, contents, board, means.core, Path(folder), progress)
        functions = executed(record, owners(record), means.core.llvm, means.llvm, progress)
    return priced(functions, board, means.core, threads)
