"""`edgedeploy records`, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Command
from edgedeploy.tune.content import TRIALS
from edgedeploy.tune.database import workload_hash
from tuning_records import START, files_of, filled, header, product, scheduled, trial
from typer.testing import CliRunner

from edgedeploy.cli.records import app, complete_records
from edgedeploy.tune.events import RunStarted
from edgedeploy.tune.header import default_folder
from edgedeploy.tune.records import Records


@pytest.fixture
def rpi4(command: Command) -> Path:
    """Records of a Raspberry Pi 4 in their default folder."""
    folder = filled(default_folder("rpi4"))
    with Records.open(folder, header()) as records:
        records.note(
            RunStarted(
                run="first",
                model="mobilenet",
                board="rpi4",
                hosts=["pi@a", "pi@b"],
                tuner="xgb",
                space="templates",
                folder=str(folder),
                tasks=[],
            )
        )
    return folder


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


def test_list_shows_each_board(command: Command, rpi4: Path) -> None:
    filled(default_folder("rpi4b"))
    code, out, _ = command("records", "list")
    assert code == 0
    assert "aarch64-unknown-linux-gnu" in out
    assert [row[:1] + row[3:7] for row in rows(out)[1:]] == [["rpi4", "2", "5", "1", "1.95x"]] * 2
    [entry, _] = json.loads(command("records", "list", "--json")[1])
    assert (entry["board"], entry["workloads"], entry["trials"], entry["failures"]) == ("rpi4", 2, 5, 1)
    assert entry["best_speed_up"] == pytest.approx(4.1 / 2.1)
    assert entry["bytes"] == sum(len(content) for content in files_of(rpi4).values())


def test_list_without_records_says_how_to_make_some(command: Command) -> None:
    code, out, _ = command("records", "list")
    assert code == 0
    assert "edgedeploy tune" in out
    assert json.loads(command("records", "list", "--json")[1]) == []


def test_list_leaves_out_what_is_damaged_and_says_so(command: Command, rpi4: Path) -> None:
    (filled(default_folder("broken")) / TRIALS).write_text("{\n{\n")
    code, out, err = command("records", "list", "--json")
    assert code == 0
    assert [entry["board"] for entry in json.loads(out)] == ["rpi4"]
    assert "broken is left out" in err


def test_show_tells_whose_they_are_and_each_task(command: Command, rpi4: Path) -> None:
    code, out, _ = command("records", "show", "rpi4")
    assert code == 0
    assert "begun 2026-01-02 03:04 UTC with TVM 0.27" in out
    assert "mcpu=cortex-a72" in out
    assert "run first: mobilenet on pi@a, pi@b, 0 tasks, xgb, templates" in out
    assert rows(out)[-2:] == [
        ["product", workload_hash(product()), "4", "1", "4.10", "2.10", "1.95x"],
        ["larger", workload_hash(product(32)), "1", "0", "8.00", "8.00", "1.00x"],
    ]
    shown = json.loads(command("records", "show", str(rpi4), "--json")[1])
    assert shown["board"] == "rpi4"
    assert shown["runs"][0]["hosts"] == ["pi@a", "pi@b"]
    assert [task["task"] for task in shown["tasks"]] == ["product", "larger"]


@pytest.mark.parametrize("task", ["product", "start of its hash"])
def test_show_tells_each_trial_of_a_task(command: Command, rpi4: Path, task: str) -> None:
    task = workload_hash(product())[:6] if task != "product" else task
    code, out, _ = command("records", "show", "rpi4", "--task", task)
    assert code == 0
    assert [row[0] for row in rows(out)] == ["trial", "0", "1", "2", "3"]
    assert "build: no code" in out
    assert '"tile": [1, 4]' in out
    assert "metaschedule, trial 3" in out
    trials = json.loads(command("records", "show", "rpi4", "--task", task, "--json")[1])
    assert [trial["record"] for trial in trials] == [0, 1, None, 2]


def test_show_of_an_unknown_task_or_board_is_an_error(command: Command, rpi4: Path) -> None:
    assert command("records", "show", "rpi4", "--task", "nothing")[0] == 4
    assert command("records", "show", "rpi4", "--task", "")[0] == 4
    code, _, err = command("records", "show", "rpi5")
    assert code == 4
    assert "there are some of rpi4" in err
    code, _, err = command("records", "show", ".")
    assert code == 20
    assert "holds no tuning records" in err


def test_best_shows_what_builds_use(command: Command, rpi4: Path) -> None:
    with Records.open(rpi4, header()) as records:
        records.add(product(32), trial(1, 1.0, space="metaschedule", module=product(32)), scheduled(product(32)).trace)
    code, out, _ = command("records", "best", "rpi4")
    assert code == 0
    assert '{"order": ' in out
    assert '"tile": [1, 4]}' in out
    assert "metaschedule, trial 1" in out
    first, second = json.loads(command("records", "best", "rpi4", "--json")[1])
    assert first["configuration"] == trial(1).configuration
    assert second["space"] == "metaschedule"


def test_names_in_records_do_not_reach_the_terminal_as_they_are(command: Command, rpi4: Path) -> None:
    with Records.open(rpi4, header()) as records:
        records.add(product(8), trial(0, 1.0, module=product(8), task="\x1b[2J[red]evil[/red]\n\u202e", host="\x1b]0;"))
    for options in (["show", "rpi4"], ["best", "rpi4"], ["show", "rpi4", "--task", workload_hash(product(8))]):
        code, out, _ = command("records", *options)
        assert code == 0
        assert not {"\x1b", "\u202e"} & set(out)
    assert "[red]evil[/red]" in command("records", "show", "rpi4")[1]


def test_records_travel_from_one_machine_to_another(
    command: Command, rpi4: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = command("records", "export", "rpi4", tmp_path / "pi.tar.gz")
    assert code == 0
    assert "pi.tar.gz: 5 trials" in out
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other machine"))
    for added, known in ((5, 0), (0, 5)):
        code, out, _ = command("records", "import", tmp_path / "pi.tar.gz")
        assert code == 0
        assert f"{added} trials added, {known} known" in out
    assert files_of(default_folder("rpi4")) == files_of(rpi4)
    code, out, _ = command("records", "merge", str(rpi4), "rpi4", "--into", "./both")
    assert code == 0
    assert "both: 5 trials added, 5 known" in out


def test_an_archive_goes_where_it_is_told(command: Command, rpi4: Path, tmp_path: Path) -> None:
    command("records", "export", "rpi4", tmp_path / "pi.tar.gz")
    assert command("records", "import", tmp_path / "pi.tar.gz", "--into", "mine")[0] == 0
    assert len(files_of(Path("mine"))) == 5


def test_import_of_a_metaschedule_database_needs_a_board(command: Command, rpi4: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in ("database_workload.json", "database_tuning_record.json"):
        (work / name).write_bytes((rpi4 / name).read_bytes())
    code, _, err = command("records", "import", work)
    assert code == 7
    assert "--board" in err
    code, out, _ = command("records", "import", work, "--board", "rpi3")
    assert code == 0
    assert "records/rpi3: 4 trials added" in out
    code, out, _ = command("records", "import", work, "--board", "local")
    assert code == 0
    assert "0 trials added, 0 known; 4 of other machines left out" in out


def test_hostile_archives_are_refused_with_their_own_exit_code(command: Command, rpi4: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.tar.gz").write_bytes(b"\x1f\x8b")
    before = files_of(rpi4)
    code, _, err = command("records", "import", tmp_path / "bad.tar.gz")
    assert code == 20
    assert "no archive of tuning records" in err
    assert files_of(rpi4) == before


def test_prune_can_be_tried_first(command: Command, rpi4: Path) -> None:
    before = files_of(rpi4)
    code, out, _ = command("records", "prune", "rpi4", "--keep", 1, "--dry-run")
    assert code == 0
    assert "2 trials would go, 3 stay" in out
    assert files_of(rpi4) == before
    code, out, _ = command("records", "prune", "rpi4", "--keep", 1)
    assert "2 trials went, 3 stay" in out
    with Records.open(rpi4) as records:
        assert records.trials(workload_hash(product())) == [trial(0, 4.0, 4.2), trial(1, 2.0, 2.2)]


def test_records_that_a_run_adds_to_can_be_read_and_not_pruned(command: Command, rpi4: Path) -> None:
    with Records.open(rpi4, header()) as records:
        records.add(product(), trial(9, 1.0, time=START))
        assert "1" in command("records", "best", "rpi4")[1]
        code, _, err = command("records", "prune", "rpi4")
    assert code == 20
    assert "another run adds to" in err


def test_completion_offers_boards_that_have_records(command: Command, rpi4: Path) -> None:
    assert complete_records("rp") == ["rpi4"]
    assert complete_records("x") == []


def test_help_names_every_command() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert all(name in shown for name in ("list", "show", "best", "merge", "export", "import", "prune"))
