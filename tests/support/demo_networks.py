"""The networks of demos from the development material, on onnxruntime or on another runner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgedeploy.demo.pipeline import Network
from edgedeploy.demo.spec import DEMOS
from edgedeploy.runtime.interface import Runner
from edgedeploy.zoo.entry import MODELS, ZooModel, load_labels
from support.onnxruntime_runner import OnnxruntimeRunner


def on_onnxruntime(entry: ZooModel, path: Path) -> Runner:
    return OnnxruntimeRunner(path, shapes={entry.input.name: entry.input.shape})


def demo_network(
    shared: Path, demo_name: str, model: str | None = None, run: Callable[[ZooModel, Path], Runner] = on_onnxruntime
) -> Network:
    """The first network of a demo, or `model` in its place, whose file lies in the shared folder."""
    demo = DEMOS.load(demo_name)
    model = model or demo.model
    entry = MODELS.load(model)
    [path] = (shared / "models").rglob(entry.files[0].name)
    labels = load_labels(entry.labels) if entry.labels else []
    return Network(demo, model, path, run(entry, path), entry.input, labels, entry.outputs)
