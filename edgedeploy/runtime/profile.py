"""The time of an inference by function, and the work that each function does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from edgedeploy.base.text import count, printable
from edgedeploy.package.archive import FunctionWork
from edgedeploy.target.board import Board

# The prefix of functions of TVM's virtual machine, which allocate and check tensors.
_VM_PREFIX = "vm.builtin."
RUNTIME = "runtime"

# The columns of a table of functions that hold words.
NAMES = ("function", "type")


@dataclass(frozen=True)
class FunctionProfile:
    """The time of a function of a network in an inference, all its calls together."""

    function: str  # its name, or `RUNTIME`
    ms: float  # the median over the inferences, in milliseconds
    share: float = 0.0  # of the time of all functions
    # Dtype of the first tensor that it reads; in another engine's profile, the kind of operator. None for the runtime.
    type: str | None = None
    work: FunctionWork | None = None  # None for the runtime, and for packages that do not state it
    of_peak: float | None = None  # multiplications as a share of the peak of the board's cores; None if unknown

    @property
    def gflops(self) -> float | None:
        """10^9 arithmetic operations per second; None without any."""
        return self.work.operations / self.ms / 1e6 if self.work and self.work.operations and self.ms else None

    @property
    def gigabytes(self) -> float | None:
        """10^9 bytes of tensors read and written per second, at any level of memory."""
        return self.work.bytes / self.ms / 1e6 if self.work and self.ms else None

    def as_dict(self) -> dict[str, Any]:
        """The fields by the names that `--json` prints, without the unknown ones."""
        stated = {"function": self.function, "ms": self.ms, "share": self.share}
        if self.type:
            stated["type"] = self.type
        work = self.work.model_dump(exclude={"function"}) if self.work else {}
        rates = {"gflops": self.gflops, "gigabytes_per_second": self.gigabytes, "of_peak": self.of_peak}
        return stated | work | {name: rate for name, rate in rates.items() if rate is not None}


def profiled(
    times: Mapping[str, Sequence[float]], work: Sequence[FunctionWork], board: Board, threads: int
) -> list[FunctionProfile]:
    """The functions by their time, the longest first, from `Runner.function_times` on a board.

    Its profile gives the peak: multiply-adds per cycle, at the clock of its `core_model`.
    """
    known = {_stem(each.function): each for each in work}
    sums: dict[str, float] = defaultdict(float)
    for name, each in times.items():
        sums[RUNTIME if name.startswith(_VM_PREFIX) else _stem(name)] += median(each)
    found = []
    for name, ms in sums.items():
        done = known.get(name)
        peak = _of_peak(done, ms, board, threads)
        found.append(FunctionProfile(name, ms, type=done.type if done else None, work=done, of_peak=peak))
    return _by_time(found)


def profile_of_operators(times: Mapping[str, tuple[str, Sequence[float]]]) -> list[FunctionProfile]:
    """Another engine's operators, the longest first; `times` has their kinds, and times per inference in ms."""
    found = [FunctionProfile(name, median(each), type=kind or None) for name, (kind, each) in times.items() if each]
    return _by_time(found)


def _by_time(functions: Sequence[FunctionProfile]) -> list[FunctionProfile]:
    """Functions with their share of the total time, the longest first."""
    total = sum(each.ms for each in functions)
    found = [replace(each, share=each.ms / total if total else 0.0) for each in functions]
    return sorted(found, key=lambda each: -each.ms)


def profile_table(functions: Sequence[FunctionProfile], most: int | None = None) -> list[list[str]]:
    """The cells of a table with a line for each function, titles first, without empty columns.

    Only the first `most` have a line of their own, the others share one; None for all.
    """

    def cell(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    columns: dict[str, Callable[[FunctionProfile], str]] = {
        "function": lambda each: printable(each.function),
        "calls": lambda each: str(each.work.calls) if each.work else "",
        "type": lambda each: printable(each.type or ""),
        "ms": lambda each: f"{each.ms:.3f}",
        "share": lambda each: f"{each.share:.1%}",
        "GFLOP/s": lambda each: cell(each.gflops, ".2f"),
        "GB/s": lambda each: cell(each.gigabytes, ".2f"),
        "of peak": lambda each: cell(each.of_peak, ".0%"),
    }
    shown, others = list(functions[:most]), functions[len(functions[:most]) :]
    if others:
        ms, share = sum(each.ms for each in others), sum(each.share for each in others)
        shown.append(FunctionProfile(count(len(others), "other"), ms, share))
    table = [[title, *map(text, shown)] for title, text in columns.items()]
    return [list(line) for line in zip(*(each for each in table if any(each[1:])), strict=True)]


def _stem(name: str) -> str:
    """A function's name as `build --explain` and `predict` print it."""
    return name.removesuffix("_scheduled")


def _of_peak(work: FunctionWork | None, ms: float, board: Board, threads: int) -> float | None:
    core = board.core_model
    if work is None or core is None or not work.operations or not ms:
        return None
    floats = board.vector.bits / 32 * board.fma.per_cycle
    products = core.byte_products if work.type in ("int8", "uint8") else floats
    return work.operations / 2 / (ms * 1e3 * core.clock_mhz * products * threads)
