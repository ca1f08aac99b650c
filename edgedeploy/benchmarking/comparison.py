"""The changes between two reports, and which of them are more than chance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from edgedeploy.base.documents import first_fault
from edgedeploy.base.text import count, significant
from edgedeploy.benchmarking.report import case_of, geometric_mean
from edgedeploy.errors import InputError

# Differences that chance would give less often than this, in everything that is compared together, count as real.
LEVEL = 0.05

_LARGEST_FILE = 1 << 28
# For more pairs of turns the distribution of ranks is approximated by the normal one.
_EXACT_PAIRS = 400


class SavedRow(BaseModel, frozen=True):
    """The compared fields of a row of `edgedeploy bench --json`."""

    model: str
    engine: str
    version: str
    device: str
    threads: int
    median_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    batch: int | None = None
    turns_ms: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = []

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The case, the engine, its device, and the threads: rows of the same key are compared."""
        return case_of(self.model, self.batch), self.engine, self.device, self.threads


class Saved(BaseModel, frozen=True):
    """The compared fields of a report of `edgedeploy bench --json`."""

    machine: dict[str, Any]
    rows: list[SavedRow]


@dataclass(frozen=True)
class Change:
    """One engine on one network, in both reports."""

    case: str
    engine: str
    before_ms: float  # the median, as is `after_ms`
    after_ms: float
    ratio: float  # the second median divided by the first; above 1, it became slower
    # How often chance alone would give a difference of this size among the turns, by `mann_whitney` of their medians,
    # corrected for the number of changes as Holm does. None if a report has no turns.
    p: float | None

    @property
    def real(self) -> bool:
        """Whether it is more than chance."""
        return self.p is not None and self.p < LEVEL


@dataclass(frozen=True)
class Comparison:
    """All changes, the cases and engines that are in one report only, and notes for readers."""

    changes: list[Change]
    gone: list[str]
    new: list[str]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The comparison for scripts."""
        changes = [{**asdict(change), "real": change.real} for change in self.changes]
        return {"changes": changes, "gone": self.gone, "new": self.new, "notes": self.notes}

    def slower(self, above: float, engine: str) -> list[Change]:
        """The changes of an engine that are real, and whose ratio is above a limit."""
        return [each for each in self.changes if each.engine == engine and each.real and each.ratio > above]

    def mean_ratios(self) -> dict[str, float]:
        """By engine the geometric mean of its ratios."""
        engines = dict.fromkeys(change.engine for change in self.changes)
        return {each: geometric_mean([one.ratio for one in self.changes if one.engine == each]) for each in engines}


def read_report(path: Path) -> Saved:
    """A report of `edgedeploy bench --json` in a file."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise InputError(f"{path} is not a report of edgedeploy bench", why="it is too large")
        return Saved.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {path}", why=error.strerror) from error
    except ValidationError as error:
        raise InputError(
            f"{path} is not a report of edgedeploy bench",
            why=first_fault(error),
            hints=["write one: edgedeploy bench MODEL --json > report.json"],
        ) from error


def compare_reports(before: Saved, after: Saved) -> Comparison:
    """The changes from one report to another."""
    old, new = ({row.key: row for row in each.rows} for each in (before, after))
    both = [key for key in new if key in old]
    p = _holm({key: mann_whitney(old[key].turns_ms, new[key].turns_ms) for key in both})
    changes = []
    for key in both:
        first, second = old[key].median_ms, new[key].median_ms
        changes.append(Change(*key[:2], first, second, second / first, p[key]))
    gone, added = (
        [f"{case}, {engine}, {count(threads, 'thread')}" for case, engine, _, threads in keys]
        for keys in ([key for key in old if key not in new], [key for key in new if key not in old])
    )
    return Comparison(changes, gone, added, list(_notes(before, after, [old[key] for key in both])))


def _notes(before: Saved, after: Saved, compared: Sequence[SavedRow]) -> Iterable[str]:
    for name, what in (("cpu", "processors"), ("cores", "numbers of cores"), ("os", "systems")):
        old, new = before.machine.get(name), after.machine.get(name)
        if old != new:
            yield f"the reports are of different {what}: {old}, and {new}"
    loads = [float(load) for each in (before, after) if isinstance(load := each.machine.get("load"), (int, float))]
    if any(load > 0.5 for load in loads):
        yield f"other programs were running: load {' and '.join(f'{load:g}' for load in loads)}"
    versions = {(row.engine, row.version) for row in before.rows} ^ {(row.engine, row.version) for row in after.rows}
    named = {engine for engine, _ in versions} & {row.engine for row in compared}
    if named:
        yield f"other versions of {', '.join(sorted(named))}"
    fewest = min((len(row.turns_ms) for each in (before, after) for row in each.rows), default=0)
    smallest_p = mann_whitney([0.0] * fewest, [1.0] * fewest) or 1.0
    if compared and smallest_p * len(compared) >= LEVEL:
        changes = count(len(compared), "change")
        yield f"{count(fewest, 'round')} are too few to tell {changes} from chance: use --rounds 10 or more"


def _holm(found: Mapping[Any, float | None]) -> dict[Any, float | None]:
    """Probabilities for several tests together.

    Holm, "A simple sequentially rejective multiple test procedure" (1979).
    """
    known = sorted(((p, key) for key, p in found.items() if p is not None), key=lambda each: each[0])
    corrected: dict[Any, float | None] = dict.fromkeys(found)
    largest = 0.0
    for place, (p, key) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - place)))
        corrected[key] = largest
    return corrected


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float | None:
    """How often chance gives ranks as uneven as those of two samples, on both sides; None if one is empty.

    Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than the other" (1947):
    exact for small samples, in which equal values count half; by the normal distribution for larger ones.
    """
    if not first or not second:
        return None
    wins = sum((one > other) + 0.5 * (one == other) for one in first for other in second)
    pairs = len(first) * len(second)
    uneven = min(wins, pairs - wins)
    if pairs <= _EXACT_PAIRS:
        counts = _arrangements(len(first), len(second))
        below = sum(number for value, number in enumerate(counts) if value <= uneven)
        return min(1.0, 2 * below / sum(counts))
    deviation = (pairs * (len(first) + len(second) + 1) / 12) ** 0.5
    return min(1.0, 2 * NormalDist().cdf((uneven + 0.5 - pairs / 2) / deviation))


@cache
def _arrangements(first: int, second: int) -> tuple[int, ...]:
    """By the number of pairs in which the first sample is larger: how many orders of both samples have it."""
    if not first or not second:
        return (1,)
    # The largest value is of the first sample, which wins all pairs with the second, or of the second.
    with_first = (0,) * second + _arrangements(first - 1, second)
    with_second = _arrangements(first, second - 1) + (0,) * first
    return tuple(map(sum, zip(with_first, with_second, strict=True)))


def change_table(comparison: Comparison) -> list[list[str]]:
    """The cells of a table with a line for each change, titles first."""
    lines = [["model", "engine", "before ms", "after ms", "ratio", "p", ""]]
    for each in comparison.changes:
        verdict = ("slower" if each.ratio > 1 else "quicker") if each.real else "no difference found"
        p = "-" if each.p is None else f"{each.p:.2g}"
        times = significant(each.before_ms), significant(each.after_ms)
        lines.append([each.case, each.engine, *times, f"{each.ratio:.3f}", p, verdict])
    return lines
