"""The command line in tests, where it is to do what it is asked for; and programs of others that tests need."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.programs import installed_but_hidden


def output_of(command: Callable[..., tuple[int, str, str]], *arguments: object) -> str:
    """What a command prints, which must succeed; `command` is one of the fixtures that run the command line."""
    code, out, err = command(*arguments)
    assert code == 0, out + err
    return out


def refused(command: Callable[..., tuple[int, str, str]], code: int, *arguments: object) -> str:
    """The messages of a command that must end with an exit code, in one line."""
    ended, out, err = command(*arguments)
    assert ended == code, out + err
    return " ".join(err.split())


def executable(path: Path, script: str, shell: str = "/bin/sh") -> Path:
    """Write a script that runs by its name, into a folder that may not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{shell}\n{script}\n")
    path.chmod(0o755)
    return path


def need(program: str, package: str) -> None:
    """Skip the test where a program is not installed, which a package of Debian's has."""
    if installed_but_hidden(program):
        pytest.fail(f"tests do not see {program}: list its package, {package}, in tests/support/programs.py")
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed: apt install {package}")
