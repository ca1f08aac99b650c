"""Damaged and hostile ncnn files end in an error of ours, soon, and without the memory that they ask for."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.fuzzing import damaged, damaged_text, peak_of, survive
from support.ncnn_cases import CASES
from support.ncnn_files import FLOAT16, plain, tagged, write

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
CHAIN_WEIGHTS = tagged(np.ones(216), FLOAT16) + plain([0] * 8) + tagged(np.ones(72)) + plain([0] * 8)
CHAIN_WEIGHTS += tagged([1] * 32) + plain([0] * 4)

HOSTILE = ["0", "-1", "1", "2", "-233", "-234", "2147483647", "-2147483648", "4294967296", "1e30", "-1e30", "1e999"]
HOSTILE += ["0.0", "nan", "x", "", "9" * 5000, "3,1,2", "1,1", "65536", "0x10", "1.5", "-23300=2147483647,1"]

VALUE = re.compile(rb"(?<==)\S+")

Sound = tuple[bytes, bytes, Shapes]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[Sound]:
    """Networks that can be imported, the chain first: text, weights, shapes of inputs."""
    folder = tmp_path_factory.mktemp("sound")
    chain = write(folder, CHAIN, CHAIN_WEIGHTS)
    FORMAT.convert(FORMAT.files(chain), {})
    networks: list[Sound] = [(chain.read_bytes(), CHAIN_WEIGHTS, {})]
    for case in CASES:
        path = case.write(folder)
        networks.append((path.read_bytes(), path.with_suffix(".bin").read_bytes(), case.shapes))
    return networks


def convert(folder: Path, text: bytes, weights: bytes, shapes: Shapes) -> None:
    path = folder / "net.param"
    path.write_bytes(text)
    path.with_suffix(".bin").write_bytes(weights)
    FORMAT.convert([path, path.with_suffix(".bin")], shapes)


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 500), pytest.param(2, 20_000, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_damaged_files_end_in_an_error_of_ours(sound: list[Sound], tmp_path: Path, seed: int, count: int) -> None:
    random, refused = np.random.default_rng(seed), 0
    for _ in range(count):
        text, weights, shapes = sound[max(0, int(random.integers(-40, len(sound))))]
        if random.random() < 0.75:
            text = damaged_text(text, random, HOSTILE)
        else:
            weights = damaged(weights, random)
        refused += not survive(partial(convert, tmp_path, text, weights, shapes), seconds=2)
    assert refused > count / 2


def test_hostile_counts_take_no_memory(sound: list[Sound], tmp_path: Path) -> None:
    """Each parameter of each network once becomes the largest number."""
    for text, weights, shapes in sound:
        for found in VALUE.finditer(text):
            changed = text[: found.start()] + b"2147483647" + text[found.end() :]
            taken = peak_of(partial(convert, tmp_path, changed, weights, shapes))
            assert taken < 4 * (len(text) + len(weights)) + 2**20, changed


def test_long_texts_take_time_in_proportion(tmp_path: Path) -> None:
    """Many layers, many outputs of one layer, and one name for all of them."""
    relus = [f"ReLU same 1 1 b{index} b{index + 1}" for index in range(20_000)]
    many = write(tmp_path, ["Input in 0 1 b0 0=4", *relus], name="many")
    outputs = " ".join(f"o{index}" for index in range(20_000))
    parts = f"Slice same 1 20000 a {outputs} -23300=20000," + ",".join(["-233"] * 20_000)
    wide = write(tmp_path, ["Input in 0 1 a 0=20000", parts], name="wide")
    for path in (many, wide):
        assert survive(partial(FORMAT.convert, FORMAT.files(path), {}), seconds=10)
