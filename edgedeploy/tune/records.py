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

import json
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgedeploy.closing import Closing
from edgedeploy.errors import RecordsError
from edgedeploy.files import cannot_write, folder_lock
from edgedeploy.kept import key_of
from edgedeploy.progress import SILENT, Progress
from edgedeploy.tune import database
from edgedeploy.tune.content import LONGEST, Content, Entry, best_of, by_workload, events_in, trials_in
from edgedeploy.tune.database import RECORDS, WORKLOADS, RecordLine, WorkloadLine, workload_hash
from edgedeploy.tune.events import Event, RunEnded, RunStarted, TaskEnded
from edgedeploy.tune.header import Header, agree_on_header, read_header
from edgedeploy.tune.journal import Appender, keep_lines, lines
from edgedeploy.tune.proving import Prover, prover
from edgedeploy.tune.trial import Trial

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.s_tir.schedule import Trace


_LONGEST_ERROR = 4000  # letters, of its end, where compilers and TVM say what is wrong


@dataclass(frozen=True)
class Best:
    """The candidate that a build uses.

    Attributes:
        trial: its measurement; `trial.configuration` is the candidate, if it is one of the templates'.
        trace: the candidate, if it is one of MetaSchedule's space. Where there is neither, it is the default of a
            function without a layer.
    """

    trial: Trial
    trace: Trace | None


class Records(Closing):
    """The records in one folder. A context manager, which lets go of the folder."""

    def __init__(self, folder: Path, header: Header, resources: ExitStack) -> None:
        self.folder = folder
        self.header = header
        self._resources = resources
        self._appender: Appender | None = None
        self._guard = threading.Lock()
        self._entries: dict[str, list[Entry]] = {}
        # For adding: the lines of the workloads that are there, and how many lines each file has.
        self._places: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._uncertain = False
        self._used: dict[str, str] = {}
        self._provers = ExitStack()
        weakref.finalize(self, self._provers.close)
        self._prover: Prover | None = None

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
                records = Records(folder, agree_on_header(folder, header), resources)
                records._load(progress)
                records._appender = resources.enter_context(Appender(folder))
            records._resources = resources.pop_all()
            return records

    def close(self) -> None:
        """Let go of the folder."""
        self._appender = None
        self._prover = None
        self._provers.close()
        self._resources.close()

    def add(self, workload: IRModule, trial: Trial, trace: Trace | None = None) -> None:
        """Record a trial.

        Args:
            workload: the task's module, with the function `main`; its hash is the trial's `workload`.
            trial: what came out.
            trace: what makes the candidate; made from the trial's configuration if None. A trial of MetaSchedule's
                space without one, or one that failed, goes into no database.

        Raises:
            OutputError: the files cannot be written; they are as they were before.
            RecordsError: the trial, its trace or its workload is too large.
            ValueError: the trial is of another workload.
        """
        if trial.workload != workload_hash(workload):
            raise ValueError(f"the trial is of workload {trial.workload}, not of {workload_hash(workload)}")
        if trace is None and trial.configuration is not None and trial.seconds:
            trace = database.trace_of(workload, trial.configuration)
        with self._changing():
            place = self._places.get(trial.workload)
            workloads = []
            if place is None:
                place = self._counts[WORKLOADS]
                workloads.append(WorkloadLine(trial.workload, database.workload_line(workload)))
            records, record = [], None
            if trial.seconds and trace is not None:
                record = self._counts[RECORDS]
                line = database.record_line(place, workload, trace, trial.seconds, self.header.target)
                records.append(RecordLine(place, line))
            if trial.error is not None:
                trial = trial.model_copy(update={"error": trial.error[-_LONGEST_ERROR:]})
            self._grow(Content(workloads, records, [Entry(trial, record)], []))

    def absorb(self, content: Content) -> int:
        """Add the trials of other records, all or none of them, but those that are here already.

        Returns: how many were added.

        Raises:
            OutputError: the files cannot be written; they are as they were before.
        """
        with self._changing():
            known = {entry.identity() for entries in self._entries.values() for entry in entries}
            added = []
            for entry in content.entries:
                if entry.identity() not in known:
                    known.add(entry.identity())
                    added.append(entry)
            chosen = content.chosen(added)
            first, before = self._counts[WORKLOADS], self._counts[RECORDS]
            workloads = [workload for workload in chosen.workloads if workload.hash not in self._places]
            places = {**self._places, **{each.hash: first + index for index, each in enumerate(workloads)}}
            records = [record.owned_by(places[chosen.workloads[record.owner].hash]) for record in chosen.records]
            entries = [entry.moved(before) for entry in chosen.entries]
            present = events_in(self.folder)
            events = [event for event in content.events if event not in present]
            self._grow(Content(workloads, records, entries, events))
            return len(added)

    def note(self, event: Event) -> None:
        """Keep how a run began and ended, and each of its tasks; other events are not kept.

        Raises:
            OutputError: the file cannot be written.
        """
        if isinstance(event, RunStarted | TaskEnded | RunEnded):
            with self._changing():
                self._grow(Content([], [], [], [event]))

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
        if trial.configuration is not None or entry.record is None:
            self._used[key] = json.dumps(trial.configuration, sort_keys=True)
            return Best(trial, None)
        [trace] = self._traces(workload, [entry])
        self._used[key] = str(trace)
        return Best(trial, trace)

    def candidates(self, workload: IRModule) -> list[Best]:
        """Every candidate of MetaSchedule's space that could be measured, with its trace: what a search goes on from.

        Raises:
            RecordsError: a record is damaged.
        """
        entries = [
            entry
            for entry in self._entries.get(workload_hash(workload), ())
            if entry.record is not None and entry.trial.space == "metaschedule" and entry.trial.configuration is None
        ]
        traces = self._traces(workload, entries)
        return [Best(entry.trial, trace) for entry, trace in zip(entries, traces, strict=True)]

    @property
    def sha256(self) -> str | None:
        """SHA-256 over the candidates that `best` gave so far, by workload; None if it gave none."""
        if not self._used:
            return None
        return key_of(self._used)

    @property
    def bests_sha256(self) -> str:
        """SHA-256 over the best candidate of every workload: another one means that some network is built otherwise."""
        bests = {key: best_of(entries) for key, entries in self._entries.items()}
        said = {key: entry.trial.model_dump_json() for key, entry in bests.items() if entry}
        return key_of(said)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One change at a time. If one was broken off, wherever it was, the files say what came of it."""
        with self._guard:
            if self._appender is None:
                raise ValueError(f"{self.folder} was opened for reading")
            if self._uncertain:
                self._load(SILENT)
            self._uncertain = True
            yield
            self._uncertain = False

    def _grow(self, content: Content) -> None:
        """Add lines, whose numbers are those that they will have."""
        assert self._appender is not None
        additions = {name: lines for name, lines in content.lines().items() if lines}
        for name, added in additions.items():
            if max(map(len, added)) + 1 >= LONGEST[name]:
                raise RecordsError(f"a line of {name} would be too long to be read again")
        self._appender.append(additions)
        for index, workload in enumerate(content.workloads, self._counts[WORKLOADS]):
            self._places.setdefault(workload.hash, index)
        self._counts[WORKLOADS] += len(content.workloads)
        self._counts[RECORDS] += len(content.records)
        for entry in content.entries:
            self._entries.setdefault(entry.trial.workload, []).append(entry)

    def _traces(self, workload: IRModule, entries: list[Entry]) -> list[Trace]:
        """The traces of entries that have a record, from the database."""
        seconds = {entry.record: entry.trial.seconds for entry in entries if entry.record is not None}
        found = {}
        for number, line in enumerate(lines(self.folder / RECORDS)):
            if number in seconds:
                with self._proved() as prover:
                    found[number] = database.trace_in(line, workload, seconds[number], prover)
        if missing := seconds.keys() - found.keys():
            raise RecordsError(f"{self.folder / RECORDS} is damaged", why=f"it has no line {min(missing) + 1}")
        return [found[entry.record] for entry in entries if entry.record is not None]

    @contextmanager
    def _proved(self) -> Iterator[Prover]:
        """The process that traces are tried in: started for the first one, and anew after it failed."""
        if self._prover is None:
            self._prover = self._provers.enter_context(prover())
        try:
            yield self._prover
        except RecordsError:
            self._prover = None
            self._provers.close()
            raise

    def _load(self, progress: Progress) -> None:
        """Read all files, and cut off what was torn when a run was killed or the power failed."""
        content = Content.read(self.folder)
        self._counts = content.counts()
        for name, count in self._counts.items():
            if keep_lines(self.folder / name, count):
                progress.note(f"{self.folder / name}: what was not whole after line {count} is cut off")
        self._places = {}
        for index, workload in enumerate(content.workloads):
            self._places.setdefault(workload.hash, index)
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
