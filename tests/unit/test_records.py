"""Tuning records: what is written is found again, whatever ends the writer; what is damaged is told."""

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from time import monotonic, process_time
from typing import Any
from unittest.mock import Mock

import pytest
from conftest import Command
from pydantic import ValidationError
from support.commands import generous, output_of, printed, refusal
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
from edgedeploy.records.database import Records, read_records
from edgedeploy.records.events import EVENT, Noted, RunEnded, TaskEnded
from edgedeploy.records.header import DATABASE, default_folder
from edgedeploy.records.trial import Conditions, Trial

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
    ended = RunEnded(run="first", results=[result()], seconds=1.5)
    told = [started(seed=3), TaskEnded(run="first", result=result()), ended]
    with Records.open(tmp_path, header()) as records:
        for event in (Noted(text="hello"), *told):
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
        for given in (None, header()):
            with pytest.raises(RecordsError, match=what):
                Records.open(tmp_path, given)


def test_a_pipe_in_a_files_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / DATABASE)
    for given in (None, header()):
        with pytest.raises(RecordsError, match="not a plain file"):
            Records.open(tmp_path, given)


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
        "from edgedeploy.records.trial import overview; import edgedeploy.records.exchange, edgedeploy.cli.records\n"
        "Records.open(Path(sys.argv[1])); assert not {'tvm', 'numpy'} & sys.modules.keys(), 'heavy'"
    )
    printed(sys.executable, "-c", script, filled(tmp_path))


# A trial, of which some tests make what no run can have measured.
SOUND = trial(3, 2.0, 1.0)


def test_an_event_is_one_line_of_json_and_back() -> None:
    event = RunEnded(run="r", results=[result(name="a\nb")], before_ms=10, after_ms=8, seconds=60)
    line = event.model_dump_json()
    assert "\n" not in line
    assert EVENT.validate_json(line) == event


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
