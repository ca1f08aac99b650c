"""What the files of a folder of records say, checked against each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from edgedeploy.tune.database import RECORDS, WORKLOADS, RecordLine, WorkloadLine, json_value
from edgedeploy.tune.events import EVENT, Event
from edgedeploy.tune.journal import LONGEST_LINE, damaged, parsed
from edgedeploy.tune.trial import Trial

TRIALS = "trials.jsonl"
RUNS = "runs.jsonl"


Item = TypeVar("Item")

# The longest lines. A trial takes less than 1 kB, a trace of MetaSchedule some 10 kB, a function without weights some
# 100 kB. JSON takes up to twenty times the memory of its text; a workload's is never read as JSON.
LONGEST = {WORKLOADS: LONGEST_LINE, RECORDS: 1 << 20, TRIALS: 1 << 18, RUNS: 1 << 20}

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
        fields = json_value(line)
        record = fields.pop("record") if isinstance(fields, dict) and "record" in fields else None
        if record is not None and (type(record) is not int or record < 0):
            raise ValueError("record: is no line's number")
        try:
            return Entry(Trial.model_validate(fields), record)
        except ValidationError as error:
            raise ValueError(first_fault(error)) from error

    def needs(self) -> int:
        """How many records there must be at least."""
        return 0 if self.record is None else self.record + 1

    def moved(self, by: int) -> Entry:
        """The same trial, with its record so many lines further down."""
        return self if self.record is None else Entry(self.trial, self.record + by)

    def identity(self) -> bytes:
        """What is the same for two entries if they are of the same trial."""
        return Entry(self.trial, None).line()

    def line(self) -> bytes:
        """The line, without its newline."""
        return json.dumps({**self.trial.model_dump(mode="json"), "record": self.record}, ensure_ascii=False).encode()


@dataclass(frozen=True)
class Content:
    """What the files of a folder say.

    Attributes:
        workloads, records: of the database, by line.
        entries: the trials.
        events: of the runs.
    """

    workloads: list[WorkloadLine]
    records: list[RecordLine]
    entries: list[Entry]
    events: list[Event]

    @staticmethod
    def read(folder: Path, *, strict: bool = False) -> Content:
        """Read all files of a folder but the header.

        Args:
            folder: the folder.
            strict: whether it is an error that the files' ends were torn; otherwise they are left out.

        Raises:
            RecordsError: a line is damaged, or names another one that is not there or is of another workload.
        """
        # A file that points into another one is read before it, as a run may be adding to them.
        entries = trials_in(folder, strict=strict)
        records = _parsed(folder, RECORDS, RecordLine.parse, strict)
        workloads = _parsed(folder, WORKLOADS, WorkloadLine.parse, strict)
        most = 0 if strict else _MOST_TORN
        _cut(records, folder / RECORDS, lambda record: record.owner >= len(workloads), most)
        _cut(entries, folder / TRIALS, lambda entry: entry.needs() > len(records), most)
        for number, entry in enumerate(entries, 1):
            if entry.record is not None and workloads[records[entry.record].owner].hash != entry.trial.workload:
                raise damaged(folder / TRIALS, number, f"record {entry.record} is not of its workload")
        return Content(workloads, records, entries, events_in(folder, strict=strict))

    @staticmethod
    def joined(contents: Iterable[Content]) -> Content:
        """The content of several folders, one after another."""
        whole = Content([], [], [], [])
        for content in contents:
            first, before = len(whole.workloads), len(whole.records)
            whole.workloads.extend(content.workloads)
            whole.records.extend(record.owned_by(first + record.owner) for record in content.records)
            whole.entries.extend(entry.moved(before) for entry in content.entries)
            whole.events.extend(content.events)
        return whole

    def lines(self) -> dict[str, list[bytes]]:
        """The lines of each file, in the order in which they are written."""
        return {
            WORKLOADS: [workload.line for workload in self.workloads],
            RECORDS: [record.line for record in self.records],
            TRIALS: [entry.line() for entry in self.entries],
            RUNS: [event.model_dump_json().encode() for event in self.events],
        }

    def counts(self) -> dict[str, int]:
        """How many lines each file has."""
        return {
            WORKLOADS: len(self.workloads),
            RECORDS: len(self.records),
            TRIALS: len(self.entries),
            RUNS: len(self.events),
        }

    def chosen(self, entries: Sequence[Entry]) -> Content:
        """Some of its trials, with the records and workloads that they need, and all its events."""
        records: list[RecordLine] = []
        workloads: dict[str, WorkloadLine] = {}
        places: dict[str, int] = {}
        kept = []
        for entry in entries:
            if entry.record is not None:
                record = self.records[entry.record]
                workload = self.workloads[record.owner]
                place = places.setdefault(workload.hash, len(places))
                workloads.setdefault(workload.hash, workload)
                entry = Entry(entry.trial, len(records))
                records.append(record.owned_by(place))
            kept.append(entry)
        return Content(list(workloads.values()), records, kept, self.events)


def _parsed(folder: Path, name: str, parse: Callable[[bytes], Item], strict: bool) -> list[Item]:
    return list(parsed(folder / name, parse, longest=LONGEST[name], strict=strict))


def _cut(items: list[Item], path: Path, is_astray: Callable[[Item], bool], most: int) -> None:
    """Remove what follows the first line that points to none: when the power fails, some files lose more than others.

    Raises:
        RecordsError: that is more than can be lost in this way.
    """
    first = next((index for index, item in enumerate(items) if is_astray(item)), len(items))
    if len(items) - first > most:
        raise damaged(path, first + 1, "it names a line of the database that is not there")
    del items[first:]


def trials_in(folder: Path, *, strict: bool = False) -> list[Entry]:
    """The trials in a folder of records, of all workloads.

    Raises:
        RecordsError: a line is damaged.
    """
    return _parsed(folder, TRIALS, Entry.parse, strict)


def events_in(folder: Path, *, strict: bool = False) -> list[Event]:
    """How the runs that are recorded in a folder, and their tasks, began and ended.

    Raises:
        RecordsError: a line is damaged.
    """
    return _parsed(folder, RUNS, _event, strict)


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
