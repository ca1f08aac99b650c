"""What the sections of Darknet's cfg files compute, against a second implementation in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.darknet_interpreter import FUNCTIONS, Recorder, interpret
from support.onnxruntime_runner import run_onnx
from support.running import outputs_of

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.darknet import FORMAT
from edgedeploy.target.board import load_board

IMAGE = (4, 12, 16)
NET = "[net]\nbatch=64\nchannels=4\nheight=12\nwidth=16\n"


def conv(filters: int, *options: str) -> str:
    """A convolution of single pixels, unless options say otherwise."""
    return "\n".join(["[convolutional]", f"filters={filters}", *options, "activation=linear", ""])


# Each ends with the layer that is looked at.
SECTIONS = {
    "convolution": "[convolutional]\nfilters=6\nsize=3\nstride=2\npad=1\nactivation=leaky",
    "convolution without padding": conv(6, "size=3"),
    "convolution with padding of its own": conv(6, "size=3", "padding=3"),
    "convolution of even size": conv(2, "size=4", "pad=1"),
    "convolution with defaults": "[convolutional]\n",
    "convolution with batch normalisation": "[convolutional]\nbatch_normalize=1\nfilters=6\nsize=3\nactivation=leaky",
    "convolution in groups": conv(6, "size=3", "groups=2", "pad=1"),
    "depthwise convolution": conv(4, "batch_normalize=1", "size=5", "groups=4", "pad=1"),
    "convolution with two strides": conv(3, "size=3", "stride_x=3", "stride_y=2"),
    "dilated convolution": conv(3, "size=3", "dilation=2", "stride=2", "pad=1"),
    "short names": "[conv]\nfilters=8\nactivation=linear\n[max]\nsize=2\nstride=2\n[avg]\n[conn]\noutput=6\n[soft]\n",
    "connected": "[connected]\noutput=7\nactivation=tanh",
    "connected with batch normalisation": "[connected]\noutput=7\nbatch_normalize=1\nactivation=linear",
    "batch normalisation": "[batchnorm]",
    "maximum": "[maxpool]\nsize=2\nstride=2",
    "maximum of stride one": "[maxpool]\nsize=2\nstride=1",
    "maximum of odd size": "[maxpool]\nsize=3\nstride=2",
    "maximum without padding": "[maxpool]\nsize=3\nstride=2\npadding=0",
    "maximum of odd padding": "[maxpool]\nsize=4\nstride=3\npadding=3",
    "maximum of size as stride": "[maxpool]\nstride=3",
    "maximum of large windows": "[maxpool]\nsize=13\nstride=1",
    "maximum with two strides": "[maxpool]\nsize=3\nstride=1\nstride_x=2",
    "mean of windows": "[local_avgpool]\nsize=3\nstride=2",
    "mean of windows of stride one": "[local_avgpool]\nsize=2\nstride=1",
    "mean": "[avgpool]",
    "upsampling": "[upsample]",
    "upsampling with scale": "[upsample]\nstride=3\nscale=.5",
    "downsampling": "[upsample]\nstride=-2\nscale=2",
    "reorg": "[reorg]\nstride=2",
    "reorg of many channels": conv(24) + "[reorg]\nstride=2",
    "reorg in threes": conv(18) + "[upsample]\nstride=3\n[reorg]\nstride=3",
    "reorg reversed": conv(24) + "[reorg]\nstride=2\nreverse=1",
    "reorg3d": conv(3) + "[reorg3d]\nstride=2",
    "route": conv(3) + conv(5) + "[route]\nlayers=-1, 0",
    "route backwards": conv(3) + "[maxpool]\nstride=2\n[route]\nlayers=-2",
    "route of a part": conv(6) + "[route]\nlayers=-1\ngroups=3\ngroup_id=1",
    "route of parts": conv(6) + conv(2) + "[route]\nlayers=0,1\ngroups=2\ngroup_id=1",
    "shortcut": conv(3) + conv(3) + "[shortcut]\nfrom=-2\nactivation=leaky",
    "shortcut of several": conv(3) + conv(3) + conv(3) + "[shortcut]\nfrom=-2,0",
    "shortcut to more channels": conv(3) + conv(5) + "[shortcut]\nfrom=-2\nactivation=linear",
    "shortcut to fewer channels": conv(5) + conv(3) + "[shortcut]\nfrom=-2\nactivation=linear",
    "shortcut to fewer pixels": conv(3)
    + conv(5, "size=3", "stride=2", "pad=1")
    + "[shortcut]\nfrom=0\nactivation=leaky",
    "shortcut to more pixels": conv(5) + "[maxpool]\nstride=2\n[upsample]\n" + conv(7) + "[shortcut]\nfrom=1",
    "shortcut to slightly fewer pixels": conv(3) + conv(3, "size=3") + "[shortcut]\nfrom=-2",
    "shortcut to slightly more pixels": conv(3, "size=3") + conv(3, "size=3", "padding=2") + "[shortcut]\nfrom=-2",
    "scaled channels": conv(6) + "[avgpool]\n[connected]\noutput=6\n[scale_channels]\nfrom=-3",
    "scaled pixels": conv(6) + conv(1) + "[scale_channels]\nfrom=-2\nscale_wh=1\nactivation=relu",
    "sam": conv(6) + "[convolutional]\nfilters=6\nactivation=logistic\n[sam]\nfrom=-2",
    "dropout": conv(6) + "[dropout]\nprobability=.5",
    "cost": "[avgpool]\n[softmax]\n[cost]\ntype=sse",
    "softmax": "[avgpool]\n[softmax]",
    "softmax of an image": "[softmax]",
    "softmax in groups": "[connected]\noutput=12\nactivation=linear\n[softmax]\ngroups=3\ntemperature=2.5",
    "yolo": conv(14) + "[yolo]\nclasses=2\nnum=3\nmask=0,2\nanchors=1,2, 3,4, 5,6",
    "region": conv(7) + "[region]\nclasses=2\nnum=1\nanchors=1.5,2.5\nsoftmax=1",
}
ACTIVATIONS = {name: f"[activation]\nactivation={name}" for name in FUNCTIONS}
LONG = {"conv": "convolutional", "max": "maxpool", "avg": "avgpool", "conn": "connected", "soft": "softmax"}


def saved(folder: Path, body: str) -> tuple[list[Path], np.ndarray, np.ndarray]:
    """A network's files with weights, an image, and what the interpreter makes of it."""
    cfg = folder / "net.cfg"
    cfg.write_text(NET + body)
    text = NET + body + "\n"
    for short, name in LONG.items():
        text = text.replace(f"[{short}]", f"[{name}]")
    image = np.random.default_rng(1).standard_normal(IMAGE).astype(np.float32) * 2
    recorder = Recorder()
    outputs = interpret(text, image, recorder.take)
    return [cfg, recorder.save(folder / "net.weights")], image, outputs[-1]


def run(files: list[Path], images: np.ndarray) -> dict[str, np.ndarray]:
    """The outputs of a converted network, by onnxruntime."""
    return run_onnx(FORMAT.convert(files, {"data": images.shape}).model, images)


def close(found: np.ndarray, wanted: np.ndarray) -> bool:
    return found.shape == wanted.shape and bool(np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("body", [*SECTIONS.values(), *ACTIVATIONS.values()], ids=[*SECTIONS, *ACTIVATIONS])
def test_a_section_computes_what_darknet_computes(body: str, tmp_path: Path) -> None:
    files, image, wanted = saved(tmp_path, body)
    [found] = run(files, image[None]).values()
    assert close(found[0], wanted)


@pytest.mark.parametrize("body", SECTIONS.values(), ids=SECTIONS)
def test_images_of_a_batch_do_not_see_each_other(body: str, tmp_path: Path) -> None:
    files, image, wanted = saved(tmp_path, body)
    [found] = run(files, np.stack([image * 0.5, image])).values()
    assert close(found[1], wanted)


@pytest.mark.slow
@pytest.mark.parametrize("body", [*SECTIONS.values(), *ACTIVATIONS.values()], ids=[*SECTIONS, *ACTIVATIONS])
def test_compiled_code_computes_the_same(body: str, tmp_path: Path) -> None:
    files, image, wanted = saved(tmp_path, body)
    [found] = outputs_of(compile_network(FORMAT.read(files, {}), load_board("local")), {"data": image[None]})
    assert close(found[0], wanted)
