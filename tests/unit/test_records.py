"""Tuning records: what is written is found again, whatever ends the writer; what is damaged is told."""

import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from time import monotonic, process_time
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from conftest import Command
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support.commands import generous, output_of, printed, refusal
from support.fuzzing import damaged, examples, peak_of, survive
from support.tuning_records import (
    LARGER,
    PRODUCT,
    SMALLER,
    START,
    TARGET,
    TRIALS,
    changed,
    content_of,
    files_of,
    filled,
    header,
    result,
    started,
    trial,
)

from edgedeploy.cli.records import complete_records
from edgedeploy.errors import OutputError, RecordsError
from edgedeploy.records import database as module
from edgedeploy.records import schema
from edgedeploy.records.database import Records, read_records
from edgedeploy.records.exchange import Merged, Pruned, export, import_records, merge, prune
from edgedeploy.records.lines import LONGEST_LINE, read_lines
from edgedeploy.records.schema import DATABASE, Conditions, Header, Trial, default_folder

# Adds trials, says the number of each when it is recorded, and opens the folder anew every twenty.
ADDING = """
import sys
from pathlib import Path
from support.tuning_records import Records, header, trial

for first in range(0, int(sys.argv[3]), 20):
    with Records.open(Path(sys.argv[1]), header()) as records:
        for number in range(first, first + 20):
            records.add(trial(number, 1.0, run=sys.argv[2]))
            print(number, flush=True)
"""


def adding(folder: Path, run: str, count: int = 100_000) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ADDING, str(folder), run, str(count)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@contextmanager
def nearly_full_disk(path: Path, left: int) -> Iterator[None]:
    """No file can grow beyond the size of this one and so many bytes: writing more fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + left, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_was_added_is_read_again(tmp_path: Path) -> None:
    folder = filled(tmp_path / "rpi4")
    with Records.open(folder) as records:
        assert records.header == header()
        assert records.trials(PRODUCT) == TRIALS[:4]
        assert records.trials("0" * 16) == []
        assert records.best(PRODUCT) == TRIALS[1], "the fastest success"
        assert records.best("0" * 16) is None
    assert read_records(folder).trials == TRIALS


def test_a_database_at_rest_is_one_file_that_reading_does_not_change(tmp_path: Path) -> None:
    before = files_of(filled(tmp_path))
    assert before.keys() == {DATABASE}
    with Records.open(tmp_path) as records, pytest.raises(ValueError, match="opened for reading"):
        records.add(trial(5, 1.0))
    assert files_of(tmp_path) == before


def test_the_best_is_of_the_latest_run_that_measured_in_turns_and_no_failure(tmp_path: Path) -> None:
    with Records.open(tmp_path, header()) as records:
        records.add(trial(0))
        assert records.best(PRODUCT) is None
        assert len(records.trials(PRODUCT)) == 1
    later = START + timedelta(hours=1)
    with Records.open(filled(tmp_path), header()) as records:
        records.add(trial(1, 1.5, final=True, run="late", time=later))
        records.add(trial(0, 1.6, final=True, run="late", time=later))
        records.add(trial(1, 1.0, final=True, run="early"))
        records.add(trial(9, 0.1, run="later still", time=later + timedelta(hours=1)))
        assert records.best(PRODUCT).median_s == 1.5e-3


def test_the_hash_of_what_was_used_depends_on_candidates_and_not_on_times(tmp_path: Path) -> None:
    hashes = []
    for name, number, time in [("a", 1, 1.0), ("b", 1, 2.0), ("c", 2, 1.0)]:
        with Records.open(tmp_path / name, header()) as records:
            records.add(trial(number, time))
            assert records.sha256 is None
            assert records.best(PRODUCT)
            hashes.append(records.sha256)
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_hash_of_all_bests_is_known_without_asking_and_changes_with_a_better_one(tmp_path: Path) -> None:
    hashes = []
    for added in (trial(5), trial(6, 3.0), trial(7, 1.0)):
        with Records.open(filled(tmp_path) if not hashes else tmp_path, header()) as records:
            records.add(added)
            hashes.append(records.bests_sha256)
    assert hashes[0] == hashes[1] != hashes[2]
    with Records.open(tmp_path / "other order", header()) as records:
        for each in [trial(7, 1.0), *reversed(TRIALS)]:
            records.add(each)
        assert records.bests_sha256 == hashes[2], "it follows from the trials, not from how a file holds them"


def test_how_runs_began_and_ended_is_kept(tmp_path: Path) -> None:
    ended = schema.RunEnded(run="first", results=[result()], seconds=1.5)
    told = [started(seed=3), schema.TaskEnded(run="first", result=result()), ended]
    with Records.open(tmp_path, header()) as records:
        for event in (schema.Noted(text="hello"), *told):
            records.note(event)
    assert read_records(tmp_path).events == told


def test_a_trial_that_could_not_be_read_again_is_refused(tmp_path: Path) -> None:
    with Records.open(filled(tmp_path), header()) as records:
        with pytest.raises(RecordsError, match="too long"):
            records.add(trial(5, 1.0, configuration={"text": "x" * (1 << 20)}))
        records.add(trial(6, error="x" * (1 << 20) + "the end"))
    *before, last = read_records(tmp_path).trials
    assert before == TRIALS
    assert last.error.endswith("the end")


class TestWhatEndsAWriter:
    def test_a_run_that_is_killed_loses_nothing_that_it_added(self, tmp_path: Path) -> None:
        with adding(tmp_path, "killed") as process:
            said = [process.stdout.readline() for _ in range(200)]
            began = monotonic()
            assert len(read_records(tmp_path).trials) >= 200, "who reads does not wait for who writes"
            assert monotonic() - began < generous(5)
            process.send_signal(signal.SIGKILL)
            said += process.stdout.readlines()
        numbers = [each.number for each in read_records(tmp_path).trials]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= len(said)
        with Records.open(tmp_path, header()) as records:
            records.add(trial(0, 1.0, run="next"))
        assert len(read_records(tmp_path).trials) == len(numbers) + 1
        assert files_of(tmp_path).keys() == {DATABASE}

    def test_an_interruption_leaves_no_half_of_a_change(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with Records.open(filled(tmp_path), header()) as records:
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):  # noqa: PT012
                patch.setattr(module, "_insert", Mock(side_effect=KeyboardInterrupt))
                records.thin_out(lambda trials: [])  # which deletes first
            assert read_records(tmp_path).trials == TRIALS
            records.add(trial(6, 1.0))
        assert read_records(tmp_path).trials == [*TRIALS, trial(6, 1.0)]

    def test_what_was_killed_before_it_held_anything_is_begun_again(self, tmp_path: Path) -> None:
        for folder in (tmp_path, tmp_path / "none"):
            with pytest.raises(RecordsError, match="holds no tuning records"):
                Records.open(folder)
        (tmp_path / DATABASE).touch()
        with pytest.raises(RecordsError, match="holds no tuning records"):
            Records.open(tmp_path)
        assert read_records(filled(tmp_path)).trials == TRIALS


def test_several_may_add_at_once_and_lose_nothing(tmp_path: Path) -> None:
    count = 60
    processes = [adding(tmp_path / "records", str(number), count) for number in range(3)]
    assert [process.communicate()[0].count("\n") for process in processes] == [count] * 3
    assert [process.returncode for process in processes] == [0] * 3
    found = sorted((each.run, each.number) for each in read_records(tmp_path / "records").trials)
    assert found == [(str(run), number) for run in range(3) for number in range(count)]


@pytest.mark.parametrize("left", [0, 10, 300, 5000])
def test_a_full_disk_ends_in_an_error_and_changes_nothing(tmp_path: Path, left: int) -> None:
    with Records.open(filled(tmp_path), header()) as records:
        records.add(trial(5, 1.0))
        with nearly_full_disk(tmp_path / f"{DATABASE}-wal", left), pytest.raises(OutputError, match="cannot write"):
            records.add(trial(6, *[1.0] * 2000))
        assert read_records(tmp_path).trials == [*TRIALS, trial(5, 1.0)]
        records.add(trial(7, 1.0))
    assert read_records(tmp_path).trials == [*TRIALS, trial(5, 1.0), trial(7, 1.0)]


def test_where_nothing_can_be_made_no_half_of_a_database_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (Path("/proc/edgedeploy"), tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match="cannot write"):
            Records.open(folder, header())
    with nearly_full_disk(tmp_path / "file", 100), pytest.raises(OutputError):
        Records.open(tmp_path / "new", header())
    assert read_records(filled(tmp_path / "new")).trials == TRIALS


def test_waiting_for_a_locked_database_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_READING_S", 0.1)
    monkeypatch.setattr(module, "_WRITING_S", 0.1)
    with closing(sqlite3.connect(filled(tmp_path) / DATABASE, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RecordsError, match="locked"):
            Records.open(tmp_path)
        with pytest.raises(RecordsError, match="locked"):
            Records.open(tmp_path, header())
        connection.execute("ROLLBACK")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN IMMEDIATE")
        assert read_records(tmp_path).trials == TRIALS
        with pytest.raises(OutputError, match="locked"):
            Records.open(tmp_path, header())


class TestHeader:
    @pytest.mark.parametrize(
        ("changes", "what"),
        [
            ({"board": "rpi3"}, "its board is"),
            ({"target": {**TARGET, "mcpu": "cortex-a53"}}, "its target is"),
            ({"tvm": "0.26.0"}, "its tvm is"),
        ],
    )
    def test_records_of_another_target_stay_apart(self, tmp_path: Path, changes: dict[str, object], what: str) -> None:
        before = files_of(filled(tmp_path))
        with pytest.raises(RecordsError, match=what):
            Records.open(tmp_path, header(**changes))
        assert files_of(tmp_path) == before

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            ("", "damaged"),
            ("{", "damaged"),
            ("[]", "damaged"),
            (json.dumps({**header().model_dump(mode="json"), "format": 3}), "another version"),
            ("{" * 60_000, "damaged"),
            (" " * (2 << 20), "too long"),
            ('{"a": ' + "[" * 50_000, "damaged"),
            *(
                (json.dumps({**header().model_dump(mode="json"), "board": board}), "board: must")
                for board in ("", "../up", ".hidden", "a/b", "a\nb", "\x1b[2J", "x" * 300)
            ),
        ],
    )
    def test_a_damaged_one_is_told(self, tmp_path: Path, content: str, what: str) -> None:
        literal = content.replace("'", "''")
        changed(filled(tmp_path), f"UPDATE header SET content = '{literal}'")
        for expected in (None, header()):
            with pytest.raises(RecordsError, match=what):
                Records.open(tmp_path, expected)


def test_a_pipe_in_a_files_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / DATABASE)
    for expected in (None, header()):
        with pytest.raises(RecordsError, match="not a plain file"):
            Records.open(tmp_path, expected)


def test_thousands_of_trials_are_read_in_a_second_of_the_processors_time(tmp_path: Path) -> None:
    copies = "INSERT INTO trials WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "
    changed(filled(tmp_path), f"{copies} SELECT trials.* FROM n, trials")
    began = process_time()
    with Records.open(tmp_path) as records:
        assert records.best(PRODUCT)
    assert process_time() - began < generous(1)


def test_looking_at_records_does_not_import_tvm(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from edgedeploy.records.database import Records\n"
        "from edgedeploy.records.schema import overview; import edgedeploy.records.exchange, edgedeploy.cli.records\n"
        "Records.open(Path(sys.argv[1])); assert not {'tvm', 'numpy'} & sys.modules.keys(), 'heavy'"
    )
    printed(sys.executable, "-c", script, filled(tmp_path))


# A trial, of which some tests make what no run can have measured.
SOUND = trial(3, 2.0, 1.0)


def test_an_event_is_one_line_of_json_and_back() -> None:
    event = schema.RunEnded(run="r", results=[result(name="a\nb")], before_ms=10, after_ms=8, seconds=60)
    line = event.model_dump_json()
    assert "\n" not in line
    assert schema.EVENT.validate_json(line) == event


def test_a_trial_took_the_median_of_its_measurements_and_the_speed_up_is_of_the_best_over_the_default() -> None:
    assert result(default_ms=3, best_ms=2).speed_up == 1.5
    assert result(default_ms=None).speed_up is None
    assert SOUND.median_s == 1.5e-3
    assert SOUND.model_copy(update={"seconds": []}).median_s is None


@pytest.mark.parametrize(
    "change",
    [
        {"number": -1},
        {"number": 10**400},
        {"seconds": [float("nan")]},
        {"seconds": [float("inf")]},
        {"seconds": [-1e-3]},
        {"conditions": {"temperature_c": float("inf")}},
        {"conditions": {"frequency_mhz": -1}},
        {"name": "unknown"},
    ],
    ids=str,
)
def test_what_no_run_can_have_measured_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Trial.model_validate({**SOUND.model_dump(), **change})


def test_a_time_without_a_zone_is_one_in_utc_and_a_board_may_be_below_zero() -> None:
    assert Trial.model_validate({**SOUND.model_dump(), "time": SOUND.time.replace(tzinfo=None).isoformat()}) == SOUND
    assert Conditions(temperature_c=-20).temperature_c == -20


# `edgedeploy records`, as a user calls it.


@pytest.fixture
def rpi4(command: Command) -> Path:
    folder = filled(default_folder("rpi4"))
    with Records.open(folder, header()) as records:
        records.note(started(model="mobilenet", hosts=["pi@a", "pi@b"], seed=3))
    return folder


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


def test_list_shows_each_board_but_what_is_damaged(command: Command, rpi4: Path) -> None:
    filled(default_folder("rpi4b"))
    out = output_of(command, "records", "list")
    assert "aarch64-unknown-linux-gnu" in out
    assert [row[:1] + row[3:7] for row in rows(out)[1:]] == [["rpi4", "2", "5", "1", "1.95x"]] * 2
    [entry, _] = json.loads(command("records", "list", "--json")[1])
    assert (entry["board"], entry["workloads"], entry["trials"], entry["failures"]) == ("rpi4", 2, 5, 1)
    assert entry["best_speed_up"] == pytest.approx(4.1 / 2.1)
    assert entry["bytes"] == sum(len(content) for content in files_of(rpi4).values())
    (default_folder("rpi4b") / DATABASE).write_text("{\n{\n")
    code, out, err = command("records", "list", "--json")
    assert code == 0
    assert [entry["board"] for entry in json.loads(out)] == ["rpi4"]
    assert "rpi4b is left out" in err


def test_list_without_records_says_how_to_make_some(command: Command) -> None:
    assert "edgedeploy tune" in output_of(command, "records", "list")
    assert json.loads(command("records", "list", "--json")[1]) == []


def test_show_tells_whose_they_are_and_each_task(command: Command, rpi4: Path) -> None:
    out = output_of(command, "records", "show", "rpi4")
    assert "begun 2026-01-02 03:04 UTC with TVM 0.27" in out
    assert "mcpu=cortex-a72" in out
    assert "run first: mobilenet on pi@a, pi@b, 0 tasks, xgb, seed 3" in out
    assert rows(out)[-2:] == [
        ["product", PRODUCT, "4", "1", "4.10", "2.10", "1.95x"],
        ["larger", LARGER, "1", "0", "8.00", "8.00", "1.00x"],
    ]
    shown = json.loads(command("records", "show", str(rpi4), "--json")[1])
    assert shown["board"] == "rpi4"
    assert shown["runs"][0]["hosts"] == ["pi@a", "pi@b"]
    assert [task["task"] for task in shown["tasks"]] == ["product", "larger"]


@pytest.mark.parametrize("task", ["product", PRODUCT[:6]], ids=["by its name", "by the start of its hash"])
def test_show_tells_each_trial_of_a_task(command: Command, rpi4: Path, task: str) -> None:
    out = output_of(command, "records", "show", "rpi4", "--task", task)
    assert [row[0] for row in rows(out)] == ["trial", "0", "1", "2", "3"]
    assert "build: no code" in out
    assert '"tile": [1, 4]' in out
    trials = json.loads(command("records", "show", "rpi4", "--task", task, "--json")[1])
    assert [trial["failure"] for trial in trials] == [None, None, "build", None]


def test_show_of_an_unknown_task_or_board_is_an_error(command: Command, rpi4: Path) -> None:
    assert command("records", "show", "rpi4", "--task", "nothing")[0] == 4
    assert command("records", "show", "rpi4", "--task", "")[0] == 4
    assert "records exist for rpi4" in refusal(command, 4, "records", "show", "rpi5")
    assert "holds no tuning records" in refusal(command, 20, "records", "show", ".")


def test_best_shows_what_builds_use(command: Command, rpi4: Path) -> None:
    out = output_of(command, "records", "best", "rpi4")
    assert '{"order": ' in out
    assert '"tile": [1, 4]}' in out
    first, second = json.loads(command("records", "best", "rpi4", "--json")[1])
    assert [first["configuration"], second["configuration"]] == [trial(1).configuration, trial(0).configuration]


def test_names_in_records_do_not_reach_the_terminal_as_they_are(command: Command, rpi4: Path) -> None:
    with Records.open(rpi4, header()) as records:
        records.add(trial(0, 1.0, workload=SMALLER, task="\x1b[2J[red]evil[/red]\n\u202e", host="\x1b]0;"))
    for options in (["show", "rpi4"], ["best", "rpi4"], ["show", "rpi4", "--task", SMALLER]):
        assert not {"\x1b", "\u202e"} & set(output_of(command, "records", *options))
    assert "[red]evil[/red]" in command("records", "show", "rpi4")[1]


def test_records_can_be_moved(command: Command, rpi4: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = output_of(command, "records", "export", "rpi4", tmp_path / "pi.jsonl")
    assert "pi.jsonl: 5 trials" in out
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other machine"))
    for added, known in ((5, 0), (0, 5)):
        out = output_of(command, "records", "import", tmp_path / "pi.jsonl")
        assert f"{added} trials added, {known} known" in out
    assert command("records", "import", tmp_path / "pi.jsonl", "--into", "mine")[0] == 0
    assert content_of(default_folder("rpi4")) == content_of(Path("mine")) == content_of(rpi4)
    out = output_of(command, "records", "merge", str(rpi4), "rpi4", "--into", "./both")
    assert "both: 5 trials added, 5 known" in out


def test_what_is_done_with_records_is_told_as_json(command: Command, rpi4: Path, tmp_path: Path) -> None:
    def told(*words: object) -> Any:
        return json.loads(output_of(command, "records", *words, "--json"))

    file = tmp_path / "pi.jsonl"
    assert told("export", "rpi4", file) == {"file": str(file), "trials": 5, "bytes": file.stat().st_size}
    assert told("import", file, "--into", "mine") == {"folder": "mine", "added": 5, "known": 0}
    assert told("merge", "mine", "rpi4", "--into", "./both") == {"folder": "both", "added": 5, "known": 5}
    wanted = {"folder": str(rpi4), "removed": 2, "kept": 3, "dry_run": True}
    assert told("prune", "rpi4", "--keep", 1, "--dry-run") == wanted


@pytest.mark.parametrize("content", [b"\x1f\x8b", b"{}\n"])
def test_hostile_files_have_their_code(command: Command, rpi4: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad").write_bytes(content)
    before = files_of(rpi4)
    assert "damaged" in refusal(command, 20, "records", "import", tmp_path / "bad")
    assert files_of(rpi4) == before


def test_prune_can_be_tried_first(command: Command, rpi4: Path) -> None:
    before = files_of(rpi4)
    out = output_of(command, "records", "prune", "rpi4", "--keep", 1, "--dry-run")
    assert "2 trials would be removed, 3 kept" in out
    assert files_of(rpi4) == before
    _, out, _ = command("records", "prune", "rpi4", "--keep", 1)
    assert "2 trials removed, 3 kept" in out
    with Records.open(rpi4) as records:
        assert records.trials(PRODUCT) == [trial(0, 4.0, 4.2), trial(1, 2.0, 2.2)]


def test_records_that_a_run_adds_to_can_be_read_and_pruned(command: Command, rpi4: Path) -> None:
    with Records.open(rpi4, header()) as records:
        records.add(trial(9, 1.0, time=START))
        assert "1.00" in command("records", "best", "rpi4")[1]
        assert "3 trials removed, 3 kept" in output_of(command, "records", "prune", "rpi4", "--keep", 1)


def test_completion_offers_boards_that_have_records(command: Command, rpi4: Path) -> None:
    assert complete_records("rp") == ["rpi4"]
    assert complete_records("x") == []


# Records on the move: nothing is lost, nothing is there twice, and hostile files change nothing.

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
        records.note(schema.RunEnded(run="first", results=[], seconds=1.0))
    export(root / "new", root / "lines")
    return root


def use(source: Path, elsewhere: Path, case: int) -> bool:
    """Do one of the things that are done with records; only our errors may come of it. Returns whether it worked."""

    def look() -> None:
        with Records.open(source) as records:
            records.best(LARGER)
        schema.overview(read_records(source).trials)

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
FIELDS = {*Trial.model_fields, *Header.model_fields, *schema.RunEnded.model_fields, "space", "more"}


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
