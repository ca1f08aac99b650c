"""Tuning records on the move: nothing is lost, nothing is there twice, and hostile files change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from support.tuning_records import LARGER, PRODUCT, SMALLER, START, content_of, files_of, filled, header, started, trial

from edgedeploy.errors import OutputError, RecordsError
from edgedeploy.records import database as module
from edgedeploy.records.database import Records, read_records
from edgedeploy.records.exchange import Merged, Pruned, export, import_records, merge, prune
from edgedeploy.records.header import DATABASE, default_folder

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
    def test_adds_what_is_new_and_counts_each_trial_once(self, tmp_path: Path) -> None:
        folders = [filled(tmp_path / "a"), other(tmp_path / "b")]
        assert merge(folders, tmp_path / "all") == Merged(tmp_path / "all", added=7, known=1)
        assert sorted((each.task, each.number) for each in read_records(tmp_path / "all").trials) == [
            ("larger", 0),
            *[("product", number) for number in (0, 1, 2, 3, 7)],
            ("smaller", 0),
        ]
        assert merge(folders, tmp_path / "all") == Merged(tmp_path / "all", added=0, known=8)
        assert read_records(tmp_path / "all").events == [started(run="second")]

    def test_may_be_done_in_any_order(self, tmp_path: Path) -> None:
        first, second = filled(tmp_path / "a"), other(tmp_path / "b")
        merge([first, second], tmp_path / "ab")
        merge([second, first], tmp_path / "ba")
        assert content_of(tmp_path / "ab").trials == content_of(tmp_path / "ba").trials

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
    def test_give_the_same_records_back(self, tmp_path: Path) -> None:
        assert export(other(tmp_path / "a"), tmp_path / "a.jsonl") == 3
        lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
        assert [line.get("event") or line.get("board") or line["task"] for line in lines] == [
            "rpi4", "smaller", "product", "product", "run started"
        ]  # fmt: skip
        assert import_records(tmp_path / "a.jsonl", tmp_path / "b") == Merged(tmp_path / "b", added=3, known=0)
        assert read_records(tmp_path / "b") == read_records(tmp_path / "a")

    def test_are_the_same_bytes_for_the_same_records(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            export(other(tmp_path / name), tmp_path / f"{name}.jsonl")
        assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()

    def test_go_to_the_records_of_their_board(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        export(other(tmp_path / "a"), tmp_path / "a.jsonl")
        assert import_records(tmp_path / "a.jsonl").folder == default_folder("rpi4")
        assert len(read_records(tmp_path / "data" / "edgedeploy" / "records" / "rpi4").trials) == 3

    def test_cannot_be_written_into_a_full_disk(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError):
            export(other(tmp_path / "a"), Path("/dev/full/a.jsonl"))


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


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="there are no records"):
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
        assert prune(self.records(tmp_path / "a"), keep=2) == Pruned(kept=6, removed=19)
        content = read_records(tmp_path / "a")
        kept = [(each.run, each.number) for each in content.trials]
        assert kept == [("first", 0), ("first", 18), ("first", 19), ("late", 0), ("late", 19), ("first", 0)]
        assert content.events == [started(run="late")]

    def test_builds_come_out_as_before(self, tmp_path: Path) -> None:
        self.records(tmp_path / "a")
        hashes = []
        for _ in range(2):
            with Records.open(tmp_path / "a") as records:
                bests = [records.best(PRODUCT), records.best(LARGER)]
                hashes.append((records.sha256, records.bests_sha256, bests))
            prune(tmp_path / "a", keep=1)
        assert hashes[0] == hashes[1]

    def test_makes_the_file_smaller(self, tmp_path: Path) -> None:
        with Records.open(self.records(tmp_path / "a"), header()) as records:
            records.add(trial(40, configuration={"text": "x" * 500_000}))
        assert (tmp_path / "a" / DATABASE).stat().st_size > 500_000
        prune(tmp_path / "a", keep=2)
        assert (tmp_path / "a" / DATABASE).stat().st_size < 100_000

    def test_a_second_time_removes_nothing(self, tmp_path: Path) -> None:
        prune(self.records(tmp_path / "a"), keep=3)
        before = read_records(tmp_path / "a")
        assert prune(tmp_path / "a", keep=3).removed == 0
        assert read_records(tmp_path / "a") == before

    def test_can_be_tried_without_a_change(self, tmp_path: Path) -> None:
        before = files_of(self.records(tmp_path / "a"))
        assert prune(tmp_path / "a", keep=2, dry_run=True) == Pruned(kept=6, removed=19)
        assert files_of(tmp_path / "a") == before

    def test_keeps_other_files_and_leaves_nothing_beside(self, tmp_path: Path) -> None:
        (self.records(tmp_path / "a") / "report.html").write_text("mine")
        (tmp_path / "link").symlink_to("a")
        prune(tmp_path / "link", keep=2)
        assert files_of(tmp_path / "a").keys() == {DATABASE, "report.html"}
        assert {entry.name for entry in tmp_path.iterdir()} == {"a", "link"}
        assert (tmp_path / "link").is_symlink()

    def test_that_cannot_be_written_changes_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = read_records(self.records(tmp_path / "a"))

        def refuse(*arguments: object) -> None:
            raise module.sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(module, "_insert", refuse)
        with pytest.raises(OutputError, match="disk is full"):
            prune(tmp_path / "a", keep=1)
        assert read_records(tmp_path / "a") == before

    def test_of_records_that_a_run_adds_to_loses_nothing_of_the_run(self, tmp_path: Path) -> None:
        with Records.open(self.records(tmp_path / "a"), header()) as run:
            prune(tmp_path / "a", keep=1)
            run.add(trial(30, 0.5))
        assert [each.number for each in read_records(tmp_path / "a").trials] == [0, 19, 0, 19, 0, 30]
