"""Sums up what a record takes on a core: arithmetic by LLVM's model, and the penalties of a board's profile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from edgedeploy.board import Board
from edgedeploy.core_model import CoreModel
from edgedeploy.predict.instructions import products
from edgedeploy.predict.mca import Llvm, batches
from edgedeploy.predict.ownership import Ownership
from edgedeploy.predict.record import MISSES, Record
from edgedeploy.predict.sampling import Window, windows
from edgedeploy.progress import SILENT, Progress

# A loop that always turns so often at most ends as the branch predictor foresees.
_FORESEEN_TURNS = 32


@dataclass(frozen=True)
class Cycles:
    """Cycles by what takes them.

    Attributes:
        core: instructions, all data in the first cache.
        branches: ends of loops that the branch predictor does not foresee.
        caches: lines that loads take from the second and third cache.
        memory: lines that loads take from memory.
        stores: lines that stores miss, and lines that are written back to memory.
    """

    core: float = 0
    branches: float = 0
    caches: float = 0
    memory: float = 0
    stores: float = 0

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self.by_kind().values())

    def by_kind(self) -> dict[str, float]:
        """By the names of the attributes."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __add__(self, other: Cycles) -> Cycles:
        return Cycles(*(a + b for a, b in zip(self.by_kind().values(), other.by_kind().values(), strict=True)))


@dataclass(frozen=True)
class FunctionCycles:
    """What one function of a network takes in an inference, all its calls together.

    Attributes:
        name: of the function, or `RUNTIME`.
        calls: how often it is entered.
        instructions: how many it executes.
        cycles: that it takes.
        core_error: the standard error of its `cycles.core`, of taking samples.
        floats, integers: products of floats, and of integers of at most 16 bits, that it adds up.
        bound: cycles that these products take at the core's peak.
    """

    name: str
    calls: int
    instructions: int
    cycles: Cycles
    core_error: float
    floats: int
    integers: int
    bound: float

    @property
    def products_per_cycle(self) -> float:
        """Products in a cycle of the core, with all else that the function executes, such as requantisation."""
        return (self.floats + self.integers) / self.cycles.core if self.cycles.core else 0.0

    @property
    def of_peak(self) -> float:
        """The share of the core's peak, memory included."""
        return self.bound / self.cycles.total if self.cycles.total else 0.0


@dataclass(frozen=True)
class Prediction:
    """What one inference takes on one core.

    Attributes:
        functions: of the network, and the runtime; the longest first.
        misses: lines of 64 bytes that were missed, as `record.MISSES` names them.
        clock_mhz: the board's.
        error: the fraction by which predictions differed from published times.
    """

    functions: Sequence[FunctionCycles]
    misses: Mapping[str, int]
    clock_mhz: int
    error: float

    @cached_property
    def cycles(self) -> Cycles:
        """Of all functions."""
        return sum((function.cycles for function in self.functions), Cycles())

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
        """The share of the core's peak."""
        return sum(function.bound for function in self.functions) / self.cycles.total

    @property
    def core_error(self) -> float:
        """The standard error of `cycles.core`, of taking samples."""
        return math.hypot(*(function.core_error for function in self.functions))


def predicted(
    record: Record, ownership: Ownership, board: Board, core: CoreModel, llvm: Llvm, progress: Progress = SILENT
) -> Prediction:
    """What a record takes on a board's core, by owner.

    Raises:
        ToolchainError: LLVM's tools do not take the code.
    """
    text = llvm.disassembled(record.blocks)
    rates = _rates(record, windows(record, ownership), text, core.llvm, llvm, progress)
    counts = _counts(record, ownership)
    branches = _unforeseen_ends(record, ownership)
    floats = np.array([sum(products(line).floats for line in lines) for lines in text], np.int64)
    integers = np.array([sum(products(line).integers for line in lines) for lines in text], np.int64)
    misses = np.array([block.misses for block in record.blocks], np.float64)
    # What several functions share, such as the C library's code, has missed in proportion to how often each ran it.
    shares = counts / counts.sum(axis=0)
    costs = miss_costs(core)
    peak_floats = board.vector.bits / 32 * board.fma.per_cycle
    found = []
    for owner, (rate, error) in rates.items():
        instructions = int(counts[owner] @ record.lengths)
        missed = dict(zip(MISSES, (shares[owner] @ misses).tolist(), strict=True))
        cycles = Cycles(instructions * rate, branches[owner] * core.branch, **_memory_cycles(missed, costs))
        mine = int(counts[owner] @ floats), int(counts[owner] @ integers)
        bound = mine[0] / peak_floats + mine[1] / core.byte_products
        found.append(
            FunctionCycles(
                ownership.names[owner], ownership.calls[owner], instructions, cycles, instructions * error, *mine, bound
            )
        )
    found.sort(key=lambda function: -function.cycles.total)
    totals = dict(zip(MISSES, misses.sum(axis=0).astype(int).tolist(), strict=True))
    of_integers = sum(each.integers for each in found) > sum(each.floats for each in found)
    return Prediction(found, totals, core.clock_mhz, core.integer_error if of_integers else core.error)


def miss_costs(core: CoreModel) -> dict[str, float]:
    """Cycles of a line, by the names of `record.MISSES`; those of levels that the core lacks are absent."""
    levels = {"l2": core.l2, "l3": core.l3, "memory": core.memory}
    stated = {
        name: level.model_dump(include={"foreseen", "random", "store", "written_back"})
        for name, level in levels.items()
        if level
    }
    return {f"{name}_{kind}": cost for name, costs in stated.items() for kind, cost in costs.items()}


def _memory_cycles(misses: Mapping[str, float], costs: Mapping[str, float]) -> dict[str, float]:
    """Cycles of misses by the attributes of `Cycles`."""
    sums = {"caches": 0.0, "memory": 0.0, "stores": 0.0}
    for name, cost in costs.items():
        level, _, kind = name.partition("_")
        where = "stores" if kind in ("store", "written_back") else "memory" if level == "memory" else "caches"
        sums[where] += misses[name] * cost
    return sums


def _rates(
    record: Record,
    sampled: Mapping[int, Sequence[Window]],
    text: Sequence[Sequence[str]],
    model: str,
    llvm: Llvm,
    progress: Progress,
) -> dict[int, tuple[float, float]]:
    """By owner, cycles per instruction, and their standard error."""
    distinct = list(dict.fromkeys(window for each in sampled.values() for window in each))
    regions = []
    for window in distinct:
        lead = [line for block in window.lead for line in text[block]] or ["nop"]
        regions += [lead, [*lead, *(line for block in window.measured for line in text[block])]]
    with progress.steps(f"predict {len(distinct)} windows on {model}", len(batches(regions))) as advance:
        cycles = llvm.cycles(regions, model, advance)
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


def _counts(record: Record, ownership: Ownership) -> np.ndarray:
    """int64 [owners, blocks]: how often each ran each block."""
    width = len(record.blocks)
    keys = ownership.runs * width + record.runs[:, 0]
    counts = np.bincount(keys, record.runs[:, 1], minlength=len(ownership.names) * width)
    return counts.astype(np.int64).reshape(len(ownership.names), width)


def _unforeseen_ends(record: Record, ownership: Ownership) -> list[int]:
    """By owner, ends of loops of one block after another number of turns than the last time, or after many."""
    loops = np.flatnonzero(record.runs[:, 1] > 1)
    order = loops[np.argsort(record.runs[loops, 0], kind="stable")]
    block, turns = record.runs[order].T
    foreseen = np.zeros(len(order), bool)
    foreseen[1:] = (block[1:] == block[:-1]) & (turns[1:] == turns[:-1]) & (turns[1:] <= _FORESEEN_TURNS)
    ends = np.bincount(ownership.runs[order][~foreseen], minlength=len(ownership.names))
    return [int(count) for count in ends]
