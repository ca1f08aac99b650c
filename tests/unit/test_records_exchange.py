"""Tuning records on the move: nothing is lost, nothing is there twice, and hostile files change nothing."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fuzzing import damaged, examples, peak_of, survive
from support.tuning_records import (
    LARGER,
    PRODUCT,
    SMALLER,
    START,
    changed,
    content_of,
    files_of,
    filled,
    header,
    started,
    trial,
)

from edgedeploy.errors import OutputError, RecordsError
from edgedeploy.records import database as module
from edgedeploy.records.database import Records, read_records
from edgedeploy.records.events import RunEnded
from edgedeploy.records.exchange import Merged, Pruned, export, import_records, merge, prune
from edgedeploy.records.header import DATABASE, Header, default_folder
from edgedeploy.records.lines import LONGEST_LINE, read_lines
from edgedeploy.records.trial import Trial, overview

LATER = START + timedelta(hours=1)


def other(folder: Path) -> Path:
    """Records of another machine's runs: a trial that `filled` has, and two of its own, one of a new task."""
    with Records.open(folder, header(created=LATER)) as records:
        records.add(trial(0, 0.5, workload=SMALLER, task="smaller"))
        records.add(trial(1, 2.0, 2.2))
        records.add(trial(7, 1.0, run="second"))
        records.note(started(run="second"))
    return folder


class TestMerge:
    def test_adds_what_is_new_and_counts_each_trial_once_in_any_order(self, tmp_path: Path) -> None:
        folders = [filled(tmp_path / "a"), other(tmp_path / "b")]
        assert merge(folders, tmp_path / "all") == Merged(tmp_path / "all", added=7, known=1)
        assert sorted((each.task, each.number) for each in read_records(tmp_path / "all").trials) == [
            ("larger", 0),
            *[("product", number) for number in (0, 1, 2, 3, 7)],
            ("smaller", 0),
        ]
        assert merge(folders, tmp_path / "all") == Merged(tmp_path / "all", added=0, known=8)
        assert read_records(tmp_path / "all").events == [started(run="second")]
        merge(folders[::-1], tmp_path / "in another order")
        assert content_of(tmp_path / "in another order").trials == content_of(tmp_path / "all").trials

    @pytest.mark.parametrize("changes", [{"board": "rpi3"}, {"target": {"kind": "llvm"}}, {"tvm": "0.1"}])
    def test_of_different_boards_is_refused_without_a_change(self, tmp_path: Path, changes: dict[str, object]) -> None:
        with Records.open(tmp_path / "b", header(**changes)):
            pass
        before = files_of(filled(tmp_path / "a"))
        for sources, into in ((("a", "b"), "new"), (("b",), "a")):
            with pytest.raises(RecordsError):
                merge([tmp_path / source for source in sources], tmp_path / into)
        assert not (tmp_path / "new").exists()
        assert files_of(tmp_path / "a") == before

    def test_of_a_damaged_folder_changes_nothing(self, tmp_path: Path) -> None:
        before = files_of(filled(tmp_path / "a"))
        path = other(tmp_path / "b") / DATABASE
        path.write_bytes(path.read_bytes().replace(b"[0.0005]", b"[0.0oop]"))
        with pytest.raises(RecordsError, match="damaged"):
            merge([tmp_path / "b"], tmp_path / "a")
        assert files_of(tmp_path / "a") == before

    def test_reads_and_adds_while_a_run_adds(self, tmp_path: Path) -> None:
        with Records.open(filled(tmp_path / "a"), header()) as run:
            assert merge([tmp_path / "a"], tmp_path / "b").added == 5
            assert merge([other(tmp_path / "c")], tmp_path / "a").added == 2
            run.add(trial(9, 1.0))
        assert len(read_records(tmp_path / "a").trials) == 8


class TestLines:
    def test_give_the_same_records_back_and_are_the_same_bytes_for_the_same_records(self, tmp_path: Path) -> None:
        for name in ("a", "c"):
            assert export(other(tmp_path / name), tmp_path / f"{name}.jsonl") == 3
        assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "c.jsonl").read_bytes()
        lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
        assert [line.get("event") or line.get("board") or line["task"] for line in lines] == [
            "rpi4", "smaller", "product", "product", "run started"
        ]  # fmt: skip
        assert import_records(tmp_path / "a.jsonl", tmp_path / "b") == Merged(tmp_path / "b", added=3, known=0)
        assert read_records(tmp_path / "b") == read_records(tmp_path / "a")

    def test_go_to_the_records_of_their_board(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        export(other(tmp_path / "a"), tmp_path / "a.jsonl")
        assert import_records(tmp_path / "a.jsonl").folder == default_folder("rpi4")
        assert len(read_records(tmp_path / "data" / "edgedeploy" / "records" / "rpi4").trials) == 3
        with pytest.raises(OutputError):  # nothing is written to a full disk
            export(tmp_path / "a", Path("/dev/full/a.jsonl"))


Change = Callable[[list[bytes]], list[bytes]]


def replaced(number: int, old: bytes, new: bytes) -> Change:
    def change(lines: list[bytes]) -> list[bytes]:
        assert lines[number].count(old) == 1
        return [*lines[:number], lines[number].replace(old, new), *lines[number + 1 :]]

    return change


HOSTILE: dict[str, Change] = {
    "nothing": lambda lines: [],
    "an empty line": lambda lines: [*lines, b"\n"],
    "a header that is no JSON": lambda lines: [b"{\n", *lines[1:]],
    "a board whose name is a path": replaced(0, b'"rpi4"', b'"../../rpi4"'),
    "another board": replaced(0, b'"rpi4"', b'"rpi3"'),
    "a later version": replaced(0, b'"format":1', b'"format":2'),
    "no header": lambda lines: lines[1:],
    "two headers": lambda lines: [lines[0], *lines],
    "a time below zero": replaced(1, b"[0.0005]", b"[-0.0005]"),
    "a time that is no number": replaced(1, b"[0.0005]", b"[NaN]"),
    "a name that no text has": replaced(1, b'"smaller"', rb'"\ud800"'),
    "an unknown field": replaced(1, b'"number":', b'"extra":1,"number":'),
    "a trial without a candidate": replaced(1, b'"configuration":', b'"scheduled":'),
    "an unknown event": replaced(4, b"run started", b"run over"),
    "a torn last line": lambda lines: [*lines[:-1], lines[-1][:-1]],
    "a damaged last line": lambda lines: [*lines[:-1], lines[-1][:-3] + b"\n"],
    "a line that is too long": lambda lines: [*lines[:-1], lines[-1][:-2] + b" " * (1 << 20) + b"}\n"],
    "a packed archive": lambda lines: [b"\x1f\x8b\x08" + bytes(20)],
    "another kind of file": lambda lines: [b"no records"],
}


@pytest.mark.parametrize("what", HOSTILE)
def test_refuses_a_file_with(what: str, tmp_path: Path) -> None:
    before = files_of(filled(tmp_path / "a"))
    path = tmp_path / "hostile.jsonl"
    export(other(tmp_path / "b"), path)
    path.write_bytes(b"".join(HOSTILE[what](path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(RecordsError):
        import_records(path, tmp_path / "a")
    assert files_of(tmp_path / "a") == before
    assert {entry.name for entry in tmp_path.iterdir()} == {"a", "b", "hostile.jsonl"}
    with pytest.raises(RecordsError, match="no records at"):
        import_records(tmp_path / "none", tmp_path / "a")


class TestPrune:
    def records(self, folder: Path) -> Path:
        """Twenty trials of which every third failed, and two final ones of each of two runs."""
        with Records.open(folder, header()) as records:
            for number in range(20):
                times = [] if number % 3 == 2 else [20.0 - number]
                records.add(trial(number, *times))
            for run, time in (("early", START), ("late", LATER)):
                records.add(trial(0, 20.5, final=True, run=run, time=time))
                records.add(trial(19, 1.5, final=True, run=run, time=time))
            records.add(trial(0, 1.0, workload=LARGER, task="larger"))
            records.note(started(run="late"))
        return folder

    def test_keeps_the_best_the_default_and_the_last_final_ones(self, tmp_path: Path) -> None:
        before = files_of(self.records(tmp_path / "a"))
        assert prune(tmp_path / "a", keep=2, dry_run=True) == Pruned(kept=6, removed=19)
        assert files_of(tmp_path / "a") == before
        assert prune(tmp_path / "a", keep=2) == Pruned(kept=6, removed=19)
        content = read_records(tmp_path / "a")
        kept = [(each.run, each.number) for each in content.trials]
        assert kept == [("first", 0), ("first", 18), ("first", 19), ("late", 0), ("late", 19), ("first", 0)]
        assert content.events == [started(run="late")]
        assert prune(tmp_path / "a", keep=2) == Pruned(kept=6, removed=0)
        assert read_records(tmp_path / "a") == content

    def test_builds_come_out_as_before(self, tmp_path: Path) -> None:
        self.records(tmp_path / "a")
        hashes = []
        for _ in range(2):
            with Records.open(tmp_path / "a") as records:
                bests = [records.best(PRODUCT), records.best(LARGER)]
                hashes.append((records.sha256, records.bests_sha256, bests))
            prune(tmp_path / "a", keep=1)
        assert hashes[0] == hashes[1]

    def test_makes_the_file_smaller_keeps_others_and_leaves_nothing_beside(self, tmp_path: Path) -> None:
        (self.records(tmp_path / "a") / "report.html").write_text("mine")
        with Records.open(tmp_path / "a", header()) as records:
            records.add(trial(40, configuration={"text": "x" * 500_000}))
        assert (tmp_path / "a" / DATABASE).stat().st_size > 500_000
        (tmp_path / "link").symlink_to("a")
        prune(tmp_path / "link", keep=2)
        assert (tmp_path / "a" / DATABASE).stat().st_size < 100_000
        assert files_of(tmp_path / "a").keys() == {DATABASE, "report.html"}
        assert {entry.name for entry in tmp_path.iterdir()} == {"a", "link"}
        assert (tmp_path / "link").is_symlink()

    def test_that_cannot_be_written_changes_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = read_records(self.records(tmp_path / "a"))
        full = Mock(side_effect=sqlite3.OperationalError("database or disk is full"))
        monkeypatch.setattr(module, "_insert", full)
        with pytest.raises(OutputError, match="disk is full"):
            prune(tmp_path / "a", keep=1)
        assert read_records(tmp_path / "a") == before

    def test_of_records_that_a_run_adds_to_loses_nothing_of_the_run(self, tmp_path: Path) -> None:
        with Records.open(self.records(tmp_path / "a"), header()) as run:
            prune(tmp_path / "a", keep=1)
            run.add(trial(30, 0.5))
        assert [each.number for each in read_records(tmp_path / "a").trials] == [0, 19, 0, 19, 0, 30]


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
    return survive(way)


@pytest.mark.parametrize("what", ["new", "lines"])
@pytest.mark.parametrize(("cases", "seed"), [(100, 1), pytest.param(1500, 2, marks=pytest.mark.slow)])
def test_damaged_files_end_in_our_errors(what: str, cases: int, seed: int, sound: Path, tmp_path: Path) -> None:
    generator, worked = np.random.default_rng(seed), 0
    for case in range(cases):
        source = tmp_path / f"{case}"
        (shutil.copytree if (sound / what).is_dir() else shutil.copy)(sound / what, source)
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
        folder = shutil.copytree(sound / "new", tmp_path / str(number))
        try:
            changed(folder, f"UPDATE {table} SET {column} = {value} WHERE rowid = 1")
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
    folder = changed(shutil.copytree(sound / "new", tmp_path / "new"), *statements)
    before = files_of(folder)
    for wanted in (None, header()):
        with pytest.raises(RecordsError):
            Records.open(folder, wanted)
    assert files_of(folder) == before


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
