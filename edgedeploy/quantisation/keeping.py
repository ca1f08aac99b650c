"""Quantised networks that builds make on the way, kept for later builds of the same."""

from __future__ import annotations

import importlib.metadata
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from edgedeploy.files import digest_of
from edgedeploy.kept import Kept, key_of
from edgedeploy.progress import SILENT, Progress
from edgedeploy.quantisation.making import Settings, Task, make
from edgedeploy.zoo.source import Source

_NETWORKS = Kept("quantised")

# Whose versions change what the quantiser makes.
_PACKAGES = ("numpy", "onnx", "onnxruntime", "opencv-python-headless")


def quantised_source(task: Task, progress: Progress = SILENT) -> Source:
    """The quantised network of a task, with the usual settings: the one that was made before, or a new one."""
    settings = Settings()
    name = f"{task.source.name}-int8"
    file = f"{name}.onnx"
    key = _key(task, settings)[:16]

    def fill(folder: Path) -> None:
        made = make(task, settings, progress)
        made.write(folder / file)

    folder = _NETWORKS.made(
        key, fill, f"quantising {task.source.name}", progress, sound=lambda at: (at / file).is_file()
    )
    return replace(Source.of(folder / file, {}), name=name)


def _key(task: Task, settings: Settings) -> str:
    """A hash of all that the network depends on, the images among it."""
    usage = task.usage
    return key_of(
        {
            "files": task.source.sha256,
            "options": asdict(task.source.options),
            "shapes": {name: list(shape) for name, shape in task.source.shapes.items()},
            "samples": task.samples.identity(),
            "settings": asdict(settings),
            "demo": usage and usage.stage.model_dump(mode="json"),
            "entry": usage and usage.part.entry_name,
            "input": usage and usage.part.entry.input.model_dump(mode="json"),
            "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
            "code": _code(Path(__file__).parent.parent),
        }
    )


@cache
def _code(root: Path) -> str:
    return digest_of(sorted(root.rglob("*.py")), root)
