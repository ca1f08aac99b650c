"""The demos with the bundled network on onnxruntime in the place of a compiled one."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgedeploy.base.progress import Progress
from edgedeploy.demo import program
from edgedeploy.demo.pipeline import Network
from edgedeploy.demo.spec import DEMOS
from edgedeploy.frontends.onnx import FORMAT as ONNX
from edgedeploy.runtime.opening import Opened, Place, Runner
from edgedeploy.target.resolved import ResolvedBoard
from edgedeploy.zoo.entry import MODELS, ZooModel, load_labels
from edgedeploy.zoo.source import Source
from support.agreement import OnnxruntimeRunner

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "digits.onnx"

RunDemo = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shared_zoo(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zoo's networks and images come from the development material."""
    monkeypatch.setenv("EDGEDEPLOY_MODELS", f"{shared / 'models'}:{shared / 'images'}")


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


def masked(log: str) -> str:
    """A log without what differs from run to run, and from place to place: times, threads and where files lie."""
    return re.sub(r"\d+\.\d+ ms|thread \d+|(?<=model file : ).*|(?<=image file : ).*", "#", log)


def assert_alike(found: str, wanted: str) -> None:
    """Two logs have the same lines; numbers that are printed with six digits may differ in the last one."""
    number = r"-?\d+\.\d{2,}"
    assert re.sub(number, "#", found) == re.sub(number, "#", wanted)
    for one, other in zip(re.findall(number, found), re.findall(number, wanted), strict=True):
        assert float(one) == pytest.approx(float(other), rel=1e-5, abs=2e-5), (one, other)


def on_onnxruntime(entry: ZooModel, path: Path) -> Runner:
    """A network of any format."""
    shapes = {entry.input.name: entry.input.shape}
    source = Source.of(path, shapes)
    if source.format is ONNX:
        return OnnxruntimeRunner(path, shapes=shapes)
    return OnnxruntimeRunner(source.format.convert(source.files, shapes).model.SerializeToString())


def demo_network(
    shared: Path, demo_name: str, model: str | None = None, run: Callable[[ZooModel, Path], Runner] = on_onnxruntime
) -> Network:
    """The first network of a demo, or `model` in its place, whose file lies in the shared folder."""
    demo = DEMOS.load(demo_name)
    model = model or demo.model
    entry = MODELS.load(model)
    [path] = (shared / "models").rglob(entry.files[0].name)
    labels = load_labels(entry.labels) if entry.labels else []
    return Network(demo, model, entry.input, labels, entry.outputs, path, run(entry, path))


def pixels_for(model: str) -> dict[str, np.ndarray]:
    """Seeded pixels as the entry of a network prepares them, smooth as images are; by the input's name."""
    entry = MODELS.load(model).input
    random = np.random.default_rng(5)
    height, width = entry.size
    coarse = random.uniform(0, 255, (3, height // 16 + 1, width // 16 + 1))
    pixels = coarse.repeat(16, 1).repeat(16, 2)[:, :height, :width] + random.normal(0, 8, (3, height, width))
    mean, scale = (np.reshape(values, (3, 1, 1)) for values in (entry.mean, entry.scale))
    return {entry.name: ((pixels.clip(0, 255) - mean) * scale)[None].astype(np.float32)}
