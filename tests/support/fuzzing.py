"""What tests of hostile files and texts share: damage by chance, bounds on time and memory, and counts of examples."""

import re
import resource
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from edgedeploy.errors import EdgedeployError


def damaged(content: bytes, random: np.random.Generator) -> bytes:
    """The content cut off, with bits flipped, with bytes that claim a lot, or with a part gone or twice there."""
    data = bytearray(content)
    for _ in range(int(random.integers(1, 4))):
        if not data:
            break
        place = int(random.integers(len(data)))
        match int(random.integers(6)):
            case 0:
                data[place] ^= 1 << int(random.integers(8))
            case 1:
                del data[place:]
            case 2:
                data[place : place + 4] = random.choice([b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\0"])
            case 3:
                data[place : place + 8] = b"\xff\xff\xff\xff\xff\xff\xff\x7f"
            case 4:
                end = place + int(random.integers(1, 64))
                data[place:place] = data[place:end]
            case _:
                del data[place : place + int(random.integers(1, 16))]
    return bytes(data)


def somewhere(document: Any, random: Random) -> tuple[Any, Any]:
    """A value at any place of a JSON document: what holds it, and its key or index there."""
    node = document
    while True:
        key = random.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if not isinstance(node[key], dict | list) or not node[key] or random.random() < 0.2:
            return node, key
        node = node[key]


def damaged_text(content: bytes, random: np.random.Generator, hostile: Sequence[str]) -> bytes:
    """Text with lines gone, twice there or in other places, with hostile values behind `=`, or damaged as any file."""
    for _ in range(int(random.integers(1, 4))):
        lines = content.split(b"\n")
        one, other = (int(place) for place in random.integers(len(lines), size=2))
        match int(random.integers(7)):
            case 0:
                del lines[one]
            case 1:
                lines.insert(one, lines[other])
            case 2:
                lines[one], lines[other] = lines[other], lines[one]
            case 3:
                lines = damaged(content, random).split(b"\n")
            case _:
                values = list(re.finditer(rb"(?<==)\S+", content))
                if values:
                    place = values[int(random.integers(len(values)))]
                    value = str(random.choice([*hostile, str(random.integers(-20, 20))])).encode()
                    lines = (content[: place.start()] + value + content[place.end() :]).split(b"\n")
        content = b"\n".join(lines)
    return content


def survive(work: Callable[[], object], *, seconds: float = 5.0) -> bool:
    """Do something with a hostile file; whether it succeeded.

    It may end in an error of ours within `seconds` of processor time; anything else is raised, and AssertionError if it
    takes longer.
    """
    started, done = process_time(), False
    with suppress(EdgedeployError):
        work()
        done = True
    assert process_time() - started < seconds
    return done


def peak_of(work: Callable[[], object]) -> int:
    """The most bytes that Python and numpy held at a time for something that may end in an error of ours."""
    tracemalloc.start()
    try:
        with suppress(EdgedeployError):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def limited_memory() -> Iterator[None]:
    """Two GiB more than the process holds: what a library allocates is not seen by `peak_of`, but fails here."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + (2 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit if before[1] < 0 else min(limit, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


# What the counts are divided by.
share = 1


def examples(count: int) -> settings:
    """So many examples, or their share. A failure that comes and goes helps nobody: they are not random."""
    return settings(
        max_examples=max(1, count // share), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
