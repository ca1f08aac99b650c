"""From a network or a package to what it takes on a board's core."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.board import BOARDS, Board
from edgedeploy.core_model import CoreModel
from edgedeploy.errors import InputError, PackageError, UnsupportedError
from edgedeploy.package.archive import read_package
from edgedeploy.package.manifest import MANIFEST_NAME, Manifest, parse_manifest
from edgedeploy.predict.mca import Llvm
from edgedeploy.predict.ownership import owners
from edgedeploy.predict.plugin import recording_emulator
from edgedeploy.predict.prediction import Prediction, predicted
from edgedeploy.predict.recording import record_package
from edgedeploy.progress import SILENT, Progress


@dataclass(frozen=True)
class Means:
    """What predictions for a board are made with.

    Attributes:
        core: the board's.
        llvm: LLVM's tools.
    """

    core: CoreModel
    llvm: Llvm

    @property
    def name(self) -> str:
        """Of the model, with LLVM's version: predictions of different ones are not compared."""
        return f"{self.core.llvm} of LLVM {self.llvm.version}"

    @classmethod
    def of(cls, name: str, board: Board) -> Means:
        """What there is for a board called `name`. Call it before the network is built.

        Raises:
            UnsupportedError: no model of its core is confirmed, or programs are missing here.
        """
        if board.core_model is None or board.accelerator:
            raise UnsupportedError(
                f"no cycles are predicted for board {name}",
                why=f"no model of {board.cpu} was confirmed by published times: its profile states no `core_model`"
                if board.core_model is None
                else "networks run on its device, not on the core",
                hints=[f"name another board: {', '.join(predictable())}"],
            )
        recording_emulator(board)
        return cls(board.core_model, Llvm.found())


def predictable() -> list[str]:
    """The names of boards for which cycles are predicted."""
    return [name for name in BOARDS.names() if BOARDS.load(name).core_model]


def open_package(path: Path) -> tuple[Manifest, dict[str, bytes]]:
    """A package, as an archive or as the folder that it was unpacked into.

    Raises:
        PackageError: it is damaged.
    """
    if not path.is_dir():
        return read_package(path)
    try:
        manifest = parse_manifest((path / MANIFEST_NAME).read_bytes())
        return manifest, {name: (path / name).read_bytes() for name in manifest.files}
    except (OSError, ValueError) as error:
        raise PackageError(f"{path} is not a sound package", why=str(error)) from error


def predict_package(
    manifest: Manifest, contents: Mapping[str, bytes], board: Board, means: Means, progress: Progress = SILENT
) -> Prediction:
    """What one inference of a package takes on a board's core.

    Raises:
        InputError: the package is for another core.
        UnsupportedError, ToolchainError, OutputError: as `record_package` and `predicted`.
    """
    built_for = manifest.target.get("mcpu")
    if built_for != board.cpu:
        raise InputError(
            f"the package of {manifest.model} is for {built_for}, the board is a {board.cpu}",
            hints=[f"name the board that it was built for: --board {manifest.board}"],
        )
    with tempfile.TemporaryDirectory(prefix="edgedeploy-predict-") as folder:
        record = record_package(manifest, contents, board, means.core, Path(folder), progress)
        return predicted(record, owners(record), board, means.core, means.llvm, progress)
