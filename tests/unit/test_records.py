"""Tuning records: what is written is found again, whatever ends the writer; what is damaged is told."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from time import process_time

import pytest
import tvm_ffi
from edgedeploy.tune.content import RUNS, TRIALS, events_in
from edgedeploy.tune.database import RECORDS, WORKLOADS, trace_of, workload_hash
from patience import generous
from tuning_records import START, TARGET, configuration_in, files_of, filled, header, product, scheduled, trial
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import JSONDatabase

from edgedeploy.errors import OutputError, RecordsError
from edgedeploy.tune.events import Noted, RunEnded, RunStarted, TaskEnded, TaskResult
from edgedeploy.tune.header import HEADER, read_header
from edgedeploy.tune.records import Records

GROWING = (WORKLOADS, RECORDS, TRIALS, RUNS)

STARTED = RunStarted(
    run="first", model="net", board="rpi4", hosts=["a"], tuner="xgb", space="templates", folder="f", tasks=[]
)
RESULT = TaskResult(
    number=0, name="product", workload=workload_hash(product()), weight=1, default_ms=4, best_ms=2, trials=4, failures=1
)
ENDED = RunEnded(run="first", results=[RESULT], seconds=1.5)


@contextmanager
def nearly_full_disk(path: Path, left: int) -> Iterator[None]:
    """No file can grow beyond the size of this one and so many bytes: writing more fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + left, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def replaced(path: Path, old: bytes, new: bytes) -> None:
    """Change a file in one place."""
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))


def database_of(folder: Path) -> JSONDatabase:
    """TVM's own reader."""
    return JSONDatabase(work_dir=str(folder))


def assert_consistent(folder: Path) -> None:
    """Each trial's record is, as TVM reads it, what the trial says."""
    records = [json.loads(line) for line in (folder / RECORDS).read_bytes().splitlines()]
    workloads = [json.loads(line) for line in (folder / WORKLOADS).read_bytes().splitlines()]
    for line in (folder / TRIALS).read_bytes().splitlines():
        entry = json.loads(line)
        if entry["record"] is not None:
            owner, [_, seconds, _, _] = records[entry["record"]]
            assert seconds == entry["seconds"]
            assert format(int(workloads[owner][0]), "016x") == entry["workload"]
    assert len(database_of(folder)) == len(records)


def test_what_was_added_is_read_again(tmp_path: Path) -> None:
    folder = filled(tmp_path / "rpi4")
    with Records.open(folder) as records:
        assert records.header == header()
        assert records.workloads() == [workload_hash(product()), workload_hash(product(32))]
        found = records.trials(workload_hash(product()))
    assert found == [trial(0, 4.0, 4.2), trial(1, 2.0, 2.2), trial(2), trial(3, 3.0, space="metaschedule")]
    assert_consistent(folder)


def test_a_workload_without_trials_has_none(tmp_path: Path) -> None:
    with Records.open(filled(tmp_path)) as records:
        assert records.trials("0" * 16) == []
        assert records.best(product(64)) is None


def test_tvm_reads_the_database(tmp_path: Path) -> None:
    database = database_of(filled(tmp_path))
    assert len(database) == 4
    assert database.has_workload(product())
    best, *_ = database.get_top_k(database.commit_workload(product()), 1)
    assert configuration_in(best.trace) == trial(1, 2.0).configuration
    assert [float(value) for value in best.run_secs] == [0.002, 0.0022]
    assert str(best.target.attrs["mcpu"]) == TARGET["mcpu"]


def test_the_hash_is_the_one_that_tvm_writes(tmp_path: Path) -> None:
    database_of(tmp_path).commit_workload(product())
    [line] = (tmp_path / WORKLOADS).read_text().splitlines()
    assert format(int(json.loads(line)[0]), "016x") == workload_hash(product())


def test_the_hash_is_the_same_in_every_process() -> None:
    script = "from tuning_records import configuration_in, product, workload_hash; print(workload_hash(product()))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    said = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
    assert said.stdout.strip() == workload_hash(product())


def test_a_configuration_is_kept_by_its_trace() -> None:
    configuration = {"tile": [1, 2], "text": 'quotes " and \\ and é', "nothing": None, "deep": {"a": [True]}}
    trace = trace_of(product(), configuration)
    assert configuration_in(trace) == configuration
    assert configuration_in(scheduled(product()).trace) is None
    applied = Schedule(product())
    trace.apply_to_schedule(applied, remove_postproc=False)
    assert configuration_in(applied.trace) == configuration


class TestBest:
    def test_is_the_quickest_success(self, tmp_path: Path) -> None:
        with Records.open(filled(tmp_path)) as records:
            best = records.best(product())
        assert best is not None
        assert best.trial == trial(1, 2.0, 2.2)
        assert best.trace is None

    def test_is_of_the_latest_run_that_measured_in_turns(self, tmp_path: Path) -> None:
        later = START + timedelta(hours=1)
        with Records.open(filled(tmp_path), header()) as records:
            records.add(product(), trial(1, 1.5, final=True, run="late", time=later))
            records.add(product(), trial(0, 1.6, final=True, run="late", time=later))
            records.add(product(), trial(1, 1.0, final=True, run="early"))
            records.add(product(), trial(9, 0.1, run="later still", time=later + timedelta(hours=1)))
            best = records.best(product())
        assert best is not None
        assert best.trial.median_s == 1.5e-3

    def test_of_metaschedules_space_comes_with_its_trace(self, tmp_path: Path) -> None:
        with Records.open(filled(tmp_path), header()) as records:
            records.add(product(), trial(4, 1.0, space="metaschedule"), scheduled(product(), 4).trace)
            best = records.best(product())
        assert best is not None
        assert best.trace is not None
        again = Schedule(product())
        best.trace.apply_to_schedule(again, remove_postproc=False)
        assert tvm_ffi.structural_equal(again.mod, scheduled(product(), 4).mod)

    def test_depends_on_nothing_but_successes(self, tmp_path: Path) -> None:
        with Records.open(tmp_path, header()) as records:
            records.add(product(), trial(0))
            assert records.best(product()) is None
            assert len(records.trials(workload_hash(product()))) == 1


def test_candidates_are_the_successes_of_metaschedules_space(tmp_path: Path) -> None:
    with Records.open(filled(tmp_path)) as records:
        [candidate] = records.candidates(product())
    assert candidate.trial.number == 3
    assert candidate.trace is not None


def test_the_hash_of_what_was_used_depends_on_candidates_and_not_on_times(tmp_path: Path) -> None:
    hashes = []
    for name, number, time in [("a", 1, 1.0), ("b", 1, 2.0), ("c", 2, 1.0)]:
        with Records.open(tmp_path / name, header()) as records:
            records.add(product(), trial(number, time))
            assert records.sha256 is None
            assert records.best(product())
            hashes.append(records.sha256)
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_hash_of_all_bests_is_known_without_asking_and_changes_with_a_better_one(tmp_path: Path) -> None:
    hashes = []
    for added in (trial(5), trial(6, 3.0), trial(7, 1.0)):
        with Records.open(filled(tmp_path) if not hashes else tmp_path, header()) as records:
            records.add(product(), added)
            hashes.append(records.bests_sha256)
    assert hashes[0] == hashes[1] != hashes[2]


def test_how_runs_began_and_ended_is_kept(tmp_path: Path) -> None:
    with Records.open(tmp_path, header()) as records:
        for event in (STARTED, Noted(text="hello"), TaskEnded(result=RESULT), ENDED):
            records.note(event)
    assert events_in(tmp_path) == [STARTED, TaskEnded(result=RESULT), ENDED]


def test_a_trial_of_another_workload_is_refused(tmp_path: Path) -> None:
    with Records.open(tmp_path, header()) as records, pytest.raises(ValueError, match="not of"):
        records.add(product(32), trial(0, 1.0))


def test_a_trial_that_could_not_be_read_again_is_refused(tmp_path: Path) -> None:
    before = files_of(filled(tmp_path))
    with Records.open(tmp_path, header()) as records:
        with pytest.raises(RecordsError, match="too long"):
            records.add(product(), trial(5, 1.0, configuration={"text": "x" * (1 << 18)}))
        assert files_of(tmp_path) == before
        records.add(product(), trial(6, error="x" * (1 << 18) + "the end"))
    with Records.open(tmp_path) as records:
        error = records.trials(workload_hash(product()))[-1].error
    assert error is not None
    assert error.endswith("the end")


def test_what_is_only_read_does_not_change(tmp_path: Path) -> None:
    before = files_of(filled(tmp_path))
    with Records.open(tmp_path) as records, pytest.raises(ValueError, match="opened for reading"):
        records.add(product(), trial(5, 1.0))
    assert files_of(tmp_path) == before


class TestRepair:
    @pytest.mark.parametrize("name", GROWING)
    @pytest.mark.parametrize("lost", [1, 2, 40])
    def test_a_torn_last_line_is_cut_off(self, tmp_path: Path, name: str, lost: int) -> None:
        with Records.open(filled(tmp_path), header()) as records:
            records.note(STARTED)
            records.note(ENDED)
        path = tmp_path / name
        whole = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(path.read_bytes()[:-lost])
        with Records.open(tmp_path) as records:
            assert len(records.trials(workload_hash(product()))) == 4
        with Records.open(tmp_path, header()) as records:
            assert path.read_bytes() == b"".join(whole[:-1])
            records.add(product(32), trial(1, 7.0, module=product(32)))
            assert records.trials(workload_hash(product(32)))[-1].number == 1
        assert_consistent(tmp_path)

    def test_zeros_that_a_power_cut_left_are_cut_off(self, tmp_path: Path) -> None:
        before = files_of(filled(tmp_path))
        for name in (RECORDS, TRIALS):
            with (tmp_path / name).open("ab") as stream:
                stream.write(bytes(100))
        Records.open(tmp_path, header()).close()
        assert files_of(tmp_path) == before

    def test_trials_whose_records_a_power_cut_took_go_with_them(self, tmp_path: Path) -> None:
        filled(tmp_path)
        lines = (tmp_path / RECORDS).read_bytes().splitlines(keepends=True)
        (tmp_path / RECORDS).write_bytes(lines[0])
        with Records.open(tmp_path, header()) as records:
            assert records.trials(workload_hash(product())) == [trial(0, 4.0, 4.2)]
            records.add(product(), trial(1, 1.0))
        assert_consistent(tmp_path)

    def test_a_first_trial_whose_record_a_power_cut_took_goes_with_it(self, tmp_path: Path) -> None:
        with Records.open(tmp_path, header()) as records:
            records.add(product(), trial(0, 1.0))
        (tmp_path / RECORDS).write_bytes(b"")
        with Records.open(tmp_path, header()) as records:
            assert records.workloads() == []

    def test_a_database_that_is_gone_is_not_taken_for_a_power_cut(self, tmp_path: Path) -> None:
        with Records.open(tmp_path, header()) as records:
            for number in range(300):
                records.add(product(), trial(number, 1.0))
        (tmp_path / RECORDS).unlink()
        before = files_of(tmp_path)
        with pytest.raises(RecordsError, match="database that is not there"):
            Records.open(tmp_path, header())
        assert files_of(tmp_path) == before

    @pytest.mark.parametrize("name", [WORKLOADS, RECORDS, TRIALS])
    @pytest.mark.parametrize("line", [b"", b"[", b"{}", b"null", b"[0,1]", b"[" * 200_000, b'["1","?"]'])
    def test_damage_before_the_last_line_is_told_and_changes_nothing(
        self, tmp_path: Path, name: str, line: bytes
    ) -> None:
        path = filled(tmp_path) / name
        whole = path.read_bytes().splitlines()
        path.write_bytes(b"\n".join([line, *whole[1:]]) + b"\n")
        before = files_of(tmp_path)
        with pytest.raises(RecordsError, match=f"{name}:1 is damaged"):
            Records.open(tmp_path, header())
        assert files_of(tmp_path) == before

    def test_a_run_that_is_killed_loses_nothing_that_it_added(self, tmp_path: Path) -> None:
        script = (
            "import sys; from pathlib import Path; from tuning_records import *\n"
            "records = Records.open(Path(sys.argv[1]), header())\n"
            "for number in range(100000):\n"
            "    records.add(product(), trial(number, 1.0)); print(number, flush=True)\n"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", script, str(tmp_path)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            said = [process.stdout.readline() for _ in range(200)]
            with pytest.raises(RecordsError, match="another run adds"):
                Records.open(tmp_path, header())
            with Records.open(tmp_path) as records:
                assert len(records.trials(workload_hash(product()))) >= 200
            process.send_signal(signal.SIGKILL)
            said += process.stdout.readlines()
        with Records.open(tmp_path, header()) as records:
            numbers = [found.number for found in records.trials(workload_hash(product()))]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= len(said)
        assert_consistent(tmp_path)


class TestAFullDisk:
    @pytest.mark.parametrize("left", [0, 10, 300])
    def test_ends_in_an_error_and_changes_nothing(self, tmp_path: Path, left: int) -> None:
        with Records.open(filled(tmp_path), header()) as records:
            before = files_of(tmp_path)
            # The trials are written last, and are the smallest file but one.
            with (
                nearly_full_disk(tmp_path / TRIALS, left),
                pytest.raises(OutputError, match="cannot write"),
            ):
                records.add(product(), trial(5, *[1.0] * 100))
            assert files_of(tmp_path) == before
            records.add(product(), trial(6, 1.0))
            assert records.trials(workload_hash(product()))[-1].number == 6
        assert_consistent(tmp_path)

    def test_does_not_make_records_without_a_header(self, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()
        with nearly_full_disk(tmp_path / "empty", 100), pytest.raises(OutputError):
            Records.open(tmp_path / "new", header())
        assert not (tmp_path / "new" / HEADER).exists()


def test_an_interruption_while_a_trial_is_written_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Records.open(filled(tmp_path), header()) as records:
        before = files_of(tmp_path)
        write = os.write
        calls = iter([write])

        def interrupted(descriptor: int, content: bytes) -> int:
            if (real := next(calls, None)) is None:
                raise KeyboardInterrupt
            return real(descriptor, content)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):  # noqa: PT012
            patch.setattr(os, "write", interrupted)
            records.add(product(), trial(5, 1.0))
        assert files_of(tmp_path) == before
        records.add(product(), trial(6, 1.0))
    assert_consistent(tmp_path)
    assert len(events_in(tmp_path)) == 0


class TestHeader:
    @pytest.mark.parametrize(
        ("changes", "what"),
        [
            ({"board": "rpi3"}, "its board is"),
            ({"target": {**TARGET, "mcpu": "cortex-a53"}}, "its target is"),
            ({"tvm": "0.26.0"}, "its tvm is"),
        ],
    )
    def test_records_of_something_else_are_not_mixed(
        self, tmp_path: Path, changes: dict[str, object], what: str
    ) -> None:
        before = files_of(filled(tmp_path))
        with pytest.raises(RecordsError, match=what):
            Records.open(tmp_path, header(**changes))
        assert files_of(tmp_path) == before

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            (b"", "damaged"),
            (b"{", "damaged"),
            (b"[]", "damaged"),
            (b'{"format": 2}', "another version"),
            (b"{" * 60_000, "damaged"),
            (b" " * 100_000, "too large"),
            (b'{"a": ' + b"[" * 50_000, "damaged"),
        ],
    )
    def test_a_damaged_one_is_told(self, tmp_path: Path, content: bytes, what: str) -> None:
        (filled(tmp_path) / HEADER).write_bytes(content)
        for given in (None, header()):
            with pytest.raises(RecordsError, match=what):
                Records.open(tmp_path, given)

    @pytest.mark.parametrize("board", ["", "../up", ".hidden", "a/b", "a\nb", "\x1b[2J", "x" * 300])
    def test_a_board_has_a_name_that_can_be_a_folders(self, tmp_path: Path, board: str) -> None:
        fields = json.loads((filled(tmp_path) / HEADER).read_text())
        (tmp_path / HEADER).write_text(json.dumps({**fields, "board": board}))
        with pytest.raises(RecordsError, match="damaged"):
            read_header(tmp_path)

    def test_a_folder_without_one_holds_no_records(self, tmp_path: Path) -> None:
        for folder in (tmp_path, tmp_path / "none"):
            with pytest.raises(RecordsError, match="holds no tuning records"):
                Records.open(folder)

    def test_a_database_without_one_is_not_added_to(self, tmp_path: Path) -> None:
        (filled(tmp_path) / HEADER).unlink()
        with pytest.raises(RecordsError, match="unknown board"):
            Records.open(tmp_path, header())

    @pytest.mark.parametrize("name", [HEADER, TRIALS])
    def test_a_pipe_in_a_files_place_is_not_waited_for(self, tmp_path: Path, name: str) -> None:
        (filled(tmp_path) / name).unlink()
        os.mkfifo(tmp_path / name)
        with pytest.raises(RecordsError, match="not a plain file"):
            Records.open(tmp_path)


def test_thousands_of_trials_are_read_in_a_second_of_the_processors_time(tmp_path: Path) -> None:
    line = (filled(tmp_path) / TRIALS).read_bytes().splitlines(keepends=True)[0]
    (tmp_path / TRIALS).write_bytes(line * 5000)
    started = process_time()
    with Records.open(tmp_path) as records:
        assert records.best(product())
    assert process_time() - started < generous(1)


def test_looking_at_records_does_not_import_tvm(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from edgedeploy.tune.records import Records\n"
        "from edgedeploy.tune.overview import overview; import edgedeploy.tune.exchange, edgedeploy.cli.records\n"
        "Records.open(Path(sys.argv[1])); assert not {'tvm', 'numpy'} & sys.modules.keys(), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", script, str(filled(tmp_path))], check=True)


def test_a_trace_that_would_crash_tvm_is_an_error(tmp_path: Path) -> None:
    tiled = Schedule(product())
    tiled.sample_perfect_tile(tiled.get_loops(tiled.get_sblock("C"))[0], 2, 64, [2, 8])
    with Records.open(filled(tmp_path), header()) as records:
        records.add(product(), trial(4, 1.0, space="metaschedule"), tiled.trace)
    replaced(tmp_path / RECORDS, b"[2,8]", b"[2,0]")  # TVM divides by it
    with Records.open(tmp_path) as records:
        for _ in range(2):  # the second time in a new process
            with pytest.raises(RecordsError, match="crashes TVM"):
                records.best(product())


def test_the_process_that_tries_traces_ends_with_the_records(tmp_path: Path) -> None:
    with Records.open(filled(tmp_path), header()) as records:
        records.add(product(), trial(4, 1.0, space="metaschedule"), scheduled(product()).trace)
    before = children()
    with Records.open(tmp_path) as records:
        assert records.best(product())
        assert len(children() - before) == 1
    assert children() == before
    forgotten = Records.open(tmp_path)
    assert forgotten.best(product())
    del forgotten
    assert children() == before


def children() -> set[int]:
    """The processes that this one started and that have not ended."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {int(number) for path in tasks for number in path.read_text().split()}


def test_a_trace_of_another_function_is_an_error(tmp_path: Path) -> None:
    with Records.open(filled(tmp_path), header()) as records:
        records.add(product(), trial(4, 1.0, space="metaschedule"), scheduled(product()).trace)
        records.add(product(), trial(5, 0.5, space="metaschedule"), scheduled(product(), 4).trace)
    path = tmp_path / RECORDS
    path.write_bytes(path.read_bytes().replace(b'["C","main"]', b'["D","main"]'))
    with Records.open(tmp_path) as records, pytest.raises(RecordsError, match="not of its function"):
        records.best(product())


def test_a_record_that_is_not_of_its_trial_is_an_error(tmp_path: Path) -> None:
    with Records.open(filled(tmp_path), header()) as records:
        records.add(product(), trial(4, 1.0, space="metaschedule"), scheduled(product()).trace)
    path = tmp_path / RECORDS
    replaced(path, b"[0.001]", b"[0.002]")
    with Records.open(tmp_path) as records, pytest.raises(RecordsError, match="not of its trial"):
        records.best(product())


def test_tvm_reads_the_modules(tmp_path: Path) -> None:
    modules = [record.workload.mod for record in database_of(filled(tmp_path)).get_all_tuning_records()]
    found = [sum(tvm_ffi.structural_equal(module, product(size)) for module in modules) for size in (16, 32)]
    assert found == [3, 1]
