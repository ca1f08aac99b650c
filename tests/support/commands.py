"""Programs that tests run or need, what they say, and how long tests wait: that something ends is tested, not when."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgedeploy.base.progress import Progress
from edgedeploy.target.hosts import busyness
from support.programs import installed_but_hidden

# Text that clears the screen, sets its title, forges a line, is markup and an emoji of rich, and turns the direction.
HOSTILE = "\x1b[2J\x1b]0;x\x07\nerror: forged [bold]b[/bold] [red] :smile: \x9b1m\u202e"
# How it stands in what is printed.
SHOWN = r"\x1b[2J\x1b]0;x\x07\nerror: forged [bold]b[/bold] [red] :smile: \x9b1m\u202e"


def assert_is_text(*printed: str, lines_of_text: bool = False) -> None:
    """No character moves the cursor, and no line begins as a foreign text would have it."""
    for text in printed:
        odd = {each for each in text if not each.isprintable() and each != "\n"}
        assert not odd, f"{odd} in {text!r}"
        forged = [line for line in text.split("\n") if line.lstrip().startswith("error: forged")]
        assert not forged or lines_of_text, forged


def output_of(command: Callable[..., tuple[int, str, str]], *arguments: object) -> str:
    """What a command prints, which must succeed; `command` is one of the fixtures that run the command line."""
    code, out, err = command(*arguments)
    assert code == 0, out + err
    return out


def json_of(command: Callable[..., tuple[int, str, str]], *arguments: object) -> Any:
    """What a command prints with `--json`, which must succeed."""
    return json.loads(output_of(command, *arguments, "--json"))


def refused(command: Callable[..., tuple[int, str, str]], code: int, *arguments: object) -> str:
    found, out, err = command(*arguments)
    assert found == code, out + err
    return err


def refused_alone(command: Callable[..., tuple[int, str, str]], code: int, *arguments: object) -> str:
    """As `refused`, where nothing else is printed."""
    found, out, err = command(*arguments)
    assert (found, out) == (code, ""), err
    return err


def refusal(command: Callable[..., tuple[int, str, str]], code: int, *arguments: object) -> str:
    """As `refused`, with all messages in one line."""
    return " ".join(refused(command, code, *arguments).split())


def notes_of(command: Callable[..., tuple[int, str, str]], *arguments: object) -> str:
    """The messages of a command, which must succeed."""
    return refused(command, 0, *arguments)


def printed(*words: object, **options: Any) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def started(*words: object, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A program that runs while the block does, and is killed if it does not end by itself."""
    with subprocess.Popen([*map(str, words)], **options) as process:
        try:
            yield process
        finally:
            process.kill()


def put(path: Path, content: str | bytes) -> Path:
    """Write a file into a folder that may not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def executable(path: Path, script: str, shell: str = "/bin/sh") -> Path:
    """Write a script that runs by its name, into a folder that may not be there yet."""
    put(path, f"#!{shell}\n{script}\n").chmod(0o755)
    return path


def python_with(variable: str, modules: str) -> str:
    """The Python that a variable names, or this one; skips the test where it lacks one of the modules."""
    python = os.environ.get(variable) or sys.executable
    done = subprocess.run([python, "-c", f"import {modules}"], capture_output=True, text=True, check=False)
    if done.returncode and os.environ.get(variable):
        pytest.fail(f"{variable} names a Python that cannot import {modules}:\n{done.stderr}")
    if done.returncode:
        pytest.skip(f"{python} does not have {modules}; {variable} names a Python that has")
    return python


def need(program: str, package: str) -> None:
    """Skip the test where a program is not installed, which a package of Debian's has."""
    if installed_but_hidden(program):
        pytest.fail(f"tests do not see {program}: list its package, {package}, in tests/support/programs.py")
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed: apt install {package}")


@pytest.fixture(params=["dash", "bash --posix", "busybox sh"])
def shell(request: pytest.FixtureRequest) -> list[str]:
    """The command of a shell; the test is skipped where that is not installed."""
    words: list[str] = request.param.split()
    need(words[0], words[0])
    return words


class Notebook(Progress):
    """A listener that keeps all notes, a line each, and how far each work in steps came: done, and of how many."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: dict[str, tuple[int, int]] = {}

    @contextmanager
    def steps(self, title: str, total: int) -> Iterator[Callable[[], None]]:
        self.counts[title] = (0, total)

        def advance() -> None:
            done, _ = self.counts[title]
            self.counts[title] = (done + 1, total)

        yield advance

    def note(self, text: str) -> None:
        self.lines.append(text)


def generous(seconds: float) -> float:
    """Four times as long, and longer while more processes want to run than there are processors."""
    return 4 * seconds * busyness()


def becomes(state: Callable[[], object], limit_s: float = 20) -> bool:
    """Whether something becomes true in the time of an idle machine, or what a busy one makes of it."""
    deadline = time.monotonic() + generous(limit_s)
    while not state():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def until(state: Callable[[], object], limit_s: float = 30) -> None:
    assert becomes(state, limit_s)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def beside(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Something that another thread does, until the block ends and sets the event that it is given."""
    done = threading.Event()
    thread = threading.Thread(target=work, args=(done,))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
