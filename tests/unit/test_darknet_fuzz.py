"""Hostile cfg files and weights give errors of ours: no crash, no hang, no memory."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from support.darknet_interpreter import Recorder, interpret
from support.fuzzing import damaged, damaged_text, peak_of, survive
from support.onnxruntime_runner import OnnxruntimeRunner

from edgedeploy.frontends.darknet import FORMAT
from edgedeploy.frontends.format import ImportOptions

# Most sections, one in a line.
SECTIONS = """
[net] width=16 height=16 channels=3
[convolutional] batch_normalize=1 filters=8 size=3 stride=2 pad=1 activation=leaky
[convolutional] filters=8 groups=8 size=3 dilation=2 pad=1 activation=mish
[shortcut] from=-2 activation=linear
[maxpool] size=2 stride=1
[route] layers=-1,-2,0 groups=2 group_id=1
[upsample] stride=2 scale=0.5
[local_avgpool] size=3 stride=2
[reorg] stride=2
[batchnorm]
[convolutional] filters=14 activation=linear
[yolo] mask=0,2 anchors=1,2,3,4,5,6 classes=2 num=3
[route] layers=2
[avgpool]
[connected] output=8 activation=logistic
[scale_channels] from=2
[convolutional] filters=7 size=1 activation=linear
[region] anchors=1.5,2.5 classes=2 softmax=1
"""
SEED = SECTIONS.strip().replace("\n", "\n\n").replace(" ", "\n") + "\n"
HOSTILE = ["0", "-1", "-2", "2", "3", "7", "255", "65536", "2147483647", "-2147483648", "2147483648", "9" * 40, "1e9"]
HOSTILE += ["", ",", "1,-1,0", "nan", "inf", "1e-400", "1e308", "٣", "\0", "=", "leaky", "-1," * 200]


@pytest.fixture(scope="module")
def sound_weights(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Those of SEED, which has most sections."""
    recorder = Recorder()
    interpret(SEED, np.zeros((3, 16, 16), np.float32), recorder.take)
    return recorder.save(tmp_path_factory.mktemp("seed") / "seed.weights").read_bytes()


@pytest.mark.parametrize(("count", "load"), [(600, True), pytest.param(12_000, False, marks=pytest.mark.slow)])
def test_damaged_files_are_refused_or_valid(sound_weights: bytes, tmp_path: Path, count: int, load: bool) -> None:
    random, converted = np.random.default_rng(0), 0
    cfg, beside = tmp_path / "net.cfg", tmp_path / "net.weights"

    def convert() -> None:
        model = FORMAT.convert([cfg, beside], {}).model
        if load:
            OnnxruntimeRunner(model.SerializeToString())

    for case in range(count):
        cfg.write_bytes(damaged_text(SEED.encode(), random, HOSTILE) if case % 4 else SEED.encode())
        beside.write_bytes(sound_weights if case % 4 > 1 else damaged(sound_weights, random))
        converted += survive(convert)
    assert count / 30 < converted < count * 2 / 3


@pytest.mark.quick("*-file")
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
def test_hostile_counts_cost_little(body: str, weights: Literal["file", "random"], tmp_path: Path) -> None:
    text = "[net]\nwidth=16\nheight=16\nchannels=3\n" + body
    files = [tmp_path / "net.cfg", tmp_path / "net.weights"]
    files[0].write_text(text)
    files[1].write_bytes(bytes(1000))
    FORMAT.convert(_harmless(tmp_path), {}, ImportOptions(weights="random"))  # what is imported once is no cost
    results: list[bool] = []

    def convert() -> None:
        FORMAT.convert(files, {}, ImportOptions(weights=weights))

    peak = peak_of(lambda: results.append(survive(convert)))
    assert results == [False]
    # A text's lines cost more than their characters as objects, which its largest size bounds.
    assert peak < 4 * len(text) + 2**24


def _harmless(folder: Path) -> list[Path]:
    path = folder / "harmless.cfg"
    path.write_text("[net]\nwidth=4\nheight=4\nchannels=1\n[avgpool]\n")
    return [path]
