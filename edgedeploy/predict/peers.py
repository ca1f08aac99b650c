"""Other engines on a board's core: their own wheels for ARM, run and recorded under emulation."""

from __future__ import annotations

import importlib.metadata
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgedeploy.bench.engines import find_peers
from edgedeploy.bench.engines.engine import CannotRunError, Engine, Task
from edgedeploy.bench.networks import Candidate
from edgedeploy.board import Board
from edgedeploy.errors import EdgedeployError, UnsupportedError
from edgedeploy.package.manifest import Manifest
from edgedeploy.predict.machine import machine
from edgedeploy.predict.means import Means
from edgedeploy.predict.ownership import owners_by_file
from edgedeploy.predict.prediction import Prediction, predicted
from edgedeploy.predict.record import read_record
from edgedeploy.predict.recording import Marks, run_recorded
from edgedeploy.predict.wheels import Site, site
from edgedeploy.progress import SILENT, Progress
from edgedeploy.selftest.comparison import where_finite
from edgedeploy.tensors import Tensors

SCRIPT = Path(__file__).with_name("peer.py")
# Those that `peer.py` runs.
NAMES = ("ncnn", "onnxruntime", "mnn", "litert")

# It calls getpgid(0), call 155 of 64-bit ARM, before the first inference, between both, and after the second.
_MARKS = Marks(call=155, argument=0, watch=0, record=1)

# Outputs may differ by so much of the largest value: engines with other kernels round otherwise, but no more.
_DIFFERENCE = 0.02


@dataclass(frozen=True)
class PeerPrediction:
    """What an inference of another engine takes.

    Attributes:
        engine: its name.
        version: of its wheel, whose SHA-256 is `sha256`.
        prediction: by file instead of function; None if the engine cannot run the network.
        difference: of its outputs from the reference's, as a fraction of the largest value.
        left_out: why there is no prediction.
    """

    engine: str
    version: str | None = None
    sha256: str | None = None
    prediction: Prediction | None = None
    difference: float | None = None
    left_out: str | None = None


def find_predictable_peers(names: str) -> list[Engine]:
    """The engines of a list such as `ncnn,onnxruntime`.

    Raises:
        UnknownNameError, InputError: as `find_peers`.
        UnsupportedError: one has no wheels for ARM that are run here.
    """
    engines = find_peers(names)
    for engine in engines:
        if engine.name not in NAMES:
            raise UnsupportedError(f"{engine.name} is not predicted", hints=[f"there are {', '.join(NAMES)}"])
    return engines


def predict_peers(
    engines: Sequence[Engine],
    candidate: Candidate,
    manifest: Manifest,
    contents: dict[str, bytes],
    board: Board,
    means: Means,
    progress: Progress = SILENT,
) -> list[PeerPrediction]:
    """What one inference of a network takes in other engines; those that cannot run it say why.

    Args:
        engines: of `find_predictable_peers`.
        candidate: the network.
        manifest, contents: edgedeploy's package of it, whose recorded inputs all engines get.
        board, means: the core.
        progress: is told of each step.

    Raises:
        VirtualBoardError, OutputError: the machine that they run on cannot be made.
    """
    case = manifest.selftest.cases[0]
    inputs = dict(
        zip((spec.name for spec in manifest.inputs), _arrays(manifest.inputs, case.inputs, contents), strict=True)
    )
    expected = dict(
        zip((spec.name for spec in manifest.outputs), _arrays(manifest.outputs, case.outputs, contents), strict=True)
    )
    with tempfile.TemporaryDirectory(prefix="edgedeploy-predict-") as folder:
        place = Path(folder)
        for name in ("root", "source"):
            (place / name).mkdir()
        root = machine(board, means.core, place / "root", progress)
        found = []
        for engine in engines:
            own = place / engine.name
            own.mkdir()
            try:
                file = candidate.write(place / "source")
                task = Task(file, candidate.prepared.package_path, inputs, list(expected), threads=1, folder=own)
                found.append(_predict(engine, task, expected, root, board, means, progress))
            except (CannotRunError, EdgedeployError) as error:
                found.append(PeerPrediction(engine.name, left_out=str(error)))
        return found


def _arrays(specs: Sequence, members: Sequence[str], contents: dict[str, bytes]) -> list[np.ndarray]:
    return [
        np.frombuffer(contents[member], spec.dtype).reshape(spec.shape)
        for spec, member in zip(specs, members, strict=True)
    ]


def _predict(
    engine: Engine, task: Task, expected: Tensors, root: Path, board: Board, means: Means, progress: Progress
) -> PeerPrediction:
    """One engine.

    Raises:
        CannotRunError, EdgedeployError: it cannot run the network.
    """
    if task.file.suffix != engine.suffix:
        raise CannotRunError(f"it reads {engine.suffix} files, and the network is {task.file.name}")
    wheel = wheel_of(engine, board, progress)  # before the conversion: it may not be had
    file = engine.convert(task) if engine.convert else task.file
    prediction, outputs = predict_engine(engine.name, wheel, file, task, root, board, means, progress)
    found = difference(outputs, list(expected.values()))
    if found > _DIFFERENCE:
        raise CannotRunError(f"its outputs differ by {found:.2g} of the largest value")
    return PeerPrediction(engine.name, wheel.version, wheel.sha256, prediction, found)


def wheel_of(engine: Engine, board: Board, progress: Progress = SILENT) -> Site:
    """An engine's wheel for a board, of the version that is installed here: its converter writes what that one reads.

    Raises:
        DownloadError, OutputError: as `site`.
    """
    return site(engine.distribution, importlib.metadata.version(engine.distribution), board.architecture, progress)


def predict_engine(
    name: str, wheel: Site, file: Path, task: Task, root: Path, board: Board, means: Means, progress: Progress = SILENT
) -> tuple[Prediction, list[np.ndarray]]:
    """What one inference of a network takes in an engine, file by file, and the network's outputs.

    Args:
        name: the engine's, of `NAMES`.
        wheel: what runs.
        file: the network in the engine's own form.
        task: its inputs, the names of its outputs, and a folder.
        root: of `machine`.
        board, means: the core.
        progress: is told of each step.

    Raises:
        UnsupportedError: the engine fails.
        DownloadError, ToolchainError, OutputError: as `site` and `run_recorded`.
    """
    numpy = site("numpy", importlib.metadata.version("numpy"), board.architecture, progress)
    record = task.folder / "record"
    record.mkdir()
    given, written, names = (task.folder / name for name in ("inputs.npz", "outputs.npz", "names.json"))
    np.savez(given, *task.inputs.values())
    names.write_text(json.dumps({"inputs": list(task.inputs), "outputs": task.outputs}), encoding="utf-8")
    python = root / "usr/bin/python3"
    run_recorded(
        [str(python), str(SCRIPT), name, *map(str, (file, given, written, names))],
        board,
        means.core,
        _MARKS,
        record,
        options=["-cpu", board.cpu, "-L", str(root)],
        environment={
            "PYTHONPATH": f"{wheel.path}:{numpy.path}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONSAFEPATH": "1",  # modules beside the script are not for it
            "ORT_DISABLE_TELEMETRY": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        },
        what=f"one inference of {name} {wheel.version}",
        progress=progress,
    )
    with np.load(written) as content:
        outputs = [content[name] for name in content.files]
    read = read_record(record, agent=python, library=file)
    return predicted(read, owners_by_file(read), board, means.core, means.llvm, progress), outputs


def difference(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest one of all outputs, as a fraction of the largest value; infinite if they are not comparable."""
    worst = 0.0
    if len(found) != len(expected):
        return float("inf")
    for given, wanted in zip(found, expected, strict=True):
        pair = where_finite(given, wanted) if given.size == wanted.size else None
        if pair is None:
            return float("inf")
        largest = float(np.abs(pair[1]).max(initial=0)) or 1.0
        worst = max(worst, float(np.abs(pair[0] - pair[1]).max(initial=0)) / largest)
    return worst
