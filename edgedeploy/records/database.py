"""Tuning records: a SQLite database in a folder, one for each kind of board, which holds every trial.

Several processes may add to it at once, each change being a transaction; while one has it open it is in WAL mode, so
that readers do not wait for it. At rest it is one file, which can be read where nothing can be written.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pydantic_core import from_json

from edgedeploy.base.cache import key_of
from edgedeploy.base.closing import Closing, on_failure
from edgedeploy.base.documents import Record
from edgedeploy.base.files import is_folder, writing
from edgedeploy.errors import OutputError, RecordsError
from edgedeploy.records import schema
from edgedeploy.records.lines import LONGEST_LINE, Content, damaged, of_another_version, parse_header, require_plain
from edgedeploy.records.schema import DATABASE, Header, Trial, best_of, by_workload

Item = TypeVar("Item", bound=Record)

_VERSION = 1
_SCHEMA = (
    "CREATE TABLE header (content TEXT NOT NULL)",
    "CREATE TABLE trials (time TEXT, run TEXT, task TEXT, workload TEXT, number INTEGER, configuration TEXT, "
    "seconds TEXT, failure TEXT, error TEXT, final INTEGER, host TEXT, conditions TEXT)",
    "CREATE TABLE events (content TEXT NOT NULL)",
)
_COLUMNS = tuple(Trial.model_fields)
_NESTED = ("configuration", "seconds", "conditions")  # which are JSON
_INSERT = f"INSERT INTO trials ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"

# Seconds to wait for others: readers for one change of the file's mode, writers for a transaction.
_READING_S, _WRITING_S = 5, 30

_ROW_BYTES = 16  # at least, of a row
_LONGEST_ERROR = 4000  # characters, of its end, where compilers and TVM give the reason


def read_records(folder: Path) -> Content:
    """The content of the records in a folder."""
    content = _found(folder)
    if content is None:
        raise RecordsError(
            f"{folder} holds no tuning records",
            why=f"it has no {DATABASE}" if is_folder(folder) else "the folder does not exist",
            hints=["list existing ones with `edgedeploy records list`", "create some with `edgedeploy tune`"],
        )
    return content


class Records(Closing):
    """The records in one folder, as they were when they were opened, and those added since. A context manager."""

    def __init__(self, folder: Path, content: Content, connection: sqlite3.Connection | None = None) -> None:
        self.folder = folder
        self.header = content.header
        self._connection = connection
        self._trials = by_workload(content.trials)
        self._used: dict[str, str] = {}

    @staticmethod
    def open(folder: Path, header: Header | None = None) -> Records:
        """Open a folder of records.

        With a header it is opened to add trials, and created first if it is missing. Without a header it is only read,
        and no file stays open.
        """
        if header is None:
            return Records(folder, read_records(folder))
        present = _found(folder)  # before anything is changed there
        if present:
            _require_same(folder, header, present.header)
        connection = _connect(folder)
        with on_failure(lambda: _disconnect(connection)):
            return Records(folder, _begun(connection, folder, header), connection)

    def close(self) -> None:
        """Close the database."""
        if self._connection:
            _disconnect(self._connection)
            self._connection = None

    def add(self, trial: Trial) -> None:
        """Record a trial."""
        if trial.error is not None:
            trial = trial.model_copy(update={"error": trial.error[-_LONGEST_ERROR:]})
        if len(trial.model_dump_json().encode()) >= LONGEST_LINE:
            raise RecordsError("a trial is too long to be read again")
        with self._changing() as connection:
            connection.execute(_INSERT, _row(trial))
        self._take([trial])

    def absorb(self, content: Content) -> int:
        """Add the trials and events of other records that are new here, all or none; returns how many trials."""
        with self._changing() as connection:
            present = self._present(connection)
            trials, events = _new(content.trials, present.trials), _new(content.events, present.events)
            _insert(connection, trials, events)
        self._take(trials)
        return len(trials)

    def thin_out(self, worth_keeping: Callable[[Sequence[Trial]], list[Trial]]) -> tuple[int, int]:
        """Drop all trials but the chosen ones, in one change; returns how many stay, and how many went."""
        with self._changing() as connection:
            present = self._present(connection).trials
            kept = worth_keeping(present)
            if len(kept) < len(present):
                connection.execute("DELETE FROM trials")
                _insert(connection, kept, [])
        self._trials = by_workload(kept)
        return len(kept), len(present) - len(kept)

    def note(self, event: schema.Event) -> None:
        """Record the beginning or end of a run, or the end of a task; other events are not recorded."""
        if isinstance(event, schema.RunStarted | schema.TaskEnded | schema.RunEnded):
            with self._changing() as connection:
                _insert(connection, [], [event])

    def trials(self, workload: str) -> list[Trial]:
        """All trials of a workload, by its hash, in the order in which they were recorded."""
        return list(self._trials.get(workload, ()))

    def best(self, workload: str) -> Trial | None:
        """The trial whose candidate a build takes for a workload, by its hash; None if none succeeded."""
        best = best_of(self._trials.get(workload, ()))
        if best:
            self._used[workload] = json.dumps(best.configuration, sort_keys=True)
        return best

    @property
    def sha256(self) -> str | None:
        """SHA-256 over the candidates that `best` returned so far, by workload; None without any."""
        return key_of(self._used) if self._used else None

    @property
    def bests_sha256(self) -> str:
        """SHA-256 over the best trial of every workload; if it changes, some network is built differently."""
        bests = {key: best_of(trials) for key, trials in self._trials.items()}
        return key_of({key: best.model_dump_json() for key, best in bests.items() if best})

    def _take(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            self._trials.setdefault(trial.workload, []).append(trial)

    def _present(self, connection: sqlite3.Connection) -> Content:
        """The current content of the database, which others may have changed too."""
        return _content(connection, self.folder / DATABASE) or Content(self.header)

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        if self._connection is None:
            raise ValueError(f"{self.folder} was opened for reading")
        with _transaction(self._connection, self.folder / DATABASE):
            yield self._connection


def _found(folder: Path) -> Content | None:
    """The content of a folder's database; None if there is no database, or an empty one."""
    path = folder / DATABASE
    try:
        require_plain(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=_READING_S, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            return _content(connection, path)
    except sqlite3.OperationalError as error:
        hints = ["try again when nothing else uses it"]
        raise RecordsError(f"cannot read {path}", why=str(error), hints=hints) from error
    except (sqlite3.Error, ValueError) as error:
        raise damaged(str(path), error) from error


def _content(connection: sqlite3.Connection, path: Path) -> Content | None:
    """The content of a database, whose file may be hostile; None if it is empty."""
    [[version]] = connection.execute("PRAGMA user_version")
    if version not in (0, _VERSION):
        raise of_another_version(str(path))
    # Before any of them is read: a table could be a view that never ends.
    tables = {text for (text,) in connection.execute(f"SELECT sql FROM sqlite_master LIMIT {len(_SCHEMA) + 1}")}
    if not version and not tables:
        return None
    if tables != set(_SCHEMA):
        raise ValueError("its tables are not those of tuning records")
    # Rows all together are no larger than the files: damaged ones can give a page many times.
    left = sum(file.stat().st_size for file in (path, path.with_name(f"{path.name}-wal")) if file.exists())

    def rows(query: str) -> Iterator[tuple]:
        nonlocal left
        for row in connection.execute(query):
            left -= _ROW_BYTES + sum(len(value) for value in row if isinstance(value, (str, bytes)))
            if left < 0:
                raise ValueError("it claims to hold more than it does")
            yield row

    headers = list(rows("SELECT content FROM header"))
    if len(headers) != 1:
        raise ValueError("it does not have one header")
    header = parse_header(str(headers[0][0]), str(path))
    trials = list(map(_trial, rows(f"SELECT {', '.join(_COLUMNS)} FROM trials ORDER BY rowid")))
    events = [schema.EVENT.validate_json(text) for (text,) in rows("SELECT content FROM events ORDER BY rowid")]
    return Content(header, trials, events)


def _new(items: Iterable[Item], present: Iterable[Item]) -> list[Item]:
    known = {item.model_dump_json() for item in present}
    return list({text: item for item in items if (text := item.model_dump_json()) not in known}.values())


def _row(trial: Trial) -> list[object]:
    fields = trial.model_dump(mode="json")
    return [json.dumps(fields[name]) if name in _NESTED else fields[name] for name in _COLUMNS]


def _trial(row: tuple) -> Trial:
    fields = dict(zip(_COLUMNS, row, strict=True))
    for name in _NESTED:
        fields[name] = from_json(str(fields[name]), allow_inf_nan=False)
    return Trial.model_validate(fields)


def _insert(connection: sqlite3.Connection, trials: Iterable[Trial], events: Iterable[schema.Event]) -> None:
    connection.executemany(_INSERT, map(_row, trials))
    connection.executemany("INSERT INTO events VALUES (?)", ([event.model_dump_json()] for event in events))


def _require_same(folder: Path, header: Header, present: Header) -> None:
    if difference := header.difference(present):
        raise RecordsError(
            f"the records in {folder} are of something else",
            why=difference,
            hints=["tune into another folder", "take them as a start with --tuning-records"],
        )


def _connect(folder: Path) -> sqlite3.Connection:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _writing(folder / DATABASE):
        return sqlite3.connect(folder / DATABASE, timeout=_WRITING_S, isolation_level=None)


def _begun(connection: sqlite3.Connection, folder: Path, header: Header) -> Content:
    """The content of a database; an empty one is begun."""
    path = folder / DATABASE
    with _writing(path):
        for pragma in ("auto_vacuum=FULL", "journal_mode=WAL", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {pragma}")
    with _transaction(connection, path):
        if content := _content(connection, path):
            _require_same(folder, header, content.header)  # another process may have begun it
            return content
        for statement in (*_SCHEMA, f"PRAGMA user_version={_VERSION}"):
            connection.execute(statement)
        connection.execute("INSERT INTO header VALUES (?)", [header.model_dump_json()])
    return Content(header)


def _disconnect(connection: sqlite3.Connection) -> None:
    """Close a connection, with the last one leaving a single file behind."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout=0")
        connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        hints = ["choose another folder, or make this one writable, with room on its disk"]
        raise OutputError(f"cannot write {path}", why=str(error), hints=hints) from error
    except (sqlite3.Error, ValueError) as error:
        raise damaged(str(path), error) from error


@contextmanager
def _transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """One change, all of it or nothing."""
    with _writing(path), connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
