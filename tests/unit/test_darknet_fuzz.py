"""Hostile cfg files and weights give errors of ours: no crash, no hang, no memory."""

from __future__ import annotations

import random
import time
import tracemalloc
from pathlib import Path

import onnxruntime
import pytest
from support.darknet_interpreter import Recorder, interpret

from edgedeploy.errors import EdgedeployError
from edgedeploy.frontends.darknet import FORMAT
from edgedeploy.frontends.format import ImportOptions

SEED = """[net]
width=16
height=16
channels=3

[convolutional]
batch_normalize=1
filters=8
size=3
stride=2
pad=1
activation=leaky

[convolutional]
filters=8
groups=8
size=3
dilation=2
pad=1
activation=mish

[shortcut]
from=-2
activation=linear

[maxpool]
size=2
stride=1

[route]
layers=-1,-2,0
groups=2
group_id=1

[upsample]
stride=2
scale=0.5

[local_avgpool]
size=3
stride=2

[reorg]
stride=2

[batchnorm]

[convolutional]
filters=14
activation=linear

[yolo]
mask=0,2
anchors=1,2, 3,4, 5,6
classes=2
num=3

[route]
layers=2

[avgpool]

[connected]
output=8
activation=logistic

[scale_channels]
from=2

[convolutional]
filters=7
size=1
activation=linear

[region]
anchors=1.5,2.5
classes=2
softmax=1
"""
HOSTILE = ["0", "-1", "-2", "2", "3", "7", "255", "65536", "2147483647", "-2147483648", "2147483648", "9" * 40, "1e9"]
HOSTILE += ["", ",", "1,-1,0", "nan", "inf", "1e-400", "1e308", "٣", "\0", "=", "leaky", "-1," * 200]
# A case converts in milliseconds; this leaves room for a machine that does much else.
SECONDS = 5.0


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """A network with most sections, and its weights."""
    import numpy as np

    recorder = Recorder()
    interpret(SEED, np.zeros((3, 16, 16), np.float32), recorder.take)
    return SEED, recorder.save(tmp_path_factory.mktemp("seed") / "seed.weights").read_bytes()


def mutated_text(text: str, chance: random.Random) -> bytes:
    """The text with one to three things wrong."""
    lines = text.splitlines()
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(lines))
        kind = chance.randrange(7)
        if kind == 0:
            lines[at] = lines[at].partition("=")[0] + "=" + chance.choice(HOSTILE)
        elif kind == 1:
            del lines[at]
        elif kind == 2:
            lines.insert(at, chance.choice(lines))
        elif kind == 3:
            lines[at:at] = [chance.choice([line for line in text.splitlines() if "[" in line])]
        elif kind == 4:
            lines = lines[: at + 1]
        elif kind == 5:
            other = chance.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            numbers = [index for index, line in enumerate(lines) if "=" in line and "[" not in line] or [at]
            at = chance.choice(numbers)
            lines[at] = lines[at].partition("=")[0] + "=" + str(chance.randint(-20, 20))
        if not lines:
            break
    return flipped("\n".join(lines).encode(), chance) if chance.random() < 0.2 else "\n".join(lines).encode()


def flipped(content: bytes, chance: random.Random) -> bytes:
    """The content with a few bits turned over, or cut off."""
    if chance.random() < 0.3:
        return content[: chance.randrange(len(content) + 1)]
    changed = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def fuzz(folder: Path, seed: tuple[str, bytes], cases: int, *, load: bool) -> tuple[int, int]:
    """Convert mutated networks; how many were refused, and how many converted."""
    chance = random.Random(0)
    text, content = seed
    cfg, weights = folder / "net.cfg", folder / "net.weights"
    refused = converted = 0
    for case in range(cases):
        cfg.write_bytes(mutated_text(text, chance) if case % 4 else text.encode())
        weights.write_bytes(content if case % 4 > 1 else flipped(content, chance))
        begun = time.process_time()
        try:
            model = FORMAT.convert([cfg, weights], {}).model
        except EdgedeployError:
            refused += 1
        else:
            converted += 1
            if load:
                onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        assert time.process_time() - begun < SECONDS, cfg.read_bytes()
    return refused, converted


def test_mutated_files_are_refused_or_are_networks_that_onnxruntime_takes(
    seed: tuple[str, bytes], tmp_path: Path
) -> None:
    refused, converted = fuzz(tmp_path, seed, 600, load=True)
    assert refused > 200
    assert converted > 20


@pytest.mark.slow
def test_many_mutated_files_give_errors_of_ours(seed: tuple[str, bytes], tmp_path: Path) -> None:
    refused, converted = fuzz(tmp_path, seed, 12_000, load=False)
    assert refused > 4000
    assert converted > 400


@pytest.mark.parametrize("weights", ["file", "random"])
@pytest.mark.parametrize(
    "body",
    [
        "[convolutional]\nfilters=2147483647\nsize=2147483647\npadding=2147483647\n",
        "[convolutional]\nfilters=100000\nsize=999\npad=1\n",
        "[convolutional]\nfilters=2147483647\n",
        "[connected]\noutput=2147483647\n",
        "[upsample]\nstride=2147483647\n",
        "[upsample]\nstride=2\n" * 2000,
        "[route]\nlayers=" + "-1," * 80_000 + "\n",
        "[maxpool]\nsize=1\n[shortcut]\nfrom=" + "0," * 120_000 + "\n",
        "[maxpool]\nsize=1\n" + "[route]\nlayers=-1,-1,-1,-1\n" * 2000,
        "[maxpool]\nsize=2147483647\nstride=1\n",
        "[yolo]\nanchors=1,2\nnum=2147483647\nclasses=2147483647\n",
        "[yolo]\nanchors=" + "1," * 120_000 + "\n",
        "[softmax]\ngroups=2147483647\n",
        "[dropout]\n" * 25_000,
        "[x" * 120_000,
        "[net]\n" + "a=b\n" * 60_000,
        "[net]\n" + "".join(f"{number}=1\n" for number in range(30_000)),
        "[" * 200_000,
        "\n" * 250_000,
    ],
    ids=lambda body: body[:24].replace("\n", " "),
)
def test_hostile_counts_cost_little(body: str, weights: str, tmp_path: Path) -> None:
    text = "[net]\nwidth=16\nheight=16\nchannels=3\n" + body
    files = [tmp_path / "net.cfg", tmp_path / "net.weights"]
    files[0].write_text(text)
    files[1].write_bytes(bytes(1000))
    FORMAT.convert(_harmless(tmp_path), {}, ImportOptions(weights="random"))  # what is imported once is no cost
    options = ImportOptions(weights="file" if weights == "file" else "random")
    begun = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(EdgedeployError):
            FORMAT.convert(files, {}, options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A text's lines cost more than their characters as objects, which its largest size bounds.
    assert peak < 4 * len(text) + 2**24
    assert time.process_time() - begun < SECONDS


def _harmless(folder: Path) -> list[Path]:
    path = folder / "harmless.cfg"
    path.write_text("[net]\nwidth=4\nheight=4\nchannels=1\n[avgpool]\n")
    return [path]
