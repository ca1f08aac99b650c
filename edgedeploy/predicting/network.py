"""From a network or a package to what it takes on a board's core."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from edgedeploy.board import Board
from edgedeploy.errors import InputError, PackageError
from edgedeploy.package.archive import read_package
from edgedeploy.package.manifest import MANIFEST_NAME, Manifest, parse_manifest
from edgedeploy.predicting.means import Means
from edgedeploy.predicting.ownership import owners
from edgedeploy.predicting.prediction import Prediction, executed, priced
from edgedeploy.predicting.recording import record_package
from edgedeploy.progress import SILENT, Progress


def open_package(path: Path) -> tuple[Manifest, dict[str, bytes]]:
    """A package, as an archive or as the folder that it was unpacked into."""
    if not path.is_dir():
        return read_package(path)
    try:
        manifest = parse_manifest((path / MANIFEST_NAME).read_bytes())
        return manifest, {name: (path / name).read_bytes() for name in manifest.files}
    except (OSError, ValueError) as error:
        raise PackageError(f"{path} is not a sound package", why=str(error)) from error


def predict_package(
    manifest: Manifest,
    contents: Mapping[str, bytes],
    board: Board,
    means: Means,
    progress: Progress = SILENT,
    *,
    threads: int = 1,
) -> Prediction:
    """What one inference of a package takes on a board, by so many threads."""
    built_for = manifest.target.get("mcpu")
    if built_for != board.cpu:
        raise InputError(
            f"the package of {manifest.model} is for {built_for}, the board is a {board.cpu}",
            hints=[f"name the board that it was built for: --board {manifest.board}"],
        )
    with tempfile.TemporaryDirectory(prefix="edgedeploy-predict-") as folder:
        record = record_package(manifest, contents, board, means.core, Path(folder), progress)
        functions = executed(record, owners(record), means.core.llvm, means.llvm, progress)
    return priced(functions, board, means.core, threads)
