"""The model that predicts the cycles of a board's core: LLVM's model of it, and the cost of memory accesses."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edgedeploy.base.documents import Record
from edgedeploy.target.triples import Positive

Cycles = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


class L1(Record):
    """The first level of data cache; its size is the profile's."""

    ways: Positive


class Costs(Record):
    """Cycles per 64-byte line from a level of memory, beyond those hidden by arithmetic."""

    foreseen: Cycles  # of a load that a prefetcher predicts
    random: Cycles  # of another load
    store: Cycles


class L2(Costs):
    """The second level of cache, whose size is the profile's; `shared` among all cores or not."""

    ways: Positive
    shared: bool


class L3(L2):
    """A third level of cache; `kib` is one core's share of it."""

    kib: Positive


class Memory(Costs):
    """The memory behind all caches."""

    written_back: Cycles  # the cost of a line that is written back from the caches
    gb_per_s: Annotated[float, Field(gt=0)]  # of all cores together, reads and writes


class CoreModel(Record):
    """How a core's cycles are predicted. Only cores for which published times confirm it have one."""

    llvm: str  # llvm-mca's name of the model that stands for the core (`-mcpu`)
    clock_mhz: Positive
    # The difference of predictions from published times, as a fraction of these; docs/predictions.md. Networks that
    # multiply integers, and several threads, have their own.
    error: Fraction
    integer_error: Fraction
    threads_error: Fraction
    byte_products: Annotated[float, Field(gt=0)]  # products of bytes per cycle at most
    branch: Cycles  # cycles of the end of a loop that the branch predictor does not foresee
    l1: L1
    l2: L2
    l3: L3 | None = None
    memory: Memory
