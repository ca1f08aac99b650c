"""Hostile tuning records: whatever is in the files, the answer is records or one of our errors, soon and in little
memory."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzzing import damaged, peak_of, survive
from tuning_records import LARGER, filled, header, trial, write_old_files

from edgedeploy.errors import EdgedeployError, RecordsError
from edgedeploy.tune.events import RunEnded
from edgedeploy.tune.exchange import export, import_records, merge, prune
from edgedeploy.tune.header import DATABASE
from edgedeploy.tune.lines import LONGEST_LINE, read_lines
from edgedeploy.tune.overview import overview
from edgedeploy.tune.records import Records, read_records
from edgedeploy.tune.trial import Trial


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small records of every kind: a database in `new`, the files of earlier versions in `old`, and exported lines."""
    root = tmp_path_factory.mktemp("records")
    with Records.open(filled(root / "new"), header()) as records:
        records.note(RunEnded(run="first", results=[], seconds=1.0))
    write_old_files(root / "old")
    export(root / "new", root / "lines")
    return root


def use(source: Path, elsewhere: Path, case: int) -> None:
    """Read records, and do one of the things that are done with them; only our errors may come of it.

    Raises:
        RecordsError: they cannot be read.
    """

    def look() -> None:
        with Records.open(source) as records:
            records.best(LARGER)
        overview(read_records(source).trials)

    def add() -> None:
        with Records.open(source, header()) as records:
            records.add(trial(9, 1.0, workload=LARGER))

    if source.is_file():
        survive(lambda: import_records(source, elsewhere / "new"))
        read_lines(source)
        return
    survive(look)
    move = (lambda: export(source, elsewhere / "a"), lambda: merge([source], elsewhere / "b"))
    others = (add, *move, lambda: prune(source, 1))
    survive(others[case % len(others)])
    Records.open(source).close()


def use_all(variants: Iterator[dict[Path, bytes]], tmp_path: Path) -> int:
    """Use records in many variants, each some files with their paths; returns how often they could be used."""
    useful = 0
    for case, files in enumerate(variants):
        place = tmp_path / f"{case}"
        for path, content in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(content)
        try:
            use(place / path.parts[0], place / "elsewhere", case)
            useful += 1
        except EdgedeployError:
            pass
    return useful


def files_in(sound: Path, what: str) -> dict[Path, bytes]:
    """The files of one kind of records."""
    found = [sound / what] if (sound / what).is_file() else sorted((sound / what).iterdir())
    return {path.relative_to(sound): path.read_bytes() for path in found if path.stem != "database_workload"}


def damaged_variants(sound: Path, what: str, cases: int, seed: int) -> Iterator[dict[Path, bytes]]:
    generator = np.random.default_rng(seed)
    files = files_in(sound, what)
    for _ in range(cases):
        path = list(files)[int(generator.integers(len(files)))]
        yield {**files, path: damaged(files[path], generator)}


KINDS = ["new", "old", "lines"]


@pytest.mark.parametrize("what", KINDS)
def test_damaged_files_end_in_our_errors(what: str, sound: Path, tmp_path: Path) -> None:
    assert 0 < use_all(damaged_variants(sound, what, 100, seed=1), tmp_path) < 100


@pytest.mark.slow
@pytest.mark.parametrize("what", KINDS)
def test_many_damaged_files_end_in_our_errors(what: str, sound: Path, tmp_path: Path) -> None:
    assert 20 < use_all(damaged_variants(sound, what, 1000, seed=2), tmp_path) < 980


def values(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside a JSON value."""
    if path:
        yield path
    if isinstance(value, list | dict):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from values(below, (*path, key))


STRANGE = [None, [], {}, "", "b0", '"x"', True, -1, 0, 1.5, 1e300, 2**31, 2**63, -(2**63), 2**70, "\0", "é", "\ud800"]


def strange(value: Any, source: random.Random) -> Any:
    """A JSON value with some of its parts replaced, removed, doubled or put in each other's place."""
    changed = json.loads(json.dumps(value))
    for _ in range(source.randint(1, 3)):
        paths = list(values(changed))
        if not paths:
            break
        *way, last = source.choice(paths)
        node = changed
        for key in way:
            node = node[key]
        other = changed
        for key in source.choice(paths):
            other = other[key]
        match source.randrange(4):
            case 0:
                del node[last]
            case 1 if isinstance(node, list):
                node.insert(last, node[last])
            case 2:
                node[last] = json.loads(json.dumps(other))
            case _:
                node[last] = source.choice(STRANGE)
    return changed


def strange_variants(sound: Path, what: str, cases: int, seed: int) -> Iterator[dict[Path, bytes]]:
    """Files of records with a line that is JSON but says something else."""
    source, files = random.Random(seed), files_in(sound, what)
    for _ in range(cases):
        path = source.choice(list(files))
        lines = [files[path]] if path.suffix == ".json" else files[path].splitlines()
        chosen = source.randrange(len(lines))
        lines[chosen] = json.dumps(strange(json.loads(lines[chosen]), source)).encode()
        yield {**files, path: b"".join(line + b"\n" for line in lines)}


@pytest.mark.parametrize("what", ["old", "lines"])
def test_strange_lines_end_in_our_errors(what: str, sound: Path, tmp_path: Path) -> None:
    assert 2 < use_all(strange_variants(sound, what, 100, seed=1), tmp_path) < 98


@pytest.mark.slow
@pytest.mark.parametrize("what", ["old", "lines"])
def test_many_strange_lines_end_in_our_errors(what: str, sound: Path, tmp_path: Path) -> None:
    assert 20 < use_all(strange_variants(sound, what, 1000, seed=2), tmp_path) < 980


@pytest.mark.parametrize("value", ["NULL", "-1", "1e300", "x'00ff'", "''", "'null'", "'{}'", "CAST(x'ff' AS TEXT)"])
def test_strange_values_in_a_database_end_in_our_errors(value: str, sound: Path, tmp_path: Path) -> None:
    columns = [("trials", name) for name in Trial.model_fields]
    columns += [("header", "content"), ("events", "content")]
    refused = 0
    for number, (table, column) in enumerate(columns):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / DATABASE
        path.write_bytes((sound / "new" / DATABASE).read_bytes())
        with closing(sqlite3.connect(path)) as connection, connection:
            try:
                connection.execute(f"UPDATE {table} SET {column} = {value} WHERE rowid = 1")
            except sqlite3.IntegrityError:
                continue
        survive(lambda folder=folder: use(folder, tmp_path / "elsewhere", 0))  # type: ignore[misc]
        try:
            read_records(folder)
        except RecordsError:
            refused += 1
    assert refused >= 3


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE events"],
        ["CREATE TABLE more (content TEXT)"],
        ["DROP TABLE trials", "CREATE TABLE trials (time TEXT)"],
        ["CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM trials; END"],
        [
            "DROP TABLE events",
            "CREATE VIEW events AS WITH RECURSIVE n(content) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT * FROM n",
        ],
        ["PRAGMA user_version = 3"],
        ["DELETE FROM header"],
        ["INSERT INTO header SELECT content FROM header"],
    ],
    ids=lambda statements: statements[-1][:24],
)
def test_a_database_of_other_tables_is_refused_and_not_changed(
    statements: list[str], sound: Path, tmp_path: Path
) -> None:
    path = tmp_path / DATABASE
    path.write_bytes((sound / "new" / DATABASE).read_bytes())
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    before = path.read_bytes()
    for given in (None, header()):
        with pytest.raises(RecordsError):
            Records.open(tmp_path, given)
    assert path.read_bytes() == before


def test_a_database_that_shows_one_page_many_times_is_refused(tmp_path: Path) -> None:
    """Its tree leads to the same leaves again and again: a few kilobytes that would be rows without number."""
    with Records.open(tmp_path, header()) as records:
        for number in range(300):
            records.add(trial(number, 1.0))
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        [[root]] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'trials'")
        [[size]] = connection.execute("PRAGMA page_size")
    content = bytearray((tmp_path / DATABASE).read_bytes())
    page = (root - 1) * size
    assert content[page] == 5, "an inner page of a table"
    count = int.from_bytes(content[page + 3 : page + 5], "big")
    cells = [int.from_bytes(content[page + 12 + 2 * n : page + 14 + 2 * n], "big") for n in range(count)]
    first = bytes(content[page + cells[0] : page + cells[0] + 4])
    for cell in cells:
        content[page + cell : page + cell + 4] = first
    many = (size - 12) // 2 - 400
    content[page + 3 : page + 5] = many.to_bytes(2, "big")
    for number in range(many):
        content[page + 12 + 2 * number : page + 14 + 2 * number] = cells[0].to_bytes(2, "big")
    (tmp_path / DATABASE).write_bytes(content)
    with pytest.raises(RecordsError, match="damaged"):
        read_records(tmp_path)


CLAIMS = {
    "open": b"[" * (4 << 20),
    "deep": b"[" * (4 << 20) + b"\n",
    "long": b"[0," + b"1," * (2 << 20) + b"1]\n",
    "many": b'{"format":2,"seconds":[' + b"1," * (1 << 18) + b"1]}\n",
    "wrong": b'{"seconds":[' + b"null," * (1 << 17) + b"1]}\n",
    "events": b'{"event":"run ended","results":[' + b"{}," * (1 << 18) + b"{}]}\n",
    "huge": b"9" * (4 << 20) + b"\n",
    "empty": b"\n" * (4 << 20),
    "escaped": b'"' + b"\\u0000" * (1 << 19) + b'"\n',
}


@pytest.mark.parametrize(
    ("name", "claim"),
    [*(("lines", claim) for claim in CLAIMS), ("header.json", "many"), ("runs.jsonl", "events"), (DATABASE, "huge")],
)
def test_what_claims_a_lot_takes_little(sound: Path, tmp_path: Path, name: str, claim: str) -> None:
    if name == "lines":
        (tmp_path / name).write_bytes((sound / "lines").read_bytes() + CLAIMS[claim])
    else:
        write_old_files(tmp_path)
        (tmp_path / name).write_bytes(CLAIMS[claim])
    most = 4 * len(CLAIMS[claim]) + 24 * LONGEST_LINE  # JSON takes some twenty times the memory of a line
    assert peak_of(lambda: read_lines(tmp_path / name) if name == "lines" else Records.open(tmp_path)) < most
