"""Tuning records are merged, exported as lines of JSON, imported, pruned.

Nothing is changed before everything was read and checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.base.files import is_file, is_folder, replacing
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import RecordsError
from edgedeploy.records.database import Records, read_records
from edgedeploy.records.lines import Content, read_lines
from edgedeploy.records.schema import Trial, best_of, by_workload, default_folder


@dataclass(frozen=True)
class Merged:
    """The folder to which records were added, and how many trials were new there, and how many known."""

    folder: Path
    added: int
    known: int


@dataclass(frozen=True)
class Pruned:
    """How many trials stay in a folder, and how many go."""

    kept: int
    removed: int


def merge(sources: Sequence[Path], into: Path, progress: Progress = SILENT) -> Merged:
    """Add the records of some folders to those of `into`, which is created if it is missing. Each trial counts once."""
    contents = [read_records(source) for source in sources]
    header = contents[0].header
    for source, content in zip(sources, contents, strict=True):
        if difference := header.difference(content.header):
            raise RecordsError(f"the records in {source} cannot be merged with those in {sources[0]}", why=difference)
    trials = [trial for content in contents for trial in content.trials]
    events = [event for content in contents for event in content.events]
    return _add(Content(header, trials, events), into, progress)


def _add(content: Content, into: Path, progress: Progress) -> Merged:
    with Records.open(into, content.header) as records, progress.stage("merge"):
        added = records.absorb(content)
    return Merged(into, added, len(content.trials) - added)


def export(folder: Path, output: Path) -> int:
    """Write records as lines of JSON; equal records give equal bytes. Returns the number of trials."""
    content = read_records(folder)
    with replacing(output) as temporary, temporary.open("wb") as stream:
        stream.writelines(content.lines())
    return len(content.trials)


def import_records(source: Path, into: Path | None = None, progress: Progress = SILENT) -> Merged:
    """Add the records of a file that `export` wrote, or of a folder, to `into`; by default to those of their board."""
    with progress.stage("read"):
        if is_folder(source):
            content = read_records(source)
        elif is_file(source):
            content = read_lines(source)
        else:
            raise RecordsError(f"no records at {source}", why="it is neither a folder nor a plain file")
    return _add(content, into or default_folder(content.header.board), progress)


def prune(folder: Path, keep: int, *, dry_run: bool = False) -> Pruned:
    """Drop failures, and of each task all but the best `keep`, the default, and the trials of the last run's end.

    With `dry_run`, nothing is changed: the result is what would happen.
    """
    content = read_records(folder)
    if dry_run:
        kept = len(_worth_keeping(content.trials, keep))
        return Pruned(kept, len(content.trials) - kept)
    with Records.open(folder, content.header) as records:
        return Pruned(*records.thin_out(lambda trials: _worth_keeping(trials, keep)))


def _worth_keeping(trials: Sequence[Trial], keep: int) -> list[Trial]:
    """Of each task the defaults, the last run's final trials, and the fastest others; in their order."""
    kept: set[int] = set()
    for group in by_workload(trials).values():
        successes = [trial for trial in group if trial.seconds]
        best = best_of(successes)
        for trial in successes:
            final = best and best.final and trial.final and trial.run == best.run
            if final or (trial.number == 0 and not trial.final):
                kept.add(id(trial))
        others = [trial for trial in successes if not trial.final]
        others.sort(key=lambda trial: trial.median_s or 0.0)
        kept.update(id(trial) for trial in others[:keep])
    return [trial for trial in trials if id(trial) in kept]
