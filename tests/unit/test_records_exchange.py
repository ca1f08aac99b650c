"""Tuning records on the move: nothing is lost, nothing is there twice, and hostile archives change nothing."""

from __future__ import annotations

import json
import tarfile
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import tvm
import tvm_ffi
from archives import add
from edgedeploy.tune.content import RUNS, TRIALS, Content, events_in, trials_in
from edgedeploy.tune.database import RECORDS, WORKLOADS, trace_of, workload_hash
from tuning_records import START, TARGET, configuration_in, files_of, filled, header, product, scheduled, trial
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

from edgedeploy.errors import InputError, OutputError, RecordsError
from edgedeploy.tune import exchange
from edgedeploy.tune.events import RunStarted
from edgedeploy.tune.exchange import Merged, Pruned, export, import_records, merge, prune
from edgedeploy.tune.header import HEADER, default_folder
from edgedeploy.tune.records import Records

LATER = START + timedelta(hours=1)


def other(folder: Path) -> Path:
    """Records of another machine's runs: a trial that `filled` has, and two of its own, one of a new task."""
    with Records.open(folder, header(created=LATER)) as records:
        records.add(product(8), trial(0, 0.5, module=product(8), task="smaller"))
        records.add(product(), trial(1, 2.0, 2.2))
        records.add(product(), trial(7, 1.0, space="metaschedule", run="second"), scheduled(product(), 4).trace)
        records.note(started("second"))
    return folder


def started(run: str) -> RunStarted:
    return RunStarted(
        run=run, model="net", board="rpi4", hosts=["a"], tuner="xgb", space="templates", folder="f", tasks=[]
    )


def numbers(folder: Path) -> list[tuple[str, int]]:
    """The trials that are there, whatever their order."""
    return sorted((entry.trial.task, entry.trial.number) for entry in trials_in(folder))


class TestMerge:
    def test_adds_what_is_new_and_counts_each_trial_once(self, tmp_path: Path) -> None:
        folders = [filled(tmp_path / "a"), other(tmp_path / "b")]
        assert merge(folders, tmp_path / "all") == Merged(tmp_path / "all", added=7, known=1)
        assert numbers(tmp_path / "all") == [
            ("larger", 0),
            *[("product", number) for number in (0, 1, 2, 3, 7)],
            ("smaller", 0),
        ]
        assert merge(folders, tmp_path / "all") == Merged(tmp_path / "all", added=0, known=8)
        assert events_in(tmp_path / "all") == [started("second")]

    def test_may_be_done_in_any_order(self, tmp_path: Path) -> None:
        first, second = filled(tmp_path / "a"), other(tmp_path / "b")
        merge([first, second], tmp_path / "ab")
        merge([second, first], tmp_path / "ba")
        assert numbers(tmp_path / "ab") == numbers(tmp_path / "ba")

    def test_keeps_each_record_with_its_workload(self, tmp_path: Path) -> None:
        filled(tmp_path / "a")
        merge([other(tmp_path / "b")], tmp_path / "a")
        with Records.open(tmp_path / "a") as records:
            best = records.best(product())
            assert records.best(product(8)) is not None
        assert best is not None
        assert best.trace is not None
        again = Schedule(product())
        best.trace.apply_to_schedule(again, remove_postproc=False)
        assert tvm_ffi.structural_equal(again.mod, scheduled(product(), 4).mod)
        database = JSONDatabase(work_dir=str(tmp_path / "a"))
        assert len(database) == 6
        assert all(database.has_workload(product(size)) for size in (8, 16, 32))

    @pytest.mark.parametrize("changes", [{"board": "rpi3"}, {"target": {"kind": "llvm"}}, {"tvm": "0.1"}])
    def test_of_different_boards_is_refused_before_anything_changes(
        self, tmp_path: Path, changes: dict[str, object]
    ) -> None:
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
        path = other(tmp_path / "b") / RECORDS
        path.write_bytes(path.read_bytes().replace(b"0.0005", b"oops"))
        with pytest.raises(RecordsError, match="damaged"):
            merge([tmp_path / "b"], tmp_path / "a")
        assert files_of(tmp_path / "a") == before

    def test_waits_for_no_run(self, tmp_path: Path) -> None:
        with Records.open(filled(tmp_path / "a"), header()), pytest.raises(RecordsError, match="another run"):
            merge([other(tmp_path / "b")], tmp_path / "a")

    def test_of_a_folder_that_a_run_adds_to_takes_what_is_there(self, tmp_path: Path) -> None:
        with Records.open(filled(tmp_path / "a"), header()):
            assert merge([tmp_path / "a"], tmp_path / "b").added == 5


class TestArchive:
    def test_gives_the_same_records_back(self, tmp_path: Path) -> None:
        assert export(other(tmp_path / "a"), tmp_path / "a.tar.gz") == 3
        assert import_records(tmp_path / "a.tar.gz", tmp_path / "b") == Merged(tmp_path / "b", added=3, known=0)
        assert files_of(tmp_path / "b") == files_of(tmp_path / "a")

    def test_has_the_same_bytes_for_the_same_records(self, tmp_path: Path) -> None:
        export(other(tmp_path / "a"), tmp_path / "first.tar.gz")
        (tmp_path / "elsewhere").mkdir()
        export(other(tmp_path / "elsewhere" / "b"), tmp_path / "second.tar.gz")
        assert (tmp_path / "first.tar.gz").read_bytes() == (tmp_path / "second.tar.gz").read_bytes()

    def test_goes_to_the_records_of_its_board(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        export(other(tmp_path / "a"), tmp_path / "a.tar.gz")
        assert import_records(tmp_path / "a.tar.gz").folder == default_folder("rpi4")
        assert len(trials_in(tmp_path / "data" / "edgedeploy" / "records" / "rpi4")) == 3

    def test_without_a_torn_line(self, tmp_path: Path) -> None:
        with (other(tmp_path / "a") / TRIALS).open("ab") as stream:
            stream.write(b'{"time": "2026')
        export(tmp_path / "a", tmp_path / "a.tar.gz")
        with tarfile.open(tmp_path / "a.tar.gz") as archive:
            member = archive.extractfile(TRIALS)
            assert member
            assert member.read().count(b"\n") == 3

    def test_cannot_be_written_into_a_full_disk(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError):
            export(other(tmp_path / "a"), Path("/dev/full/a.tar.gz"))


Pack = Callable[[tarfile.TarFile, dict[str, bytes]], None]


def add_all(archive: tarfile.TarFile, files: dict[str, bytes], **changes: bytes) -> None:
    for name, content in files.items():
        add(archive, name, changes.get(name.split(".", 1)[0], content))


def then(name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "") -> Pack:
    """All that belongs there, and one thing more."""

    def pack(archive: tarfile.TarFile, files: dict[str, bytes]) -> None:
        add_all(archive, files)
        add(archive, name, b"" if kind != tarfile.REGTYPE else content, kind, link)

    return pack


HOSTILE: dict[str, Pack] = {
    "an absolute name": then("/etc/passwd"),
    "a name that climbs out": then("../escape"),
    "a name that climbs out to a file of records": then("../" + TRIALS),
    "a file twice": then(TRIALS),
    "a file twice by another name": then("./" + TRIALS),
    "another file": then("notes.txt"),
    "a symbolic link": then(RUNS, kind=tarfile.SYMTYPE, link="/etc/passwd"),
    "a hard link": then(RUNS, kind=tarfile.LNKTYPE, link=TRIALS),
    "a device": then("sda", kind=tarfile.BLKTYPE),
    "a pipe": then("pipe", kind=tarfile.FIFOTYPE),
    "a folder": then("folder", kind=tarfile.DIRTYPE),
    "nothing": lambda archive, files: None,
    "a header that is no JSON": lambda archive, files: add_all(archive, files, header=b"{"),
    "a board whose name is a path": lambda archive, files: add_all(
        archive, files, header=files[HEADER].replace(b'"rpi4"', b'"../../rpi4"')
    ),
    "another board": lambda archive, files: add_all(archive, files, header=files[HEADER].replace(b'"rpi4"', b'"rpi3"')),
    "a record of no workload": lambda archive, files: add_all(archive, files, database_workload=b""),
    "a trial of no record": lambda archive, files: add_all(
        archive, files, trials=files[TRIALS].replace(b'"record": 0', b'"record": 1234567')
    ),
    "a record of another workload": lambda archive, files: add_all(
        archive, files, trials=files[TRIALS].replace(b'"record": 0', b'"record": 1')
    ),
    "a time below zero": lambda archive, files: add_all(
        archive, files, trials=files[TRIALS].replace(b"[0.0005]", b"[-0.0005]")
    ),
    "a time that is no number": lambda archive, files: add_all(
        archive, files, trials=files[TRIALS].replace(b"[0.0005]", b"[NaN]")
    ),
    "a torn last line": lambda archive, files: add_all(archive, files, trials=files[TRIALS][:-1]),
    "a damaged last line": lambda archive, files: add_all(archive, files, runs=files[RUNS][:-3] + b"\n"),
    "a trial of an unknown space": lambda archive, files: add_all(
        archive, files, trials=files[TRIALS].replace(b'"templates"', b'"elsewhere"', 1)
    ),
}

BOMBS: dict[str, Pack] = {
    "a long name": lambda archive, files: add(archive, "x", bytes(64 << 20), kind=tarfile.GNUTYPE_LONGNAME),
    "an extended header": lambda archive, files: add(archive, "pax", bytes(64 << 20), kind=tarfile.XHDTYPE),
    "a long line": lambda archive, files: add_all(archive, files, trials=b"[" * (64 << 20)),
    "many lines": lambda archive, files: add_all(archive, files, trials=files[TRIALS] * 40_000),
}


def packed(path: Path, pack: Pack, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        pack(archive, files)
    return path


@pytest.mark.parametrize("what", HOSTILE)
def test_refuses_an_archive_with(what: str, tmp_path: Path) -> None:
    before = files_of(filled(tmp_path / "a"))
    path = packed(tmp_path / "hostile.tar.gz", HOSTILE[what], files_of(other(tmp_path / "b")))
    (tmp_path / "b").rename(tmp_path / "c")
    with pytest.raises(RecordsError):
        import_records(path, tmp_path / "a")
    assert files_of(tmp_path / "a") == before
    assert {entry.name for entry in tmp_path.iterdir()} == {"a", "c", "hostile.tar.gz"}


@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_is_refused_before_it_is_unpacked(what: str, tmp_path: Path) -> None:
    path = packed(tmp_path / "bomb.tar.gz", BOMBS[what], files_of(other(tmp_path / "b")))
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(RecordsError):
            import_records(path, tmp_path / "a")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08" + bytes(20)])
def test_a_file_that_is_no_archive_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(RecordsError, match="no archive of tuning records"):
        import_records(tmp_path / "file", tmp_path / "a")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="there are no records"):
        import_records(tmp_path / "none", tmp_path / "a")


def foreign(folder: Path) -> Path:
    """A database as TVM itself writes it: three successes, of which one is of x86, a failure, and one of ours."""
    folder.mkdir()
    database = JSONDatabase(work_dir=str(folder))
    workload = database.commit_workload(product())
    pi, intel = tvm.target.Target(TARGET), tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu"})
    for factor, seconds, target in ((4, 2e-3, pi), (8, 1e-3, pi), (2, 1e-5, intel), (16, 1e10, pi)):
        trace = scheduled(product(), factor).trace
        database.commit_tuning_record(TuningRecord(trace, workload, [seconds], target))
    ours = trace_of(product(32), {"tile": [1, 2]})
    database.commit_tuning_record(TuningRecord(ours, database.commit_workload(product(32)), [1e-3], pi))
    return folder


class TestMetaSchedulesDatabase:
    def test_is_imported_for_the_board_that_is_named(self, tmp_path: Path) -> None:
        merged = import_records(foreign(tmp_path / "work"), tmp_path / "a", header())
        assert merged == Merged(tmp_path / "a", added=4, known=0, unfit=1)
        with Records.open(tmp_path / "a") as records:
            best = records.best(product())
            trials = records.trials(workload_hash(product()))
            assert records.best(product(32)) is not None
        assert best is not None
        assert best.trace is not None
        assert best.trial.seconds == [1e-3]
        again = Schedule(product())
        best.trace.apply_to_schedule(again, remove_postproc=False)
        assert tvm_ffi.structural_equal(again.mod, scheduled(product(), 8).mod)
        assert [(found.number, found.failure) for found in trials] == [(1, None), (2, None), (3, "error")]

    def test_is_imported_once(self, tmp_path: Path) -> None:
        foreign(tmp_path / "work")
        for added in (4, 0):
            assert import_records(tmp_path / "work", tmp_path / "a", header()).added == added

    def test_in_an_archive_is_imported_too(self, tmp_path: Path) -> None:
        files = files_of(foreign(tmp_path / "work"))
        path = packed(tmp_path / "work.tar.gz", add_all, {f"./{name}": content for name, content in files.items()})
        assert import_records(path, tmp_path / "a", header()).added == 4

    def test_keeps_configurations_of_our_own(self, tmp_path: Path) -> None:
        import_records(foreign(tmp_path / "work"), tmp_path / "a", header())
        with Records.open(tmp_path / "a") as records:
            best = records.best(product(32))
        assert best is not None
        assert best.trial.space == "templates"
        assert best.trial.configuration == {"tile": [1, 2]}

    def test_needs_to_be_told_its_board(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="does not say of which board"):
            import_records(foreign(tmp_path / "work"), tmp_path / "a")


class TestPrune:
    def records(self, folder: Path) -> Path:
        """Twenty trials of which every third failed, and two final ones of each of two runs."""
        with Records.open(folder, header()) as records:
            for number in range(20):
                times = [] if number % 3 == 2 else [20.0 - number]
                records.add(product(), trial(number, *times))
            for run, time in (("early", START), ("late", LATER)):
                records.add(product(), trial(0, 20.5, final=True, run=run, time=time))
                records.add(product(), trial(19, 1.5, final=True, run=run, time=time))
            records.add(product(32), trial(0, 1.0, module=product(32), task="larger"))
            records.note(started("late"))
        return folder

    def test_keeps_the_best_the_default_and_the_last_final_ones(self, tmp_path: Path) -> None:
        assert prune(self.records(tmp_path / "a"), keep=2) == Pruned(kept=6, removed=19)
        kept = [(entry.trial.run, entry.trial.number) for entry in trials_in(tmp_path / "a")]
        assert kept == [("first", 0), ("first", 18), ("first", 19), ("late", 0), ("late", 19), ("first", 0)]
        assert events_in(tmp_path / "a") == [started("late")]

    def test_builds_come_out_as_before(self, tmp_path: Path) -> None:
        self.records(tmp_path / "a")
        hashes = []
        for _ in range(2):
            with Records.open(tmp_path / "a") as records:
                bests = [records.best(product()), records.best(product(32))]
                hashes.append((records.sha256, [best and best.trial for best in bests]))
            prune(tmp_path / "a", keep=1)
        assert hashes[0] == hashes[1]

    def test_leaves_a_database_that_tvm_reads(self, tmp_path: Path) -> None:
        prune(self.records(tmp_path / "a"), keep=1)
        database = JSONDatabase(work_dir=str(tmp_path / "a"))
        content = Content.read(tmp_path / "a")
        assert len(database) == len(content.records) == 5
        for entry in content.entries:
            assert entry.record is not None
            record = content.records[entry.record]
            assert record.seconds() == entry.trial.seconds
            assert content.workloads[record.owner].hash == entry.trial.workload
        configurations = {json.dumps(configuration_in(each.trace)) for each in database.get_all_tuning_records()}
        assert len(configurations) == 2

    def test_a_second_time_removes_nothing(self, tmp_path: Path) -> None:
        prune(self.records(tmp_path / "a"), keep=3)
        before = files_of(tmp_path / "a")
        assert prune(tmp_path / "a", keep=3).removed == 0
        assert files_of(tmp_path / "a") == before

    def test_can_be_tried_without_a_change(self, tmp_path: Path) -> None:
        before = files_of(self.records(tmp_path / "a"))
        assert prune(tmp_path / "a", keep=2, dry_run=True) == Pruned(kept=6, removed=19)
        assert files_of(tmp_path / "a") == before

    def test_keeps_other_files_and_leaves_nothing_beside(self, tmp_path: Path) -> None:
        (self.records(tmp_path / "a") / "report.html").write_text("mine")
        (tmp_path / "link").symlink_to("a")
        prune(tmp_path / "link", keep=2)
        assert (tmp_path / "a" / "report.html").read_text() == "mine"
        assert {entry.name for entry in tmp_path.iterdir()} == {"a", "link"}
        assert (tmp_path / "link").is_symlink()

    def test_waits_for_no_run(self, tmp_path: Path) -> None:
        with Records.open(self.records(tmp_path / "a"), header()), pytest.raises(RecordsError, match="another run"):
            prune(tmp_path / "a", keep=1)

    def test_that_cannot_be_written_changes_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = files_of(self.records(tmp_path / "a"))

        def refuse(first: Path, second: Path) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(exchange, "exchange", refuse)
        with pytest.raises(OutputError, match="No space left"):
            prune(tmp_path / "a", keep=1)
        assert files_of(tmp_path / "a") == before
        assert {entry.name for entry in tmp_path.iterdir()} == {"a"}

    def test_more_can_be_added_afterwards(self, tmp_path: Path) -> None:
        prune(self.records(tmp_path / "a"), keep=1)
        with Records.open(tmp_path / "a", header()) as records:
            records.add(product(), trial(30, 0.5))
        assert Content.read(tmp_path / "a").entries[-1].record == 5
        assert (tmp_path / "a" / WORKLOADS).read_bytes().count(b"\n") == 2
