"""Hostile tuning records: whatever is in the files, the answer is records or one of our errors, soon and in little
memory."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fuzzing import damaged, peak_of, survive
from support.properties import examples
from support.tuning_records import LARGER, filled, header, trial

from edgedeploy.errors import RecordsError
from edgedeploy.records.database import Records, read_records
from edgedeploy.records.events import RunEnded
from edgedeploy.records.exchange import export, import_records, merge, prune
from edgedeploy.records.header import DATABASE, Header
from edgedeploy.records.lines import LONGEST_LINE, read_lines
from edgedeploy.records.trial import Trial, overview


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small records of every kind: a database in `new`, and exported lines."""
    root = tmp_path_factory.mktemp("records")
    with Records.open(filled(root / "new"), header()) as records:
        records.note(RunEnded(run="first", results=[], seconds=1.0))
    export(root / "new", root / "lines")
    return root


def use(source: Path, elsewhere: Path, case: int) -> bool:
    """Do one of the things that are done with records; only our errors may come of it. Returns whether it worked."""

    def look() -> None:
        with Records.open(source) as records:
            records.best(LARGER)
        overview(read_records(source).trials)

    def add() -> None:
        with Records.open(source, header()) as records:
            records.add(trial(9, 1.0, workload=LARGER))

    moves = (lambda: export(source, elsewhere / "a"), lambda: merge([source], elsewhere / "b"))
    ways = (look, add, *moves, lambda: prune(source, 1))
    way = (lambda: import_records(source, elsewhere / "c")) if source.is_file() else ways[case % len(ways)]
    worked = False

    def work() -> None:
        nonlocal worked
        way()
        worked = True

    survive(work)
    return worked


@pytest.mark.parametrize("what", ["new", "lines"])
@pytest.mark.parametrize(("cases", "seed"), [(100, 1), pytest.param(1500, 2, marks=pytest.mark.slow)])
def test_damaged_files_end_in_our_errors(what: str, cases: int, seed: int, sound: Path, tmp_path: Path) -> None:
    generator, worked = np.random.default_rng(seed), 0
    for case in range(cases):
        source = tmp_path / f"{case}"
        if (sound / what).is_dir():
            shutil.copytree(sound / what, source)
        else:
            shutil.copy(sound / what, source)
        files = [source] if source.is_file() else sorted(source.iterdir())
        path = files[int(generator.integers(len(files)))]
        path.write_bytes(damaged(path.read_bytes(), generator))
        worked += use(source, tmp_path / "elsewhere" / f"{case}", case)
    assert 0 < worked < cases


STRANGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=5,
)
FIELDS = {*Trial.model_fields, *Header.model_fields, *RunEnded.model_fields, "space", "more"}


@examples(200)
@given(st.integers(0, 6), st.sampled_from(sorted(FIELDS)), STRANGE)
def test_strange_values_in_lines_end_in_our_errors(sound: Path, number: int, name: str, value: object) -> None:
    lines = (sound / "lines").read_text().splitlines()
    lines[number] = json.dumps({**json.loads(lines[number]), name: value})
    (sound / "strange").write_text("\n".join([*lines, ""]))
    with suppress(RecordsError):
        content = read_lines(sound / "strange")
        with Records.open(sound / "taken", content.header) as records:
            records.absorb(content)
        assert all(any(each == known for known in read_records(sound / "taken").trials) for each in content.trials)
    shutil.rmtree(sound / "taken", ignore_errors=True)


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
        refused += not use(folder, tmp_path / "elsewhere", 0)
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
def test_a_database_of_other_tables_is_refused_unchanged(statements: list[str], sound: Path, tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    path.write_bytes((sound / "new" / DATABASE).read_bytes())
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    before = path.read_bytes()
    for wanted in (None, header()):
        with pytest.raises(RecordsError):
            Records.open(tmp_path, wanted)
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
    "many": b'{"format":1,"seconds":[' + b"1," * (1 << 18) + b"1]}\n",
    "wrong": b'{"seconds":[' + b"null," * (1 << 17) + b"1]}\n",
    "events": b'{"event":"run ended","results":[' + b"{}," * (1 << 18) + b"{}]}\n",
    "huge": b"9" * (4 << 20) + b"\n",
    "empty": b"\n" * (4 << 20),
    "escaped": b'"' + b"\\u0000" * (1 << 19) + b'"\n',
}


@pytest.mark.parametrize(("name", "claim"), [*(("lines", claim) for claim in CLAIMS), (DATABASE, "huge")])
def test_what_claims_a_lot_takes_little(sound: Path, tmp_path: Path, name: str, claim: str) -> None:
    before = (sound / "lines").read_bytes() if name == "lines" else b""
    (tmp_path / name).write_bytes(before + CLAIMS[claim])
    most = 4 * len(CLAIMS[claim]) + 24 * LONGEST_LINE  # JSON takes some twenty times the memory of a line
    assert peak_of(lambda: read_lines(tmp_path / name) if name == "lines" else Records.open(tmp_path)) < most
