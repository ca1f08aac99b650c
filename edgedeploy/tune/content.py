"""What the files of a folder of records say, checked against each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from edgedeploy.tune import database
from edgedeploy.tune.database import RECORDS, WORKLOADS
from edgedeploy.tune.events import EVENT, Event
from edgedeploy.tune.journal import damaged, parsed
from edgedeploy.tune.trial import Trial

TRIALS = "trials.jsonl"
RUNS = "runs.jsonl"


Item = TypeVar("Item")

_MOST_TORN = 200  # lines: what a system writes to its disk at once, and more than a batch


@dataclass(frozen=True)
class Entry:
    """A line of the trials' file: a trial, and the line of its record in the database, from 0, or None."""

    trial: Trial
    record: int | None

    @staticmethod
    def parse(line: bytes) -> Entry:
        """Read a line.

        Raises:
            ValueError: it is no trial.
        """
        try:
            fields = json.loads(line)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        record = fields.pop("record") if isinstance(fields, dict) and "record" in fields else None
        if record is not None and (type(record) is not int or record < 0):
            raise ValueError("record: is no line's number")
        try:
            return Entry(Trial.model_validate(fields), record)
        except ValidationError as error:
            raise ValueError(first_fault(error)) from error

    def line(self) -> bytes:
        """The line, without its newline."""
        return json.dumps({**self.trial.model_dump(mode="json"), "record": self.record}, ensure_ascii=False).encode()


@dataclass(frozen=True)
class Content:
    """What the files of a folder say.

    Attributes:
        hashes: of the workloads, by line.
        owners: of each record the line of its workload.
        entries: the trials.
        events: of the runs.
    """

    hashes: list[str]
    owners: list[int]
    entries: list[Entry]
    events: list[Event]

    @staticmethod
    def read(folder: Path, owner_in: Callable[[bytes], int] = database.owner_in) -> Content:
        """Read all files of a folder but the header; what was torn at their ends is left out.

        Args:
            folder: the folder.
            owner_in: reads the line of a record; raises ValueError if it cannot.

        Raises:
            RecordsError: a line is damaged, or names another one that is not there or is of another workload.
        """
        # A file that points into another one is read before it, as a run may be adding to them.
        entries = trials_in(folder)
        owners = list(parsed(folder / RECORDS, owner_in))
        hashes = list(parsed(folder / WORKLOADS, database.hash_in))
        _cut(owners, folder / RECORDS, lambda owner: owner >= len(hashes))
        _cut(entries, folder / TRIALS, lambda entry: entry.record is not None and entry.record >= len(owners))
        for number, entry in enumerate(entries, 1):
            record = entry.record
            if record is not None and hashes[owners[record]] != entry.trial.workload:
                raise damaged(folder / TRIALS, number, f"record {record} is not of its workload")
        return Content(hashes, owners, entries, events_in(folder))


def _cut(items: list[Item], path: Path, is_astray: Callable[[Item], bool]) -> None:
    """Remove what follows the first line that points to none: when the power fails, some files lose more than others.

    Raises:
        RecordsError: that is more than can be lost in this way.
    """
    first = next((index for index, item in enumerate(items) if is_astray(item)), len(items))
    if len(items) - first > _MOST_TORN:
        raise damaged(path, first + 1, "it names a line of the database that is not there")
    del items[first:]


def trials_in(folder: Path) -> list[Entry]:
    """The trials in a folder of records, of all workloads.

    Raises:
        RecordsError: a line is damaged.
    """
    return list(parsed(folder / TRIALS, Entry.parse))


def events_in(folder: Path) -> list[Event]:
    """How the runs that are recorded in a folder, and their tasks, began and ended.

    Raises:
        RecordsError: a line is damaged.
    """
    return list(parsed(folder / RUNS, _event))


def by_workload(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Entries by the hash of their workload, each in their order."""
    grouped: dict[str, list[Entry]] = {}
    for entry in entries:
        grouped.setdefault(entry.trial.workload, []).append(entry)
    return grouped


def best_of(entries: Iterable[Entry]) -> Entry | None:
    """The entry of one workload that counts as the best, or None if none succeeded.

    It is the quickest of those that the latest run measured in turns at its end; if no run came so far, the quickest
    of all.
    """
    contenders = [entry for entry in entries if entry.trial.seconds]
    if finals := [entry for entry in contenders if entry.trial.final]:
        latest = max(finals, key=lambda entry: entry.trial.time).trial.run
        contenders = [entry for entry in finals if entry.trial.run == latest]
    return min(contenders, key=lambda entry: entry.trial.median_s or 0.0, default=None)


def first_fault(error: ValidationError) -> str:
    """The first thing that a schema finds wrong, in one line."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'document'}: {first['msg']}"


def _event(line: bytes) -> Event:
    try:
        return EVENT.validate_json(line)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from error
