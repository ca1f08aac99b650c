"""What the cycles of a board's core are predicted by: LLVM's model of it, and what waiting for memory costs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edgedeploy.documents import Record
from edgedeploy.triples import Positive

Cycles = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


class L1(Record):
    """The first level of data cache, of the profile's `cache.l1_kib`."""

    ways: Positive


class Costs(Record):
    """Cycles that one line of 64 bytes from a level of memory costs, beyond what arithmetic takes meanwhile.

    Attributes:
        foreseen: of a load that a prefetcher foresees.
        random: of another load.
        store: of a store.
    """

    foreseen: Cycles
    random: Cycles
    store: Cycles


class L2(Costs):
    """The second level of cache, of the profile's `cache.l2_kib`; `shared` if all cores have it together."""

    ways: Positive
    shared: bool


class L3(L2):
    """A third level of cache: what one core may take to have of it, in KiB."""

    kib: Positive


class Memory(Costs):
    """What lies behind all caches.

    Attributes:
        written_back: the cost of a line that goes there from the caches.
        gb_per_s: gigabytes that all cores together read and write in a second.
    """

    written_back: Cycles
    gb_per_s: Annotated[float, Field(gt=0)]


class CoreModel(Record):
    """How a core's cycles are predicted. Only cores have one for which published times confirm it.

    Attributes:
        llvm: llvm-mca's name of the model that stands for the core (`-mcpu`).
        clock_mhz: at which cycles are stated as milliseconds.
        error: by how much predictions differed from published times, as a fraction of these; docs/predictions.md.
        integer_error: the same for networks that multiply integers.
        threads_error: the same for several threads.
        byte_products: products of bytes in a cycle at most.
        branch: cycles that a loop's end costs which the branch predictor does not foresee.
        l1, l2, l3, memory: what lies between the core and its data.
    """

    llvm: str
    clock_mhz: Positive
    error: Fraction
    integer_error: Fraction
    threads_error: Fraction
    byte_products: Annotated[float, Field(gt=0)]
    branch: Cycles
    l1: L1
    l2: L2
    l3: L3 | None = None
    memory: Memory
