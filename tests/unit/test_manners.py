"""Options that every command takes, wherever they stand; help, versions, and errors for scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import ROOT, Command

from edgedeploy import __version__
from edgedeploy.base.text import printable
from edgedeploy.cli import app
from edgedeploy.cli.console import ConsoleProgress, quiet_if
from edgedeploy.cli.global_options import GlobalOptions, InvalidColourError, set_global_options, split_global_options


@pytest.fixture(autouse=True)
def _as_before() -> None:
    set_global_options(GlobalOptions())


def of(line: str) -> tuple[GlobalOptions, str]:
    chosen, words = split_global_options(line.split(), typer.main.get_command(app))
    return chosen, " ".join(words)


@pytest.mark.parametrize(
    ("line", "chosen", "left"),
    [
        ("run digits", GlobalOptions(), "run digits"),
        ("-v run digits", GlobalOptions(verbosity=1), "run digits"),
        ("run digits -vv", GlobalOptions(verbosity=2), "run digits"),
        ("run -q digits -o out.npz", GlobalOptions(verbosity=-1), "run digits -o out.npz"),
        ("--no-progress --color never run digits", GlobalOptions(progress=False, colour="never"), "run digits"),
        ("run digits --color=always", GlobalOptions(colour="always"), "run digits"),
        ("--json run digits", GlobalOptions(json=True), "run --json digits"),
        ("--json releases list", GlobalOptions(json=True), "releases list --json"),
        ("tune digits --json", GlobalOptions(json=True), "tune --json digits"),
        ("models --json", GlobalOptions(json=True), "models --json"),
        ("service stop digits --json", GlobalOptions(json=True), "service stop digits"),
        # Not theirs.
        ("run -- -v", GlobalOptions(), "run -- -v"),
        ("build digits --cross-compiler-options -v", GlobalOptions(), "build digits --cross-compiler-options -v"),
        ("tune digits --cross-compiler-options -v", GlobalOptions(), "tune digits --cross-compiler-options -v"),
        ("-v virtual ssh rpi4 ls --json -v", GlobalOptions(verbosity=1), "virtual ssh rpi4 ls --json -v"),
        ("--version", GlobalOptions(), "--version"),
    ],
)
def test_they_are_taken_from_anywhere_and_nothing_else_is(line: str, chosen: GlobalOptions, left: str) -> None:
    assert of(line) == (chosen, left)


def test_colours_that_there_are_not_are_refused(command: Command) -> None:
    with pytest.raises(InvalidColourError):
        of("run digits --color")
    code, _, err = command("run", "digits", "--color", "pink")
    assert (code, "--color takes auto, always, never, not 'pink'" in err) == (2, True)


def test_help_is_a_command_too(command: Command) -> None:
    assert command("help", "releases", "list")[1] == command("releases", "list", "--help")[1]
    assert command("help")[1] == command("--help")[1]
    assert command("help", "nothing")[0] == 2


def test_versions_are_a_command_too(command: Command) -> None:
    assert command("version")[1].splitlines()[0] == f"edgedeploy {__version__}"
    assert json.loads(command("version", "--json")[1])["edgedeploy"] == __version__


@pytest.mark.parametrize("line", ["--json run no-such-network", "run no-such-network --json"])
def test_errors_are_json_where_results_are(line: str, command: Command) -> None:
    code, out, err = command(*line.split())
    error = json.loads(out)["error"]
    assert code == error["code"] == 4
    assert error["what"] == "unknown model 'no-such-network'"
    assert error["try"] == ["list them all with `edgedeploy models`"]
    assert "error: unknown model" in err


# What they print is a manual, another program's, or goes on until it is ended.
WITHOUT_JSON = {
    "help",
    *("service logs", "service start", "service stop", "service uninstall"),
    *("virtual ssh", "rpc tracker", "rpc server"),
}


def test_results_can_be_had_as_json() -> None:
    def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
        for name, each in getattr(command, "commands", {}).items():
            yield from commands(each, (*path, name))
        if not hasattr(command, "commands"):
            yield " ".join(path), command

    found = dict(commands(typer.main.get_command(app)))
    without = {name for name, each in found.items() if not any("--json" in option.opts for option in each.params)}
    assert without == WITHOUT_JSON


def test_a_new_board_and_a_toolchain_file_are_told_as_json(command: Command) -> None:
    told = json.loads(command("boards", "new", "mine.yaml", "--from", "rpi4", "--json")[1])
    assert told == {"name": "mine.yaml", "file": "mine.yaml", "from": "rpi4", "used": "mine.yaml"}
    told = json.loads(command("toolchains", "cmake", "local", "-o", "local.cmake", "--json")[1])
    assert told == {"board": "local", "file": "local.cmake", "text": Path("local.cmake").read_text()}


def test_wrong_usage_is_json_too(command: Command) -> None:
    code, out, err = command("run", "digits", "--repeat", "0", "--json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (2, 2)
    assert "--repeat" in error["what"]
    assert error["try"] == ["edgedeploy help run"]
    assert "Usage" in err


def test_exit_codes_stay_what_they_are_with_json(command: Command, tmp_path: Path) -> None:
    (tmp_path / "broken.tar.gz").write_bytes(b"nothing")
    for arguments in (["package", "verify", tmp_path / "broken.tar.gz"], ["version"], ["no-such-command"]):
        assert command(*arguments, "--json")[0] == command(*arguments)[0]


def test_faults_of_ours_are_json_too(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*result: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("edgedeploy.cli.print_result", fail)
    code, out, _ = command("version", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (70, 70)


def test_quiet_means_results_and_errors_alone(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    for chosen, lines in ((GlobalOptions(verbosity=-1), []), (GlobalOptions(progress=False), ["decided"])):
        set_global_options(chosen)
        progress = quiet_if(False)
        progress.note("decided")
        with progress.stage("work"), progress.steps("steps", 2) as step, progress.transfer("send", 10) as sent:
            step()
            sent(10)
        assert capsys.readouterr().err.splitlines() == lines
    assert command("-q", "run", "no-such-network")[2].startswith("error: ")


def test_colours_are_as_they_are_asked_for(command: Command) -> None:
    assert "\x1b[" not in command("run", "no-such-network")[2]
    assert "\x1b[1;31merror:" in command("run", "no-such-network", "--color", "always")[2]
    assert "\x1b[" not in command("run", "no-such-network", "--color", "never")[2]


def test_long_work_prints_a_line_now_and_then_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress = ConsoleProgress(every_s=0.02)

    def lines_until(wanted: str) -> None:
        said = ""
        while wanted not in said:
            said += capsys.readouterr().err

    with progress.stage("link"):
        lines_until("  link: 0 s\n")
    with progress.steps("compile", 3) as step:
        step()
        lines_until("  compile: 1 of 3, about 0 s left, 0 s\n")
    with progress.transfer("send", 200) as advance:
        advance(50)
        lines_until("  send: 25%, 0 s\n")


def test_file_names_are_said_in_a_locale_without_their_letters(tmp_path: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}
    ask = [sys.executable, "-m", "edgedeploy", "run", "./zahlé".encode()]
    done = subprocess.run(ask, env=environment, capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 5
    assert b"there is no file ./zahl\\xe9" in done.stderr
    assert b"udc" not in done.stderr
    assert printable("zahl\udcc3\udca9") == "zahlé"
    assert printable("zahl\udce9") == "zahl\\xe9"
    assert printable("zahl\ud800") == "zahl\\ud800"
    assert printable("\udc1b".replace("\udc1b", "\udc9b")) == "\\x9b"


@pytest.mark.compiles
def test_a_folder_that_is_made_and_another_suffix_are_said(command: Command) -> None:
    _, _, err = command("build", "digits", "-o", "made")
    assert "creating the folder made for the packages" in err
    assert "creating the folder" not in command("build", "digits", "-o", "made")[2]
    assert "out.txt is a .npz file" in command("run", "digits", "-o", "out.txt")[2]
    assert "is a .npz file" not in command("run", "digits", "-o", "out.npz")[2]


@pytest.mark.compiles
def test_verbose_says_what_is_called(command: Command, caplog: pytest.LogCaptureFixture) -> None:
    command("build", "digits", "--force", "--no-check")
    assert "calling " not in caplog.text
    command("-v", "build", "digits", "--force", "--no-check")
    assert "calling " in caplog.text
