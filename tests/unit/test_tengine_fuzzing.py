"""Hostile tmfiles: whatever is in them, the frontend answers with a network or one of our errors, soon and in little
memory."""

import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.fuzzing import peak_of, survive
from support.tmfiles import TmFile

from edgedeploy.frontends.tengine import FORMAT

SECONDS = 10  # for one file, on a busy machine; a sound one takes a hundredth
MEMORY = 2**22  # beyond four times the file's size, in bytes

# Numbers that files lie with: none, one, the largest, the smallest, minus one.
LIES = (0, 1, 2, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x00010000, 0x7F800000, 0x7FC00000)


def network() -> bytes:
    def weights(*shape: int) -> int:
        return file.constant(np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape))

    file = TmFile()
    data = file.input("data", (1, 4, 8, 8))
    conv = file.node(5, (3, 3, 2, 2, 1, 1, 4, 4, 2, 0, 1, 1, 1, 1), data, weights(4, 2, 3, 3), weights(4))
    pool = file.node(16, (1, 3, 3, 2, 2, 0, 1, 1, 1, 1, 1), conv)
    grown = file.node(6, (4, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, -1, 0, 0), pool, weights(4, 4, 2, 2))
    crop = file.node(56, (2, 0, 0, 0, 0, 0, False, 2, 1), grown, conv)
    total = file.node(9, (2, 0, 0.0, 0.0, 0.0), crop, file.node(17, (), conv, weights(4)))
    normal = file.node(1, (1.0, 0.001, 0), total, weights(4), weights(4), weights(4), weights(4))
    parts = file.node(29, (1, 2, False, True, [1, 3]), normal, outputs=2)
    joined = file.node(3, (1,), file.node(51, (2.0,), parts), file.node(71, (2, 2.0, 2.0, 0, 0), parts + 1))
    padded = file.node(40, (0, 0, 0, 0, 1, 0, 0, 1, 0, 0.5), joined)
    cut = file.node(27, (0, 0, [0, 0, 1, 0], [1, 4, 8, 8], 0, 0, 0, 0, 0, 0), padded)
    turned = file.node(77, ([0, 2, 3, 1],), file.node(8, (), cut))
    flat = file.node(23, (1, 0, [0, -3, -1]), turned)
    mean = file.node(45, (1, -2, -2, -2, 1, 0), flat)
    dense = file.node(11, (3,), mean, weights(3, 4), weights(3))
    return file.output(file.node(28, (1,), dense), total).content()


SOUND = network()


def convert(content: bytes, path: Path) -> None:
    """Convert a file; only our errors are swallowed."""
    path.write_bytes(content)
    survive(lambda: FORMAT.convert([path], {}), seconds=SECONDS)


def damaged(content: bytes, random: np.random.Generator) -> bytes:
    """The file with a few bits, or a few of its numbers, changed, or cut off."""
    changed = bytearray(content)
    kind = random.integers(4)
    if kind == 0:
        return content[: random.integers(len(content))]
    for _ in range(random.integers(1, 5)):
        if kind == 1:
            changed[random.integers(len(changed))] ^= 1 << random.integers(8)
        else:
            # Any number may be taken for an offset: kind 2 has it lead to another table, or back.
            lie = int(random.integers(len(changed))) & ~3 if kind == 2 else int(random.choice(LIES))
            struct.pack_into("<I", changed, int(random.integers(len(changed) // 4)) * 4, lie)
    return bytes(changed)


def test_the_sound_network_is_converted(tmp_path: Path) -> None:
    (tmp_path / "net.tmfile").write_bytes(SOUND)
    assert len(FORMAT.convert([tmp_path / "net.tmfile"], {}).model.graph.node) > 15


@pytest.mark.parametrize(
    ("seed", "cases"), [(0, 400), pytest.param(1, 12_000, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_damaged_files_end_in_our_errors(seed: int, cases: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    for _ in range(cases):
        convert(damaged(SOUND, random), tmp_path / "net.tmfile")


@pytest.mark.slow
def test_every_number_may_be_the_largest(tmp_path: Path) -> None:
    for place in range(0, len(SOUND) - 3, 4):
        changed = bytearray(SOUND)
        struct.pack_into("<I", changed, place, 0xFFFFFFFF)
        convert(bytes(changed), tmp_path / "net.tmfile")


def vector_of(count: int, place: int) -> bytes:
    return struct.pack("<I", count) + struct.pack("<I", place) * count


def shared_tables() -> bytes:
    """A model of 16,384 tensors and nodes that are all the same table, with a long name."""
    content = bytearray(struct.pack("<HHHHI", 2, 0, 0, 0, 12))
    model = len(content)
    content += struct.pack("<iiII", 0, 0, 28, 0) + struct.pack("<II", 1, 36)
    assert model == 12
    lists = 36 + 40
    table = lists + 4 + 4 * 16384
    content += struct.pack("<Iii7I", 0, 0, 0, lists, lists, lists, lists, lists, 0, 0)
    content += vector_of(16384, table)
    content += struct.pack("<8I", 0, 0, 0, table + 32, 0, 0, 2, 0)
    content += struct.pack("<II", 1000, table + 40) + b"n" * 1000
    return bytes(content)


def wide_weights() -> bytes:
    """A network that reads one constant, as large as the file, thousands of times in another shape."""
    file = TmFile()
    data = file.input("data", (1, 4096))
    weights = file.constant(np.zeros(4096, np.float32))
    for _ in range(500):
        data = file.node(17, (), data, weights)
    return file.output(data).content()


def large_outputs() -> bytes:
    """Averages over an image whose padding alone is larger than any memory."""
    file = TmFile()
    data = file.input("data", (1, 1, 4, 4))
    return file.output(file.node(16, (1, 2**30, 2, 1, 1, 0, 16, 2**30 - 1, 0, 0, 0), data)).content()


def many_dimensions() -> bytes:
    """Constants whose sizes multiply to zero, or to a little, in 64 bits."""
    file = TmFile()
    data = file.input("data", (2**16, 2**16, 2**16, 2**16))
    weights = file.constant(np.zeros(4, np.float32))
    name, _, kind, dtype, values = file.tensors[weights]
    file.tensors[weights] = (name, (2**31 - 1, 2**31 - 1, 2**31 - 1, 2**2), kind, dtype, values)
    return file.output(file.node(9, (2, 0, 0.0, 0.0, 0.0), data, weights)).content()


def large_counts() -> Iterator[bytes]:
    """The sound file with some of what may be counts as large as the file, and far larger."""
    small = [place for place in range(0, len(SOUND) - 3, 4) if 0 < struct.unpack_from("<I", SOUND, place)[0] < 30]
    for place in np.random.default_rng(0).choice(small, 40, replace=False).tolist():
        for count in (len(SOUND) // 4, 2**14, 2**31):
            yield SOUND[:place] + struct.pack("<I", count) + SOUND[place + 4 :]


@pytest.mark.parametrize("make", [shared_tables, wide_weights, large_outputs, many_dimensions])
def test_a_hostile_file_takes_little_memory(make: Callable[[], bytes], tmp_path: Path) -> None:
    content = make()
    convert(SOUND, tmp_path / "net.tmfile")  # imports what is imported once
    assert peak_of(lambda: convert(content, tmp_path / "net.tmfile")) < 4 * len(content) + MEMORY


def test_large_counts_take_little_memory(tmp_path: Path) -> None:
    convert(SOUND, tmp_path / "net.tmfile")
    for content in large_counts():
        assert peak_of(partial(convert, content, tmp_path / "net.tmfile")) < 4 * len(SOUND) + MEMORY
