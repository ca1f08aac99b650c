"""The command line as a whole: it answers quickly, completes, and reports its version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from conftest import Command
from support.patience import generous

from edgedeploy import __version__, cli
from edgedeploy.cli import app
from edgedeploy.cli.console import print_error
from edgedeploy.errors import KernelBuildError

# typer itself brings pydantic where it is installed.
HEAVY = {"tvm", "numpy", "cv2", "onnx", "onnxruntime", "requests", "yaml", "rich"}


@pytest.mark.parametrize("arguments", [["--help"], ["build", "--help"], ["demo", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys, edgedeploy.cli\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "try: edgedeploy.cli.main()\n"
        "except SystemExit: pass\n"
        "print('modules:', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(done.stderr.rpartition("modules:")[2].split())
    assert "edgedeploy.cli.build" in modules
    assert not modules & HEAVY


def test_version(command: Command) -> None:
    assert command("--version") == (0, f"edgedeploy {__version__}\n", "")


def test_no_command_prints_help_that_begins_with_a_first_session(command: Command) -> None:
    code, out, err = command()
    assert (code, err) == (0, "")
    assert out == command("--help")[1]
    assert max(map(len, out.splitlines())) <= 80
    session = out.partition("A first session:\n")[2].partition("\n\n")[0].splitlines()
    assert len(session) == 4
    for line in session:
        program, *words = line.strip().partition("  ")[0].split()
        assert program == "edgedeploy"
        code, out, err = command(*words, "--help")
        assert (code, f"Usage: edgedeploy {words[0]}" in out) == (0, True), err


def test_the_help_lists_every_command_in_a_section_before_the_options(command: Command) -> None:
    out = command("--help")[1].partition("\nNetworks:\n")[2]
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"\n  {name} " in f"\n{out}"
    assert [line for line in out.splitlines() if line.endswith(":")] == [
        "Boards:",
        "Speed:",
        "Files:",
        "About:",
        "Options:",
    ]
    assert [line for line in out.splitlines() if line.endswith("...")] == []


def test_the_tree_of_commands_is_made_once(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    make = typer.main.get_command
    monkeypatch.setattr(typer.main, "get_command", lambda app: made.append(app) or make(app))
    cli._tree.cache_clear()
    command("help", "build")
    assert len(made) == 1


def with_host(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """The commands that take `--host`, as their words."""
    for name, each in getattr(command, "commands", {}).items():
        yield from with_host(each, *path, name)
    if any("--host" in parameter.opts for parameter in command.params):
        yield path


def test_a_second_host_is_served_or_refused_and_never_taken_silently(command: Command) -> None:
    several = {("push",), ("tune", "models"), ("rpc", "server")}
    commands = set(with_host(typer.main.get_command(app)))
    assert several < commands
    assert len(commands) > 10
    for path in commands - several:
        code, _, err = command(*path, "--host", "a", "--host", "b")
        assert (code, "this command takes one, and 2 were given" in err) == (2, True), path


def test_help_says_in_words_what_numbers_are_taken() -> None:
    def below(command: Any) -> Iterator[Any]:
        yield command
        for each in getattr(command, "commands", {}).values():
            yield from below(each)

    records = {}
    for each in below(cli._tree()):
        for parameter in each.params:
            names, said = parameter.get_help_record(typer.Context(each)) or ("", "")
            records[names.split()[0]] = said
            assert not re.search("x<=|x>=", said), (each.name, names)
    assert "0 takes any. From 0 to 65535." in records["--port"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["biuld"], "No such command 'biuld'"),
        (["build", "--no-such-option"], "No such option: --no-such-option"),
        (["run"], "Missing argument"),
        (["run", "x", "--repeat", "0"], "Invalid value for '--repeat' / '-r': must be at least 1"),
        (["run", "x", "--repeat", "two"], "Invalid value for '--repeat' / '-r': must be a whole number"),
        (["build", "x", "--epsilon", "inf"], "Invalid value for '--epsilon': must be at most 1"),
        (["build", "x", "--epsilon", "x"], "Invalid value for '--epsilon': must be a number"),
        (["run", "x", "--number", str(10**22)], "Invalid value for '--number': must be at most 2147483647"),
        (["demo", "digits", "--log", "x"], "Invalid value for '--log': 'x' is not one of 'tengine', 'named'"),
    ],
)
def test_wrong_usage_exits_with_two(command: Command, arguments: list[str], said: str) -> None:
    code, _, err = command(*arguments)
    assert (code, "Usage" in err, said in err) == (2, True, True), err
    assert f'"code": {code}' in command("--json", *arguments)[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("edgedeploy bui", "build"),
        ("edgedeploy boards show rpi-", "rpi-armhf"),
        ("edgedeploy build retinaf", "retinaface"),
        ("edgedeploy build --board rpi4 --toolchain gnu-a", "gnu-aarch64"),
        ("edgedeploy demo retin", "retinaface"),
    ],
)
def test_tab_completes(words: str, expected: str) -> None:
    environment = {
        "_EDGEDEPLOY_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "PATH": os.environ["PATH"],
    }
    program = "import sys; sys.argv[0] = 'edgedeploy'; from edgedeploy.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=generous(60),
        check=False,
    )
    assert expected in done.stdout.split()


def test_errors_show_what_drivers_and_boards_say_without_doing_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(KernelBuildError("no kernels\n1: \x1b[2J[red]wrong[/red]\n\t^"))
    assert capsys.readouterr().err == "error: no kernels: 1: \\x1b[2J[red]wrong[/red]\n  |         ^\n"
