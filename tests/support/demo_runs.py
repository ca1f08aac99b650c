"""The demos with the bundled network on onnxruntime in the place of a compiled one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgedeploy.base.progress import Progress
from edgedeploy.demo import program
from edgedeploy.runtime.opening import Opened, Place
from edgedeploy.target.resolved import ResolvedBoard
from support.onnxruntime_runner import OnnxruntimeRunner

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "digits.onnx"

RunDemo = Callable[..., tuple[int, str, str]]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stands in for building; collects what was asked to be built."""
    asked: list[dict[str, Any]] = []

    def prepare(model: str, board: ResolvedBoard, **options: Any) -> SimpleNamespace:
        asked.append({"model": model, "board": board.label, **options})
        network = OnnxruntimeRunner(MODEL)
        about = {"heads": [], "metadata": {}, "weights": "file"}
        manifest = SimpleNamespace(inputs=network.inputs, outputs=network.outputs, results=network.outputs, **about)
        return SimpleNamespace(source=SimpleNamespace(file=MODEL), package_path=MODEL, manifest=manifest)

    def opening(place: Place, threads: int | None, progress: Progress) -> Any:
        asked[-1]["threads"] = threads
        return nullcontext(lambda packages: [Opened(OnnxruntimeRunner(package, threads or 1)) for package in packages])

    monkeypatch.setattr(program, "prepare", prepare)
    monkeypatch.setattr(program, "opening", opening)
    return asked


@pytest.fixture
def run_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, built: list[dict[str, Any]]
) -> RunDemo:
    from conftest import run_command

    monkeypatch.chdir(tmp_path)
    return run_command(monkeypatch, capsys)
