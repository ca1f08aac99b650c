"""Other engines on a board's core: their wheels for ARM, run and recorded under emulation.

Recording takes minutes and does not depend on edgedeploy's code, so the results are stored in a file: one JSON object
a line, appended at once, so that a run that is interrupted continues. The costs of waiting for memory are not in them:
a profile's costs can change, and results stay valid.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.base.cache import FolderCache
from edgedeploy.base.files import append_line, sha256_of, write_text
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.benchmarking.engine_program import NAMES, SCRIPT
from edgedeploy.benchmarking.engines import find_peers
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, NotHereError, Task
from edgedeploy.benchmarking.measure import compare
from edgedeploy.benchmarking.networks import Candidate
from edgedeploy.benchmarking.wheels import Site, Target, site
from edgedeploy.errors import EdgedeployError, OutputError, UnsupportedError, VirtualBoardError, cause_of
from edgedeploy.predicting.prediction import Executed, Prediction, executed, open_package, priced
from edgedeploy.predicting.record import owners_by_file, read_record
from edgedeploy.predicting.recording import PYTHON, cache_options, machine, run_recorded
from edgedeploy.predicting.tools import Means
from edgedeploy.selftest.tolerance import fractions
from edgedeploy.target.board import Board

# Increase it if the recorder, the sampled windows, or the call of llvm-mca change so that other numbers come out.
PREDICTOR = 1

# The program calls getpgid(0), call 155 of 64-bit ARM, before the first inference, between both, and after the second.
_MARKS = "mark=155:0,watch=0,record=1"

# The fraction of the largest value by which outputs may differ, or edgedeploy's own tolerance if that is larger: other
# kernels round differently, but not more. Engines in half precision choose no layers for single.
_DIFFERENCE, _DIFFERENCE_IN_HALF = 0.02, 0.1


@dataclass(frozen=True)
class Key:
    """What a result depends on."""

    engine: str
    version: str  # of the engine's wheel
    network: str  # SHA-256 of the network's file before conversion, and of the inputs
    core: str  # the board's core, LLVM's model of it, and its caches
    predictor: str  # `PREDICTOR` and the version of LLVM

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
    """What an inference of another engine executes."""

    key: Key
    network: str
    wheel: str  # SHA-256 of the engine's wheel
    executed: Sequence[Executed] = ()  # by file; empty if the engine cannot run the network
    # Of its outputs, as a fraction of the largest value; None if there is nothing to compare with.
    difference: float | None = None
    left_out: str | None = None


class PeerResults:
    """The results in a file, which need not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_key: dict[Key, PeerResult] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            try:
                content = json.loads(line)
                found = tuple(Executed(**each) for each in content.pop("executed"))
                key = Key(**content.pop("key"))
                self._by_key[key] = PeerResult(key=key, executed=found, **content)
            except (ValueError, TypeError, KeyError):
                continue  # a killed process did not finish the line

    @classmethod
    def of_user(cls) -> PeerResults:
        """The results in the user's cache folder."""
        return cls(FolderCache("predictions").folder / "other-engines.jsonl")

    def find(self, key: Key) -> PeerResult | None:
        """The result of a key, if there is one."""
        return self._by_key.get(key)

    def add(self, result: PeerResult) -> None:
        """Append a result."""
        self._by_key[result.key] = result
        append_line(self._path, _line(result))

    def tidy(self) -> None:
        """Rewrite the file, in order, with the newest result of each engine, network and core."""
        newest = {(each.network, each.key.core, each.key.engine): each for each in self._by_key.values()}
        write_text(self._path, "".join(f"{_line(newest[name])}\n" for name in sorted(newest)))
        self._by_key = {result.key: result for result in newest.values()}


def _line(result: PeerResult) -> str:
    return json.dumps(asdict(result), default=float)


@dataclass(frozen=True)
class PeerPrediction:
    """What an inference of another engine takes, by file instead of function; with the fields of its `PeerResult`."""

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
    board: Board,
    means: Means,
    results: PeerResults,  # the results of earlier runs; new ones are added
    progress: Progress = SILENT,
    *,
    threads: int = 1,  # how many threads the prediction is for; one is recorded
    record: bool = True,  # whether an engine that `results` lacks is recorded, which takes minutes; else it is left out
) -> list[PeerPrediction]:
    """What one inference of a network takes in other engines, or why they cannot run it.

    All engines get the recorded inputs of edgedeploy's package.
    """
    manifest, contents = open_package(candidate.prepared.package_path)
    case = manifest.selftest.cases[0]
    inputs = _arrays(manifest.inputs, case.inputs, contents)
    expected = _arrays(manifest.outputs, case.outputs, contents)
    with tempfile.TemporaryDirectory(prefix="edgedeploy-predict-") as name:
        folder = Path(name)
        (folder / "source").mkdir()
        try:
            file = candidate.write(folder / "source")
        except EdgedeployError as error:
            return [PeerPrediction(engine.name, left_out=error.cause) for engine in engines]

        @cache
        def root() -> Path:
            (root := folder / "root").mkdir()
            return machine(board, means.core, root, progress)

        def recorded(engine: Engine, key: Key) -> PeerResult:
            wheel = site(engine.distribution, engine.version(), Target(board.architecture, PYTHON), progress)
            (own := folder / engine.name).mkdir()
            task = Task(file, candidate.prepared.package_path, inputs, list(expected), threads=1, folder=own)
            try:
                task, _ = engine.converted(task)
                found, outputs = record_engine(engine.name, wheel, task, root(), board, means, progress)
                given = dict(zip(expected, outputs, strict=False))
                difference = compare(given, expected).relative
                allowed = _DIFFERENCE_IN_HALF if engine.name.endswith("-half") else _DIFFERENCE
                wide = case.model_copy(update={"relative": [max(allowed, each) for each in case.relative]})
                if max(fractions(given, expected, wide).values()) > 1:
                    raise CannotRunError(f"its outputs differ by {difference:.2g} of the largest value")
            except NotHereError:
                raise
            except (CannotRunError, UnsupportedError) as error:
                return PeerResult(key, candidate.name, wheel.sha256, left_out=cause_of(error))
            return PeerResult(key, candidate.name, wheel.sha256, tuple(found), difference)

        def predicted(engine: Engine) -> PeerPrediction:
            if file.suffix != engine.suffix:
                raise CannotRunError(f"it reads {engine.suffix} files, and the network is {file.name}")
            if reason := engine.absence():
                raise NotHereError(reason)
            key = Key.of(engine.name, engine.version(), file, inputs, board, means)
            if (found := results.find(key)) is None:
                if not record:
                    raise NotHereError("it was not recorded yet")
                results.add(found := recorded(engine, key))
            if found.left_out:
                raise CannotRunError(found.left_out)
            prediction = priced(found.executed, board, means.core, threads)
            return PeerPrediction(engine.name, key.version, found.wheel, prediction, found.difference)

        predictions = []
        for engine in engines:
            try:
                predictions.append(predicted(engine))
            except (VirtualBoardError, OutputError):
                raise
            except (CannotRunError, EdgedeployError) as error:
                predictions.append(PeerPrediction(engine.name, left_out=cause_of(error)))
        return predictions


def _arrays(specs: Sequence[Any], members: Sequence[str], contents: dict[str, bytes]) -> dict[str, np.ndarray]:
    """The tensors of a package's test by name."""
    return {
        spec.name: np.frombuffer(contents[member], spec.dtype).reshape(spec.shape)
        for spec, member in zip(specs, members, strict=True)
    }


def record_engine(
    name: str, wheel: Site, task: Task, root: Path, board: Board, means: Means, progress: Progress = SILENT
) -> tuple[list[Executed], list[np.ndarray]]:
    """What one inference of a network executes in an engine, file by file, and the network's outputs.

    The task has the network in the engine's own form; `root` is of `machine`.
    """
    numpy = site("numpy", importlib.metadata.version("numpy"), Target(board.architecture, PYTHON), progress)
    record = task.folder / "record"
    record.mkdir()
    given, names = task.write_arguments()
    written = task.folder / "outputs.npz"
    python = root / "usr/bin/python3"
    run_recorded(
        [str(python), str(SCRIPT), name, *map(str, (task.network, given, written, names))],
        board,
        means.core,
        _MARKS,
        record,
        options=["-cpu", board.cpu, "-L", str(root)],
        environment={
            "PYTHONPATH": f"{wheel.path}:{numpy.path}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONSAFEPATH": "1",  # do not import modules next to the script
            "ORT_DISABLE_TELEMETRY": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        },
        what=f"one inference of {name} {wheel.version}",
        progress=progress,
    )
    with np.load(written) as content:
        outputs = [content[name] for name in content.files]
    read = read_record(record, agent=python, library=task.network)
    return executed(read, owners_by_file(read), means.core.llvm, means.llvm, progress), outputs
