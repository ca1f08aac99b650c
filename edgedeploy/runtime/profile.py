"""The time of an inference by function, beside what each function does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from edgedeploy.board import Board
from edgedeploy.package.members import FunctionWork
from edgedeploy.text import count, printable

# What functions of TVM's virtual machine are called, which allocate and check tensors.
_OF_THE_MACHINE = "vm.builtin."
RUNTIME = "runtime"

# Columns of a table of functions that hold words.
NAMES = ("function", "type")


@dataclass(frozen=True)
class FunctionProfile:
    """What a function of a network took in an inference, all its calls together.

    Attributes:
        function: its name, or `RUNTIME`.
        ms: the median of the inferences, in milliseconds.
        share: of the time of all functions.
        type: of the tensor that it reads first; in another engine's profile, what kind of operator it is. None for the
            runtime.
        work: what it does; None for the runtime, and for packages that do not say it.
        of_peak: the share of what the board's cores multiply at most; None where that is not known.
    """

    function: str
    ms: float
    share: float
    type: str | None
    work: FunctionWork | None
    of_peak: float | None

    @property
    def gflops(self) -> float | None:
        """10^9 arithmetic operations a second; None where there are none."""
        return self.work.operations / self.ms / 1e6 if self.work and self.work.operations and self.ms else None

    @property
    def gigabytes(self) -> float | None:
        """10^9 bytes of tensors a second that it reads and writes, from whatever level of memory."""
        return self.work.bytes / self.ms / 1e6 if self.work and self.ms else None

    def as_dict(self) -> dict[str, Any]:
        """The same under the names that `--json` prints; what is not known is absent."""
        stated = {"function": self.function, "ms": self.ms, "share": self.share}
        if self.type:
            stated["type"] = self.type
        work = self.work.model_dump(exclude={"function"}) if self.work else {}
        rates = {"gflops": self.gflops, "gigabytes_per_second": self.gigabytes, "of_peak": self.of_peak}
        return stated | work | {name: rate for name, rate in rates.items() if rate is not None}


def profiled(
    times: Mapping[str, Sequence[float]], work: Sequence[FunctionWork], board: Board, threads: int
) -> list[FunctionProfile]:
    """The functions by their time, the longest first.

    Args:
        times: by name, the time of each function in each inference in ms, as `Runner.function_times` gives them.
        work: what the package says of its functions.
        board: where they ran. The peak is that of its profile: of multiply-adds in a cycle, at the clock of its
            `core_model`.
        threads: how many cores took part.
    """
    known = {_stem(each.function): each for each in work}
    sums: dict[str, float] = {}
    for name, each in times.items():
        owner = RUNTIME if name.startswith(_OF_THE_MACHINE) else _stem(name)
        sums[owner] = sums.get(owner, 0.0) + median(each)
    found = []
    for name, ms in sums.items():
        done = known.get(name)
        found.append((name, ms, done.type if done else None, done, _of_peak(done, ms, board, threads)))
    return _by_time(found)


def profile_of_operators(times: Mapping[str, tuple[str, Sequence[float]]]) -> list[FunctionProfile]:
    """Another engine's operators by their time, the longest first.

    Args:
        times: by name of each operator, of what kind it is, and its time in each inference in ms.
    """
    return _by_time([(name, median(each), kind or None, None, None) for name, (kind, each) in times.items() if each])


def _by_time(
    functions: Sequence[tuple[str, float, str | None, FunctionWork | None, float | None]],
) -> list[FunctionProfile]:
    """Functions with their share of the time of all, the longest first."""
    total = sum(ms for _, ms, *_ in functions)
    found = [
        FunctionProfile(name, ms, ms / total if total else 0.0, kind, work, of_peak)
        for name, ms, kind, work, of_peak in functions
    ]
    return sorted(found, key=lambda each: -each.ms)


def profile_table(functions: Sequence[FunctionProfile], most: int | None = None) -> list[list[str]]:
    """The cells of a table with a line for each function, titles first; columns that nothing is known of are left out.

    Args:
        functions: the longest first.
        most: how many have a line of their own; the others are summed in one. All have one if None.
    """
    columns: dict[str, Callable[[FunctionProfile], str]] = {
        "function": lambda each: printable(each.function),
        "calls": lambda each: str(each.work.calls) if each.work else "",
        "type": lambda each: printable(each.type or ""),
        "ms": lambda each: f"{each.ms:.3f}",
        "share": lambda each: f"{each.share:.1%}",
        "GFLOP/s": lambda each: _cell(each.gflops, ".2f"),
        "GB/s": lambda each: _cell(each.gigabytes, ".2f"),
        "of peak": lambda each: _cell(each.of_peak, ".0%"),
    }
    shown, others = list(functions[:most]), functions[len(functions[:most]) :]
    if others:
        ms, share = sum(each.ms for each in others), sum(each.share for each in others)
        shown.append(FunctionProfile(f"{count(len(others), 'other')}", ms, share, None, None, None))
    table = [[title, *map(cell, shown)] for title, cell in columns.items()]
    return [list(line) for line in zip(*(each for each in table if any(each[1:])), strict=True)]


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _stem(name: str) -> str:
    """The name of a function as `build --explain` and `predict` print it."""
    return name.removesuffix("_scheduled")


def _of_peak(work: FunctionWork | None, ms: float, board: Board, threads: int) -> float | None:
    core = board.core_model
    if work is None or core is None or not work.operations or not ms:
        return None
    floats = board.vector.bits / 32 * board.fma.per_cycle
    products = core.byte_products if work.type in ("int8", "uint8") else floats
    return work.operations / 2 / (ms * 1e3 * core.clock_mhz * products * threads)
