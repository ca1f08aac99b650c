"""Writes the networks of the sweep as files, with PyTorch; the only part of it that needs PyTorch.

Weights are random, of a fixed seed, and made such that what a network computes depends on all of it: what training
begins with at zero or one is moved from there, and batch normalisation knows the statistics of random inputs.
"""

from __future__ import annotations

import importlib
import io
import os
import resource
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from sweep_networks import Case, Network
from torch import Tensor, nn

DEADLINE_S = 900
MEMORY_BYTES = 8 << 30  # of address space: networks on videos take tens of GB while they are traced
OPSETS = {"legacy": 17, "dynamo": 18}
_BATCHES = 4  # of random inputs, for statistics
_MESSAGE_LENGTH = 400

_NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm)


def export(cases: Sequence[Case], folder: Path) -> None:
    """Write the files that are not there; one that its exporter refuses has a file with the reason instead."""
    os.environ.update(YOLO_AUTOINSTALL="false", YOLO_OFFLINE="true", YOLO_VERBOSE="false", HF_HUB_OFFLINE="1")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    torch.backends.mha.set_fastpath_enabled(False)  # one operator for a whole layer, which no exporter knows
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases:
        file, refusal = case.file(folder), case.refusal(folder)
        if file.is_file() or refusal.is_file():
            continue
        temporary, said = file.with_suffix(".tmp"), io.StringIO()
        try:
            with _deadline(DEADLINE_S), redirect_stdout(said), redirect_stderr(said), torch.no_grad():
                model, inputs = made(case.network)
                EXPORTERS[case.exporter](model, inputs, temporary)
            temporary.rename(file)
            print(f"{file.name}: {file.stat().st_size:,} bytes", flush=True)
        except Exception as error:
            temporary.unlink(missing_ok=True)
            lines = " ".join(str(error).split()) or "no message"
            refusal.write_text(f"{type(error).__name__}: {lines}"[:_MESSAGE_LENGTH], encoding="utf-8")
            print(f"{case.name}: {refusal.read_text(encoding='utf-8')}", file=sys.stderr, flush=True)


@torch.no_grad()
def made(network: Network) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A network, ready for inference, and inputs for it."""
    torch.manual_seed(0)
    model = FAMILIES[network.family](network.name, **network.options).float()
    _leave_the_start(model)
    _learn_statistics(model, network)
    return model.eval(), _random_inputs(network)


def _random_inputs(network: Network) -> tuple[Tensor, ...]:
    return tuple(
        torch.randn(each.shape) if each.below is None else torch.randint(each.below, each.shape)
        for each in network.inputs
    )


def _leave_the_start(model: nn.Module) -> None:
    """Move parameters that are all alike: a branch whose last scale begins at zero would compute nothing."""
    norms = {id(each.weight) for each in model.modules() if isinstance(each, _NORMS) and each.weight is not None}
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point() or parameter.numel() < 2 or parameter.min() != parameter.max():
            continue
        first = float(parameter.detach().flatten()[0])
        if id(parameter) in norms or name.rpartition(".")[2].startswith(("gamma", "layer_scale", "ls", "scale")):
            parameter.data.uniform_(0.5, 1.5).mul_(first if abs(first) > 1e-2 else 0.3)
        else:
            parameter.data.add_(torch.randn_like(parameter), alpha=0.05)


def _learn_statistics(model: nn.Module, network: Network) -> None:
    """Let batch normalisation see random inputs; everything else is as for inference."""
    norms = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    model.eval()
    for each in norms:
        each.reset_running_stats()
        each.momentum = None  # the mean over all batches
        each.train()
    for _ in range(_BATCHES if norms else 0):
        values = tuple(torch.cat([each, torch.randn_like(each)]) for each in _random_inputs(network))
        model(*values)
    model.eval()


def _torchvision(name: str) -> nn.Module:
    import torchvision

    without = {"weights_backbone": None} if name.startswith(("deeplab", "fcn", "lraspp", "ssd")) else {}
    without |= {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    model = torchvision.models.get_model(name, weights=None, **without)
    if name.startswith(("deeplab", "fcn", "lraspp")):
        return _Chosen(model, "out")
    return model


def _timm(name: str) -> nn.Module:
    import timm

    timm.layers.set_exportable(True)
    return timm.create_model(name, pretrained=False)


def _ultralytics(name: str, model: str | None = None, nms: bool = False) -> nn.Module:
    from types import SimpleNamespace

    from ultralytics import RTDETR, YOLO

    kind = RTDETR if "rtdetr" in name else YOLO
    made = kind(f"{model or name}.yaml").model
    made.eval()
    for part in made.modules():
        if hasattr(part, "export"):
            part.export, part.format, part.dynamic = True, "onnx", False
    if not nms:
        return made
    from ultralytics.engine.exporter import NMSModel

    asked = {"format": "onnx", "dynamic": False, "batch": 1, "conf": 0.25, "iou": 0.7, "max_det": 300}
    return NMSModel(made, SimpleNamespace(**asked, agnostic_nms=False, opset=17, quantize=None))


def _own(name: str) -> nn.Module:
    return getattr(importlib.import_module("networks.pytorch"), name)()


FAMILIES: dict[str, Any] = {"own": _own, "timm": _timm, "torchvision": _torchvision, "ultralytics": _ultralytics}


class _Chosen(nn.Module):
    """A network's output of one name."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, *values: Tensor) -> Tensor:
        """That output."""
        return self.model(*values)[self.name]


def _legacy(model: nn.Module, inputs: tuple[Tensor, ...], file: Path) -> None:
    torch.onnx.export(model, inputs, str(file), opset_version=OPSETS["legacy"], dynamo=False)


def _dynamo(model: nn.Module, inputs: tuple[Tensor, ...], file: Path) -> None:
    torch.onnx.export(
        model, inputs, str(file), opset_version=OPSETS["dynamo"], dynamo=True, external_data=False, verbose=False
    )


def _pt2(model: nn.Module, inputs: tuple[Tensor, ...], file: Path) -> None:
    torch.export.save(torch.export.export(model, inputs), buffer := io.BytesIO())
    file.write_bytes(buffer.getvalue())


def _tflite(model: nn.Module, inputs: tuple[Tensor, ...], file: Path) -> None:
    import litert_torch

    written = file.with_suffix(".tflite")  # it takes no other suffix
    litert_torch.convert(model, inputs).export(str(written))
    written.rename(file)


EXPORTERS = {"legacy": _legacy, "dynamo": _dynamo, "pt2": _pt2, "tflite": _tflite}


@contextmanager
def _deadline(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in what takes longer."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
