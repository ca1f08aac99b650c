"""The engines that networks are measured on; the list here names them all."""

from __future__ import annotations

from collections.abc import Sequence

from edgedeploy.base.catalog import unknown_name
from edgedeploy.base.plugins import Group
from edgedeploy.benchmarking.engines import cpu, nvidia, openvino, ours, torch
from edgedeploy.benchmarking.engines.engine import Engine
from edgedeploy.errors import InputError

OURS, UNTUNED = ours.ENGINE, ours.UNTUNED
# The engine whose outputs are taken for right, by the suffix of the networks' files.
REFERENCE = cpu.ONNXRUNTIME
REFERENCES = {engine.suffix: engine for engine in (REFERENCE, cpu.LITERT)}
_OWN = [
    *(cpu.ONNXRUNTIME, openvino.ENGINE, cpu.NCNN, cpu.MNN, cpu.LITERT, torch.ENGINE),
    *(cpu.NCNN_HALF, cpu.MNN_HALF, torch.COMPILED, nvidia.TENSORRT, nvidia.ONNXRUNTIME_GPU),
]
# Those of other packages.
_OTHERS: Group[Engine] = Group(
    "edgedeploy.engines", "engine", "Engine", lambda given: given.name if isinstance(given, Engine) else None
)
PEERS = [*_OWN, *_OTHERS.sound([engine.name for engine in [OURS, UNTUNED, *_OWN]])]

_BY_NAME = {engine.name: engine for engine in [OURS, UNTUNED, *PEERS]}


def find_engine(name: str) -> Engine:
    """The engine of that name, edgedeploy itself among them."""
    return _BY_NAME[name]


def find_peers(names: str | Sequence[str] | None) -> list[Engine]:
    """The engines of a list such as `openvino,ncnn`, each once and in its order; those measured by default if None."""
    if names is None:
        return [engine for engine in PEERS if engine.by_default]
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",") if name.strip()]
    known = [engine.name for engine in PEERS]
    wanted = dict.fromkeys(name.lower() for name in names)
    for name in wanted:
        if name not in known:
            raise unknown_name("engine", name, known)
    if not wanted:
        raise InputError("no engine to measure against was named", why=f"known engines: {', '.join(known)}")
    return [find_engine(name) for name in wanted]
