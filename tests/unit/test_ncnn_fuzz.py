"""Damaged and hostile ncnn files end in an error of ours, soon, and without the memory that they ask for."""

from __future__ import annotations

import random
import re
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support.ncnn_cases import CASES
from support.ncnn_files import FLOAT16, plain, tagged, write

from edgedeploy.errors import EdgedeployError
from edgedeploy.frontends.format import Shapes
from edgedeploy.frontends.ncnn import FORMAT

# A network that has something of everything, so that damage to one layer meets others.
CHAIN = [
    "Input data 0 1 data 0=16 1=16 2=3",
    "Convolution first 1 1 data first 0=8 1=3 3=2 4=1 5=1 6=216 9=1",
    "Split copies 1 3 first one two three",
    "ConvolutionDepthWise second 1 1 one second 0=8 1=3 4=1 5=1 6=72 7=8 9=2 -23310=1,0.1",
    "Pooling pool 1 1 two pool 0=0 1=3 2=1 3=1 5=1",
    "Concat both 2 1 second pool both",
    "Interp larger 1 1 both larger 0=1 1=2.0 2=2.0",
    "Crop part 2 1 larger both part",
    "ShuffleChannel shuffle 1 1 part shuffle 0=2",
    "Reshape rows 1 1 shuffle rows 0=0 1=-1 2=2",
    "Softmax prob 1 1 rows prob",
    "Reduction mean 1 1 three mean 0=3 1=0 -23303=2,1,2 5=1",
    "InnerProduct dense 1 1 mean dense 0=4 1=1 2=32",
]
CHAIN_WEIGHTS = (
    tagged(np.ones(216), FLOAT16)
    + plain([0] * 8)
    + tagged(np.ones(72))
    + plain([0] * 8)
    + tagged([1] * 32)
    + plain([0] * 4)
)

HOSTILE = ["0", "-1", "1", "2", "-233", "-234", "2147483647", "-2147483648", "4294967296", "1e30", "-1e30", "1e999"]
HOSTILE += ["0.0", "nan", "x", "", "9" * 5000, "3,1,2", "1,1", "65536", "0x10", "1.5", "-23300=2147483647,1"]

VALUE = re.compile(rb"(?<==)\S+")

Sound = tuple[bytes, bytes, Shapes]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[Sound]:
    """Networks that can be imported: text, weights, shapes of inputs."""
    folder = tmp_path_factory.mktemp("sound")
    chain = write(folder, CHAIN, CHAIN_WEIGHTS)
    FORMAT.convert(FORMAT.files(chain), {})
    networks: list[Sound] = [(chain.read_bytes(), CHAIN_WEIGHTS, {})] * 40
    for case in CASES:
        path = case.write(folder)
        networks.append((path.read_bytes(), path.with_suffix(".bin").read_bytes(), case.shapes))
    return networks


def other_word(chance: random.Random, text: bytes) -> bytes:
    """One word becomes a hostile one, or one from elsewhere."""
    words = text.split(b" ")
    words[chance.randrange(len(words))] = chance.choice([chance.choice(HOSTILE).encode(), chance.choice(words)])
    return b" ".join(words)


def other_value(chance: random.Random, text: bytes) -> bytes:
    """One parameter becomes a hostile one."""
    values = list(VALUE.finditer(text))
    return replaced(text, chance.choice(values), chance.choice(HOSTILE).encode()) if values else text


def replaced(text: bytes, found: re.Match[bytes], value: bytes) -> bytes:
    return text[: found.start()] + value + text[found.end() :]


def other_lines(chance: random.Random, text: bytes) -> bytes:
    """Lines change places, are repeated, or are missing: layers in cycles, counts that do not fit."""
    lines = text.split(b"\n")
    one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one : one + 1] = chance.choice([[], [lines[other]], [lines[one], lines[other]]])
    return b"\n".join(lines)


def other_bits(chance: random.Random, content: bytes) -> bytes:
    """Some bits are flipped."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 4) if changed else 0):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def other_length(chance: random.Random, content: bytes) -> bytes:
    """The end is missing, or there is more of it."""
    return content[: chance.randint(0, len(content))] + bytes(chance.choice([0, 0, 0, 1, 4, 100]))


Damage = Callable[[random.Random, bytes], bytes]
OF_TEXT: Sequence[Damage] = [other_word, other_value, other_value, other_lines, other_bits, other_length]
OF_WEIGHTS: Sequence[Damage] = [other_bits, other_length]


def survive(sound: Sequence[Sound], folder: Path, seed: int, count: int) -> int:
    """How many of so many damaged networks are refused; none may end otherwise, or take more than two seconds."""
    chance = random.Random(seed)
    path = folder / "net.param"
    refused = 0
    for _ in range(count):
        text, weights, shapes = chance.choice(sound)
        for _ in range(chance.randint(1, 3)):
            if chance.random() < 0.75:
                text = chance.choice(OF_TEXT)(chance, text)
            else:
                weights = chance.choice(OF_WEIGHTS)(chance, weights)
        path.write_bytes(text)
        path.with_suffix(".bin").write_bytes(weights)
        started = time.process_time()
        try:
            FORMAT.convert([path, path.with_suffix(".bin")], shapes)
        except EdgedeployError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{text!r} with {len(weights)} bytes of weights") from error
        assert time.process_time() - started < 2, text
    return refused


def test_damaged_files_end_in_an_error_of_ours(sound: list[Sound], tmp_path: Path) -> None:
    assert survive(sound, tmp_path, seed=1, count=500) > 250


@pytest.mark.slow
def test_many_damaged_files_end_in_an_error_of_ours(sound: list[Sound], tmp_path: Path) -> None:
    assert survive(sound, tmp_path, seed=2, count=20_000) > 10_000


def test_hostile_counts_take_no_memory(sound: list[Sound], tmp_path: Path) -> None:
    """Each parameter of each network once becomes the largest number."""
    path = tmp_path / "net.param"
    tracemalloc.start()
    for text, weights, shapes in sound[39:]:
        for found in VALUE.finditer(text):
            path.write_bytes(replaced(text, found, b"2147483647"))
            path.with_suffix(".bin").write_bytes(weights)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with suppress(EdgedeployError):
                FORMAT.convert([path, path.with_suffix(".bin")], shapes)
            taken = tracemalloc.get_traced_memory()[1] - before
            assert taken < 4 * (len(text) + len(weights)) + 2**20, path.read_text()
    tracemalloc.stop()


def test_long_texts_take_time_in_proportion(tmp_path: Path) -> None:
    """Many layers, many outputs of one layer, and one name for all of them."""
    relus = [f"ReLU same 1 1 b{index} b{index + 1}" for index in range(20_000)]
    many = write(tmp_path, ["Input in 0 1 b0 0=4", *relus], name="many")
    outputs = " ".join(f"o{index}" for index in range(20_000))
    wide = write(
        tmp_path,
        ["Input in 0 1 a 0=20000", f"Slice same 1 20000 a {outputs} -23300=20000," + ",".join(["-233"] * 20_000)],
        name="wide",
    )
    for path in (many, wide):
        started = time.process_time()
        FORMAT.convert(FORMAT.files(path), {})
        assert time.process_time() - started < 10
