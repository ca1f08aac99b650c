"""Other engines on a board's core: their own wheels for ARM, run and recorded under emulation."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.benchmarking.engine_program import NAMES, SCRIPT
from edgedeploy.benchmarking.engines import find_peers
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, NotHereError, Task
from edgedeploy.benchmarking.measure import compare
from edgedeploy.benchmarking.networks import Candidate
from edgedeploy.benchmarking.wheels import Site, site
from edgedeploy.board import Board
from edgedeploy.errors import EdgedeployError, OutputError, UnsupportedError, VirtualBoardError, cause_of
from edgedeploy.files import cannot_write, replacing, sha256_of
from edgedeploy.kept import Kept
from edgedeploy.package.manifest import Manifest
from edgedeploy.predicting.means import Means
from edgedeploy.predicting.prediction import Executed, Prediction, executed, priced
from edgedeploy.predicting.record import owners_by_file, read_record
from edgedeploy.predicting.recording import PYTHON, Marks, cache_options, machine, run_recorded
from edgedeploy.progress import SILENT, Progress

# Raised by whoever changes the recorder, the windows that are sampled, or how llvm-mca is called,
# so that other numbers come out.
PREDICTOR = 1


@dataclass(frozen=True)
class Key:
    """What a result depends on.

    Attributes:
        engine, version: whose wheel runs.
        network: SHA-256 of the network as the engine, or its converter, reads it, and of the inputs.
        core: the board's core, LLVM's model of it, and its caches.
        predictor: the version of what predicts.
    """

    engine: str
    version: str
    network: str
    core: str
    predictor: str

    @classmethod
    def of(
        cls, engine: str, version: str, file: Path, inputs: Mapping[str, np.ndarray], board: Board, means: Means
    ) -> Key:
        """The key of a network's file."""
        digest = hashlib.sha256(sha256_of(file).encode())
        for name, array in inputs.items():
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        core = " ".join([board.cpu, means.core.llvm, *cache_options(board, means.core)])
        return cls(engine, version, digest.hexdigest(), core, f"{PREDICTOR}, LLVM {means.llvm.version}")


@dataclass(frozen=True)
class PeerResult:
    """What an inference of another engine executes.

    Attributes:
        key: what that depends on.
        network: what people call it.
        wheel: SHA-256 of the engine's wheel.
        executed: by file; nothing if the engine cannot run the network.
        difference: of its outputs, as a fraction of the largest value; None if there are none to compare with.
        left_out: why the engine cannot run the network.
    """

    key: Key
    network: str
    wheel: str
    executed: Sequence[Executed] = ()
    difference: float | None = None
    left_out: str | None = None


class PeerResults:
    """The results in a file, which need not be there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_key = {result.key: result for result in _read(path)}

    @classmethod
    def of_user(cls) -> PeerResults:
        """Those in the user's cache folder."""
        return cls(Kept("predictions").folder / "other-engines.jsonl")

    def find(self, key: Key) -> PeerResult | None:
        """The result of a key, if there is one."""
        return self._by_key.get(key)

    def add(self, result: PeerResult) -> None:
        """Append a result."""
        self._by_key[result.key] = result
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            whole = not self._path.is_file() or self._path.read_bytes().endswith(b"\n")
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line(result) if whole else f"\n{_line(result)}")
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def tidy(self) -> None:
        """Write the file anew, in order, with the newest result of each engine, network and core."""
        newest = {(each.network, each.key.core, each.key.engine): each for each in self._by_key.values()}
        with replacing(self._path) as temporary:
            temporary.write_text("".join(_line(newest[name]) for name in sorted(newest)), encoding="utf-8")
        self._by_key = {result.key: result for result in newest.values()}


def _read(path: Path) -> list[PeerResult]:
    """The results of a file; a line that a killed process left unfinished is none."""
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(_result(json.loads(line)))
        except (ValueError, TypeError, KeyError):
            continue
    return found


def _result(content: dict[str, Any]) -> PeerResult:
    executed = tuple(Executed(**each) for each in content.pop("executed"))
    return PeerResult(key=Key(**content.pop("key")), executed=executed, **content)


def _line(result: PeerResult) -> str:
    return json.dumps(asdict(result), default=float) + "\n"


# It calls getpgid(0), call 155 of 64-bit ARM, before the first inference, between both, and after the second.
_MARKS = Marks(call=155, argument=0, watch=0, record=1)

# Why an engine is left out that could have been run.
NOT_RECORDED = "it was not recorded yet"

# Outputs may differ by so much of the largest value, and by what edgedeploy's own may: engines with other kernels round
# otherwise, but no more.
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
    """The engines of a list such as `ncnn,onnxruntime`."""
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
    results: PeerResults,
    progress: Progress = SILENT,
    *,
    threads: int = 1,
    record: bool = True,
) -> list[PeerPrediction]:
    """What one inference of a network takes in other engines; those that cannot run it say why.

    Args:
        engines: of `find_predictable_peers`.
        candidate: the network.
        manifest, contents: edgedeploy's package of it, whose recorded inputs all engines get.
        board, means: the core.
        results: what was recorded before, and takes what is recorded now.
        progress: is told of each step.
        threads: by how many the inference is predicted; it is recorded with one.
        record: whether an engine that `results` lacks is run, which takes minutes; else it is left out.
    """
    case = manifest.selftest.cases[0]
    with tempfile.TemporaryDirectory(prefix="edgedeploy-predict-") as folder:
        place = Path(folder)
        (place / "source").mkdir()
        try:
            file = candidate.write(place / "source")
        except EdgedeployError as error:
            return [PeerPrediction(engine.name, left_out=error.cause) for engine in engines]
        recorder = _Recorder(
            place,
            file,
            candidate,
            _arrays(manifest.inputs, case.inputs, contents),
            _arrays(manifest.outputs, case.outputs, contents),
            max(_DIFFERENCE, manifest.selftest.relative),
            board,
            means,
            progress,
        )
        predictions = []
        for engine in engines:
            try:
                key = recorder.key(engine)
                found = results.find(key)
                if found is None:
                    if not record:
                        raise NotHereError(NOT_RECORDED)
                    found = recorder.recorded(engine, key)
                    results.add(found)
                predictions.append(_predicted(found, board, means, threads))
            except (VirtualBoardError, OutputError):
                raise
            except (CannotRunError, EdgedeployError) as error:
                predictions.append(PeerPrediction(engine.name, left_out=cause_of(error)))
        return predictions


def _arrays(specs: Sequence, members: Sequence[str], contents: dict[str, bytes]) -> dict[str, np.ndarray]:
    """The tensors of a package's test by name."""
    return {
        spec.name: np.frombuffer(contents[member], spec.dtype).reshape(spec.shape)
        for spec, member in zip(specs, members, strict=True)
    }


def _predicted(result: PeerResult, board: Board, means: Means, threads: int) -> PeerPrediction:
    key = result.key
    if result.left_out:
        return PeerPrediction(key.engine, left_out=result.left_out)
    prediction = priced(result.executed, board, means.core, threads)
    return PeerPrediction(key.engine, key.version, result.wheel, prediction, result.difference)


@dataclass(frozen=True)
class _Recorder:
    """Records engines on one network.

    Attributes:
        place: a folder for files.
        file: the network as engines read it.
        candidate: whose package is the network's.
        inputs, outputs: that all engines get, and that they are to give, by name.
        allowed: by how much of the largest value their outputs may differ from these.
        board, means: the core.
        progress: is told of each step.
    """

    place: Path
    file: Path
    candidate: Candidate
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    allowed: float
    board: Board
    means: Means
    progress: Progress

    @cached_property
    def _root(self) -> Path:
        (root := self.place / "root").mkdir()
        return machine(self.board, self.means.core, root, self.progress)

    def key(self, engine: Engine) -> Key:
        """What a result of an engine depends on."""
        if self.file.suffix != engine.suffix:
            raise CannotRunError(f"it reads {engine.suffix} files, and the network is {self.file.name}")
        if not engine.installed():
            raise NotHereError(f"it is not installed; `pip install 'edgedeploy[{engine.extra}]'` installs it")
        return Key.of(engine.name, engine.version(), self.file, self.inputs, self.board, self.means)

    def recorded(self, engine: Engine, key: Key) -> PeerResult:
        """What an engine executes, or why it cannot run the network."""
        wheel = wheel_of(engine, self.board, self.progress)
        (own := self.place / engine.name).mkdir()
        package = self.candidate.prepared.package_path
        task = Task(self.file, package, self.inputs, list(self.outputs), threads=1, folder=own)
        try:
            file = engine.convert(task) if engine.convert else task.file
            found, outputs = record_engine(
                engine.name, wheel, file, task, self._root, self.board, self.means, self.progress
            )
            difference = compare(dict(zip(self.outputs, outputs, strict=False)), self.outputs).relative
            if difference > self.allowed:
                raise CannotRunError(f"its outputs differ by {difference:.2g} of the largest value")
        except NotHereError:
            raise
        except (CannotRunError, UnsupportedError) as error:
            return PeerResult(key, self.candidate.name, wheel.sha256, left_out=cause_of(error))
        return PeerResult(key, self.candidate.name, wheel.sha256, tuple(found), difference)


def wheel_of(engine: Engine, board: Board, progress: Progress = SILENT) -> Site:
    """An engine's wheel for a board, of the version installed here, whose converter writes what the wheel reads."""
    return site(engine.distribution, engine.version(), board.architecture, PYTHON, progress)


def record_engine(
    name: str, wheel: Site, file: Path, task: Task, root: Path, board: Board, means: Means, progress: Progress = SILENT
) -> tuple[list[Executed], list[np.ndarray]]:
    """What one inference of a network executes in an engine, file by file, and the network's outputs.

    Args:
        name: the engine's, of `NAMES`.
        wheel: what runs.
        file: the network in the engine's own form.
        task: its inputs, the names of its outputs, and a folder.
        root: of `machine`.
        board, means: the core.
        progress: is told of each step.
    """
    numpy = site("numpy", importlib.metadata.version("numpy"), board.architecture, PYTHON, progress)
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
    return executed(read, owners_by_file(read), means.core.llvm, means.llvm, progress), outputs
