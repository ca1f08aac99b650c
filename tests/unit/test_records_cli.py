"""`edgedeploy records`, as a user calls it."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Command
from support.commands import output_of, refusal
from support.tuning_records import LARGER, PRODUCT, SMALLER, START, content_of, files_of, filled, header, started, trial

from edgedeploy.cli.records import complete_records
from edgedeploy.records.database import Records
from edgedeploy.records.header import DATABASE, default_folder


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
