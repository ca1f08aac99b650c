"""Tuning records on the move: merged, packed into an archive, taken from one or from MetaSchedule, thinned out.

Nothing is changed before everything was read and checked.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from edgedeploy.errors import InputError, RecordsError
from edgedeploy.files import cannot_write, exchange, is_file, is_folder, replacing, sha256_of
from edgedeploy.progress import SILENT, Progress
from edgedeploy.tarballs import DamagedArchiveError, opened_archive, write_archive
from edgedeploy.triples import architecture_of
from edgedeploy.tune.content import RUNS, TRIALS, Content, Entry, best_of, by_workload
from edgedeploy.tune.database import RECORDS, WORKLOADS, RecordLine
from edgedeploy.tune.header import HEADER, Header, cpu_of, default_folder, read_header
from edgedeploy.tune.journal import LARGEST_FILE
from edgedeploy.tune.records import Records
from edgedeploy.tune.trial import Trial

FILES = (HEADER, WORKLOADS, RECORDS, TRIALS, RUNS)

# Trials compress to a tenth or a twentieth; what is much smaller is made to fill a disk.
_MOST_COMPRESSED = 60
_SMALL = 1 << 20

# TVM notes a failure as a time of 1e10 s.
_NEVER = 1e9


@dataclass(frozen=True)
class Merged:
    """What became of records that were to be added to others.

    Attributes:
        folder: where they went.
        added: trials that are new there.
        known: trials that were there before.
        unfit: records of another kind of machine, which were left out.
    """

    folder: Path
    added: int
    known: int
    unfit: int = 0


@dataclass(frozen=True)
class Pruned:
    """How many trials stay in a folder, and how many go."""

    kept: int
    removed: int


def merge(sources: Sequence[Path], into: Path, progress: Progress = SILENT) -> Merged:
    """Add the records of some folders to those of another one, which is made if need be. Each trial counts once.

    Raises:
        RecordsError: a folder holds none, or damaged ones, or they are not all of one board, target and TVM.
        OutputError: the folder cannot be written; nothing was added then.
    """
    headers = [read_header(source) for source in sources]
    for source, header in zip(sources, headers, strict=True):
        if difference := headers[0].difference(header):
            raise RecordsError(f"the records in {source} cannot be merged with those in {sources[0]}", why=difference)
    return _merge([Content.read(source) for source in sources], headers[0], into, progress)


def _merge(contents: Sequence[Content], header: Header, into: Path, progress: Progress) -> Merged:
    content = Content.joined(contents)
    with Records.open(into, header, progress) as records, progress.stage("merge"):
        added = records.absorb(content)
    return Merged(into, added, len(content.entries) - added)


def export(folder: Path, output: Path) -> int:
    """Pack records into an archive; equal records give equal bytes. Returns the number of trials.

    Raises:
        RecordsError: there are none, or they are damaged.
        OutputError: the archive cannot be written.
    """
    header = read_header(folder)
    content = Content.read(folder)
    with replacing(output) as temporary:
        write_archive(temporary, _files(header, content))
    return len(content.entries)


def _files(header: Header, content: Content) -> dict[str, bytes]:
    """All files of a folder of records."""
    files = {name: b"".join(line + b"\n" for line in lines) for name, lines in content.lines().items()}
    return {HEADER: header.file_content(), **files}


def import_records(
    source: Path, into: Path | None = None, header: Header | None = None, progress: Progress = SILENT
) -> Merged:
    """Add the records of an archive or a folder to those of their board.

    Args:
        source: what `export` wrote, a folder of records, or a folder or archive with a JSON database of MetaSchedule.
        into: the folder to add to; the default one of their board if None.
        header: whose the records of MetaSchedule are, which does not say it.
        progress: is told about each step.

    Raises:
        InputError: it is MetaSchedule's, and no header was given.
        RecordsError: there are no records, or they are damaged, hostile or of another board, target or TVM.
        OutputError: the folder cannot be written; nothing was added then.
    """
    with progress.stage("read"), _unpacked(source) as folder:
        if not any(is_file(folder / name) for name in FILES):
            raise RecordsError(f"{source} holds no tuning records", why=f"it has none of {', '.join(FILES)}")
        unfit = 0
        if is_file(folder / HEADER):
            header = read_header(folder)
            content = Content.read(folder, strict=not is_folder(source))
        elif header is None:
            raise InputError(
                f"{source} does not say of which board its records are",
                why="it is a database of MetaSchedule",
                hints=["name the board with --board"],
            )
        else:
            content, unfit = _foreign(Content.read(folder, strict=not is_folder(source)), folder / RECORDS, header)
    merged = _merge([content], header, into or default_folder(header.board), progress)
    return Merged(merged.folder, merged.added, merged.known, unfit)


@contextmanager
def _unpacked(source: Path) -> Iterator[Path]:
    """A folder with the files of a folder or an archive."""
    if is_folder(source):
        yield source
        return
    if not is_file(source):
        raise RecordsError(f"there are no records {source}", why="it is no folder and no plain file")
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
        try:
            _unpack(source, Path(folder))
        except DamagedArchiveError as error:
            raise RecordsError(
                f"{source} is no archive of tuning records",
                why=str(error),
                hints=["pack one with `edgedeploy records export`", "unpack it, and import the folder"],
            ) from error
        yield Path(folder)


def _unpack(source: Path, folder: Path) -> None:
    left = min(LARGEST_FILE, _SMALL + _MOST_COMPRESSED * source.stat().st_size)
    seen = set()
    with opened_archive(source) as entries:
        for entry in entries:
            name = entry.name.removeprefix("./")
            if name not in FILES or name in seen:
                raise DamagedArchiveError(f"{name!r} is no file of records, or comes twice")
            seen.add(name)
            left -= entry.size
            if left < 0:
                raise DamagedArchiveError("it holds more than records of its size can")
            with (folder / name).open("wb") as output:
                for piece in entry.pieces():
                    output.write(piece)


def _foreign(database: Content, path: Path, header: Header) -> tuple[Content, int]:
    """MetaSchedule's database, in the file `path`, with trials; and how many records are of other machines."""
    run = f"import-{sha256_of(path)[:12]}" if is_file(path) else "import"
    time = datetime.fromtimestamp(path.stat().st_mtime if is_file(path) else 0, timezone.utc)
    counts: dict[str, int] = {}
    entries, unfit = [], 0
    for number, record in enumerate(database.records):
        if not _fits(record, header):
            unfit += 1
            continue
        workload = database.workloads[record.owner].hash
        counts[workload] = counts.get(workload, 0) + 1  # from 1: trial 0 would be the default
        seconds = record.seconds()
        failed = not seconds or median(seconds) >= _NEVER
        configuration = record.configuration()
        trial = Trial(
            time=time,
            run=run,
            task=workload,
            workload=workload,
            number=counts[workload],
            space="metaschedule" if configuration is None else "templates",
            configuration=configuration,
            seconds=[] if failed else seconds,
            failure="error" if failed else None,
            host="import",
        )
        entries.append(Entry(trial, None if failed else number))
    return Content(database.workloads, database.records, entries, []), unfit


def _fits(record: RecordLine, header: Header) -> bool:
    """Whether a record was measured on a machine of the same kind."""
    target = record.target()
    if target.get("kind") != header.target.get("kind"):
        return False
    triples = [str(cpu_of(each).get("mtriple", "")) for each in (target, header.target)]
    families = {architecture_of(triple).name for triple in triples if triple}
    return len(families) < 2


def prune(folder: Path, keep: int, *, dry_run: bool = False, progress: Progress = SILENT) -> Pruned:
    """Drop failures, and of each task all but the best. The default stays, and what the last run measured in turns.

    Args:
        folder: the records.
        keep: how many of the best trials of each task stay.
        dry_run: only say what would happen.
        progress: is told about repairs.

    Raises:
        RecordsError: there are none, they are damaged, or a run adds to them.
        OutputError: the folder cannot be written; it is as it was before.
    """
    header = read_header(folder)
    if dry_run:
        content = Content.read(folder)
        kept = _worth_keeping(content.entries, keep)
        return Pruned(len(kept), len(content.entries) - len(kept))
    with Records.open(folder, header, progress):
        content = Content.read(folder)
        kept = _worth_keeping(content.entries, keep)
        if len(kept) < len(content.entries):
            _replace(folder.resolve(), _files(header, content.chosen(kept)))
        return Pruned(len(kept), len(content.entries) - len(kept))


def _worth_keeping(entries: Sequence[Entry], keep: int) -> list[Entry]:
    """Of each task the defaults, the last run's final trials, and the quickest others; in their order."""
    kept: set[int] = set()
    for group in by_workload(entries).values():
        successes = [entry for entry in group if entry.trial.seconds]
        best = best_of(successes)
        for entry in successes:
            final = best and best.trial.final and entry.trial.final and entry.trial.run == best.trial.run
            if final or (entry.trial.number == 0 and not entry.trial.final):
                kept.add(id(entry))
        others = [entry for entry in successes if not entry.trial.final]
        others.sort(key=lambda entry: entry.trial.median_s or 0.0)
        kept.update(id(entry) for entry in others[:keep])
    return [entry for entry in entries if id(entry) in kept]


def _replace(folder: Path, files: dict[str, bytes]) -> None:
    """Give a folder other records, all at once; what else lies in it stays."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        beside.mkdir()
        shutil.copymode(folder, beside)
        for name, content in files.items():
            (beside / name).write_bytes(content)
        exchange(beside, folder)
        for path in set(beside.iterdir()) - {beside / name for name in FILES}:
            path.rename(folder / path.name)
    except OSError as error:
        raise cannot_write(folder, error) from error
    finally:
        with suppress(OSError):
            for name in FILES:
                (beside / name).unlink(missing_ok=True)
            beside.rmdir()
