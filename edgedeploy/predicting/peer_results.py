"""What other engines execute, kept in a file: recording takes minutes, and does not depend on edgedeploy's code.

Each line is a result as JSON, appended when it is there: a run that was ended goes on where it was. What waiting
for memory costs is no part of it: a profile's costs can change, and results stay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.board import Board
from edgedeploy.files import cannot_write, replacing, sha256_of
from edgedeploy.kept import Kept
from edgedeploy.predicting.means import Means
from edgedeploy.predicting.prediction import Executed
from edgedeploy.predicting.recording import cache_options

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
