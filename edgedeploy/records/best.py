"""The candidates that a build takes from tuning records: of each function the best that was measured on this board."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import RecordsError
from edgedeploy.records.database import Records
from edgedeploy.records.schema import Header, default_folder, find_folder, holds_records
from edgedeploy.target.resolved import ResolvedBoard

if TYPE_CHECKING:
    import tvm

    from edgedeploy.compile.configuration import Configuration, Tuned

# Instead of a folder: no records.
NO_RECORDS = "none"


def chosen_records(chosen: str | None, board: ResolvedBoard, progress: Progress = SILENT) -> Records | None:
    """The records that a build for a board uses, in a folder, or in the board's own if that fits; None if it uses none.

    `progress` gets a note if the board's own folder is not used, and why.
    """
    if chosen == NO_RECORDS:
        return None
    folder = find_folder(chosen) if chosen else default_folder(board.label)
    if chosen is None and not holds_records(folder):
        return None
    try:
        records = Records.open(folder)
        wanted = Header.of(records.header.board, board.profile.target())
        if difference := wanted.difference(records.header):
            raise RecordsError(
                f"the tuning records in {folder} are not used",
                why=difference,
                hints=["tune the board as it is built for", "build without records: --tuning-records none"],
            )
    except RecordsError as error:
        if chosen is not None:
            raise
        progress.note(f"built without tuning records: {error.cause}")
        return None
    return records


def tuned_by(records: Records | None) -> Tuned:
    """The configurations that records know, as the compiler asks for them."""
    if records is None:
        return lambda workload: None

    from edgedeploy.compile.backends import known_configuration
    from edgedeploy.compile.configuration import workload_hash

    def find(workload: tvm.IRModule) -> Configuration | None:
        best = records.best(workload_hash(workload))
        return known_configuration(best.configuration) if best else None

    return find
