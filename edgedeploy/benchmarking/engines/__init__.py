"""The engines that networks are measured on, one module each; a new one is added to the list here."""

from __future__ import annotations

from collections.abc import Sequence

from edgedeploy.benchmarking.engines import (
    litert,
    mnn,
    ncnn,
    onnxruntime,
    onnxruntime_gpu,
    openvino,
    ours,
    tensorrt,
    torch,
)
from edgedeploy.benchmarking.engines.engine import Engine
from edgedeploy.catalog import unknown_name
from edgedeploy.errors import InputError
from edgedeploy.plugins import Group

OURS, UNTUNED = ours.ENGINE, ours.UNTUNED
# The engine that says what is right, and by the suffix of the networks' files as engines are given them.
REFERENCE = onnxruntime.ENGINE
REFERENCES = {engine.suffix: engine for engine in (REFERENCE, litert.ENGINE)}
_OWN = [
    *(onnxruntime.ENGINE, openvino.ENGINE, ncnn.ENGINE, mnn.ENGINE, litert.ENGINE, torch.ENGINE),
    *(torch.COMPILED, tensorrt.ENGINE, onnxruntime_gpu.ENGINE),
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


def find_peers(names: str | None) -> list[Engine]:
    """The engines of a list such as `openvino,ncnn`, each once and in its order; those measured by default if there is
    no list.
    """
    return peers_called(None if names is None else [name.strip() for name in names.split(",") if name.strip()])


def peers_called(names: Sequence[str] | None) -> list[Engine]:
    """The engines of these names, each once and in their order; those measured by default if there
    is no list.
    """
    if names is None:
        return [engine for engine in PEERS if engine.by_default]
    known = [engine.name for engine in PEERS]
    wanted = dict.fromkeys(name.lower() for name in names)
    for name in wanted:
        if name not in known:
            raise unknown_name("engine", name, known)
    if not wanted:
        raise InputError("no engine to measure against was named", why=f"known engines: {', '.join(known)}")
    return [find_engine(name) for name in wanted]
