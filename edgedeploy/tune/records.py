"""Tuning records: a folder that holds every trial on one kind of board, and a MetaSchedule database of the successes.

    header.json                   whose they are: `Header`
    database_workload.json        MetaSchedule's JSON database, which TVM's own `JSONDatabase` reads
    database_tuning_record.json
    trials.jsonl                  each `Trial`, failures too, and as `record` its line in the database, from 0
    runs.jsonl                    how runs and tasks began and ended: events

Files only grow while a run tunes. It holds the folder's lock; those who only read need none, and find at worst that
the last line is not whole yet.
"""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationError

from edgedeploy import __version__
from edgedeploy.documents import Record
from edgedeploy.errors import RecordsError
from edgedeploy.files import cannot_write, folder_lock, is_folder, replacing
from edgedeploy.progress import SILENT, Progress
from edgedeploy.tune import database
from edgedeploy.tune.content import RUNS, TRIALS, Content, Entry, best_of, by_workload, first_fault, trials_in
from edgedeploy.tune.database import RECORDS, WORKLOADS, workload_hash
from edgedeploy.tune.events import Event, RunEnded, RunStarted, TaskEnded
from edgedeploy.tune.journal import Appender, keep_lines, lines, open_plain
from edgedeploy.tune.trial import Trial

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.schedule import Trace

HEADER = "header.json"

_LARGEST_HEADER = 1 << 16


class Header(Record):
    """Whose records a folder holds.

    Attributes:
        format: version of the folder's structure.
        board: name of the board profile.
        target: TVM's target.
        tvm: its version.
        edgedeploy: the version that made the folder.
        created: when it did, in UTC.
    """

    format: Literal[1] = 1
    board: Annotated[str, Field(pattern=r"^[^/\x00-\x1f\x7f.][^/\x00-\x1f\x7f]*$", max_length=200)]
    target: dict[str, Any]
    tvm: str
    edgedeploy: str = __version__
    created: datetime

    @staticmethod
    def of(board: str, target: dict[str, Any]) -> Header:
        """The header of records that are begun now.

        Args:
            board: name of the board profile.
            target: TVM's target, as `Board.target` gives it.
        """
        from importlib.metadata import version

        now = datetime.now(timezone.utc).replace(microsecond=0)
        return Header(board=board, target=target, tvm=version("apache-tvm"), created=now)

    def difference(self, other: Header) -> str | None:
        """Why records of `other` are none of these, or None if they are."""
        for name in ("board", "target", "tvm"):
            here, there = getattr(self, name), getattr(other, name)
            if here != there:
                return f"its {name} is {_text(there)} and not {_text(here)}"
        return None


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


@dataclass(frozen=True)
class Best:
    """The candidate that a build uses.

    Attributes:
        trial: its measurement; `trial.configuration` is the candidate, if it is one of the templates'.
        trace: the candidate, if it is one of MetaSchedule's space.
    """

    trial: Trial
    trace: Trace | None


def default_folder(board: str) -> Path:
    """Where the records of a board, by its name, lie unless the user says otherwise."""
    return records_root() / board


def records_root() -> Path:
    """The folder of all boards' records."""
    import platformdirs

    return Path(platformdirs.user_data_dir("edgedeploy")) / "records"


def read_header(folder: Path) -> Header:
    """What a folder of records says of itself.

    Raises:
        RecordsError: it holds none, or its header is damaged or of a later version.
    """
    path = folder / HEADER
    try:
        with open_plain(path) as stream:
            content = stream.read(_LARGEST_HEADER + 1)
    except FileNotFoundError as error:
        raise RecordsError(
            f"{folder} holds no tuning records",
            why=f"it has no {HEADER}" if is_folder(folder) else "there is no such folder",
            hints=["list those there are with `edgedeploy records list`", "make some with `edgedeploy tune`"],
        ) from error
    return parse_header(content, str(path))


def parse_header(content: bytes, path: str) -> Header:
    """The header in a file's content; `path` names it in messages.

    Raises:
        RecordsError: it is damaged or of a later version.
    """
    hints = ["keep it with `edgedeploy records` of the version that made it, or tune into another folder"]
    if len(content) > _LARGEST_HEADER:
        raise RecordsError(f"{path} is damaged", why="it is too large")
    try:
        return Header.model_validate_json(content)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        if fault["loc"] == ("format",):
            raise RecordsError(f"{path} is of another version of edgedeploy", why=fault["msg"], hints=hints) from error
        raise RecordsError(f"{path} is damaged", why=first_fault(error)) from error


class Records:
    """The records in one folder. A context manager, which lets go of the folder."""

    def __init__(self, folder: Path, header: Header, resources: ExitStack) -> None:
        self.folder = folder
        self.header = header
        self._resources = resources
        self._appender: Appender | None = None
        self._guard = threading.Lock()
        self._entries: dict[str, list[Entry]] = {}
        self._workloads: dict[str, int] = {}
        self._successes = 0
        self._used: dict[str, str] = {}

    @staticmethod
    def open(folder: Path, header: Header | None = None, progress: Progress = SILENT) -> Records:
        """Open a folder of records.

        With a header it is opened to add trials: made if need be, locked, and repaired if its last lines are torn.
        Without one it is only read.

        Raises:
            RecordsError: there are no records, they are damaged, of another board, target or TVM, or another run
                adds to them.
            OutputError: the folder cannot be made or written.
        """
        with ExitStack() as resources:
            if header is None:
                records = Records(folder, read_header(folder), resources)
                records._entries = by_workload(trials_in(folder))
            else:
                _hold(folder, resources)
                records = Records(folder, _agreed_header(folder, header), resources)
                records._repair(progress)
                records._appender = resources.enter_context(Appender(folder))
            records._resources = resources.pop_all()
            return records

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder."""
        self._appender = None
        self._resources.close()

    def add(
        self,
        workload: IRModule,
        trial: Trial,
        trace: Trace | None = None,
        args_info: list[ArgInfo] | None = None,
    ) -> None:
        """Record a trial.

        Args:
            workload: the task's module, with the function `main`; its hash is the trial's `workload`.
            trial: what came out.
            trace: what makes the candidate; made from the trial's configuration if None. A trial of MetaSchedule's
                space without one, or one that failed, goes into no database.
            args_info: of the function; read from it if None.

        Raises:
            OutputError: the files cannot be written; they are as they were before.
            ValueError: the trial is of another workload.
        """
        if trial.workload != workload_hash(workload):
            raise ValueError(f"the trial is of workload {trial.workload}, not of {workload_hash(workload)}")
        if trace is None and trial.configuration is not None and trial.seconds:
            trace = database.trace_of(workload, trial.configuration)
        with self._guard:
            workloads, successes, record = [], [], None
            index = self._workloads.get(trial.workload, len(self._workloads))
            if index == len(self._workloads):
                workloads.append(database.workload_line(workload))
            if trial.seconds and trace is not None:
                record = self._successes
                target = self.header.target
                successes.append(database.record_line(index, workload, trace, list(trial.seconds), target, args_info))
            entry = Entry(trial, record)
            self._append({WORKLOADS: workloads, RECORDS: successes, TRIALS: [entry.line()]})
            self._workloads.setdefault(trial.workload, index)
            self._successes += len(successes)
            self._entries.setdefault(trial.workload, []).append(entry)

    def note(self, event: Event) -> None:
        """Keep how a run began and ended, and each of its tasks; other events are not kept.

        Raises:
            OutputError: the file cannot be written.
        """
        if isinstance(event, RunStarted | TaskEnded | RunEnded):
            with self._guard:
                self._append({RUNS: [event.model_dump_json().encode()]})

    def trials(self, workload: str) -> list[Trial]:
        """All trials of a workload, by its hash, in the order in which they were measured."""
        return [entry.trial for entry in self._entries.get(workload, ())]

    def workloads(self) -> list[str]:
        """The hashes of the workloads that have trials."""
        return list(self._entries)

    def best(self, workload: IRModule) -> Best | None:
        """The candidate to build a function with, or None if no trial of it succeeded.

        It is the quickest of those that the latest run measured in turns at its end; if no run came so far, the
        quickest of all trials.

        Raises:
            RecordsError: its record is damaged.
        """
        key = workload_hash(workload)
        entry = best_of(self._entries.get(key, ()))
        if entry is None:
            return None
        trial = entry.trial
        if trial.configuration is not None:
            self._used[key] = json.dumps(trial.configuration, sort_keys=True)
            return Best(trial, None)
        [trace] = self._traces(workload, [entry])
        self._used[key] = json.dumps(trace.as_json(), sort_keys=True)
        return Best(trial, trace)

    def candidates(self, workload: IRModule) -> list[Best]:
        """Every success of MetaSchedule's space, with its trace: what a search goes on from.

        Raises:
            RecordsError: a record is damaged.
        """
        entries = [
            entry
            for entry in self._entries.get(workload_hash(workload), ())
            if entry.record is not None and entry.trial.space == "metaschedule"
        ]
        traces = self._traces(workload, entries)
        return [Best(entry.trial, trace) for entry, trace in zip(entries, traces, strict=True)]

    @property
    def sha256(self) -> str | None:
        """SHA-256 over the candidates that `best` gave so far, by workload; None if it gave none."""
        if not self._used:
            return None
        return hashlib.sha256(json.dumps(self._used, sort_keys=True).encode()).hexdigest()

    def _append(self, additions: dict[str, list[bytes]]) -> None:
        if self._appender is None:
            raise ValueError(f"{self.folder} was opened for reading")
        self._appender.append({name: added for name, added in additions.items() if added})

    def _traces(self, workload: IRModule, entries: list[Entry]) -> list[Trace]:
        """The traces of entries that have a record, from the database."""
        wanted = {entry.record for entry in entries if entry.record is not None}
        found = {}
        for number, line in enumerate(lines(self.folder / RECORDS)):
            if number in wanted:
                found[number] = database.trace_in(line, workload)
        if missing := wanted - found.keys():
            raise RecordsError(f"{self.folder / RECORDS} is damaged", why=f"it has no line {min(missing) + 1}")
        return [found[entry.record] for entry in entries if entry.record is not None]

    def _repair(self, progress: Progress) -> None:
        """Read all files, and cut off what was torn when a run was killed or the power failed."""
        content = Content.read(self.folder)
        kept = {
            WORKLOADS: len(content.hashes),
            RECORDS: len(content.owners),
            TRIALS: len(content.entries),
            RUNS: len(content.events),
        }
        for name, count in kept.items():
            if keep_lines(self.folder / name, count):
                progress.note(f"{self.folder / name}: what was not whole after line {count} is cut off")
        for index, workload in enumerate(content.hashes):
            self._workloads.setdefault(workload, index)
        self._successes = len(content.owners)
        self._entries = by_workload(content.entries)


def _hold(folder: Path, resources: ExitStack) -> None:
    try:
        resources.enter_context(folder_lock(folder, wait=False))
    except BlockingIOError as error:
        raise RecordsError(
            f"another run adds to {folder}",
            hints=["wait until it is done, or stop it", "tune into another folder with -o"],
        ) from error
    except OSError as error:
        raise cannot_write(folder, error) from error


def _agreed_header(folder: Path, header: Header) -> Header:
    """The folder's header, written if the folder is new."""
    if (folder / HEADER).exists():
        present = read_header(folder)
        if difference := header.difference(present):
            raise RecordsError(
                f"the records in {folder} are of something else",
                why=difference,
                hints=["tune into another folder with -o", "take them as a start with --tuning-records"],
            )
        return present
    for name in (WORKLOADS, RECORDS, TRIALS):
        if (folder / name).exists():
            raise RecordsError(
                f"{folder} holds records of an unknown board",
                why=f"it has a {name} and no {HEADER}",
                hints=["`edgedeploy records import` takes databases of MetaSchedule"],
            )
    with replacing(folder / HEADER) as temporary:
        temporary.write_text(header.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return header
