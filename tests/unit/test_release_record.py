"""What was in use on a board is known from its record, wherever a step was cut off, and in whatever shell it ran."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from support.commands import executable, printed

from edgedeploy.errors import ReleaseError
from edgedeploy.release import steps
from edgedeploy.release.layout import BASE
from edgedeploy.release.record import MOST_ENTRIES, Entry, Event, Record
from edgedeploy.remote.connection import Completed, Connection

A, B, C, D = (f"2026010{day}T000000Z-0000000{day}" for day in range(1, 5))


def entry(event: str, identity: str) -> Entry:
    return Entry.now(Event(event), identity)


def record(*events: tuple[str, str], current: str | None) -> Record:
    meaning = {"used": ("switched", "confirmed"), "back": ("returned", "confirmed"), "bad": ("switched", "failed")}
    entries = [entry(each, identity) for event, identity in events for each in meaning.get(event, (event,))]
    return Record.read([each.line for each in entries], current)


ALL = (A, B, C, D)

BACK: dict[str, Any] = {
    "nothing": ([], None, None),
    "the first one": ([("used", A)], A, None),
    "the one before": ([("used", A), ("used", B), ("used", C)], C, B),
    "once back": ([("used", A), ("used", B), ("used", C), ("back", B)], B, A),
    "back to the end": ([("used", A), ("used", B), ("used", C), ("back", B), ("back", A)], A, None),
    "pushed after going back": ([("used", A), ("used", B), ("used", C), ("back", B), ("used", D)], D, B),
    "an old one again": ([("used", A), ("used", B), ("used", A)], A, B),
    "the same one again": ([("used", A), ("used", B), ("used", B)], B, A),
    "one that failed": ([("used", A), ("bad", B)], A, None),
    "one that failed later": ([("used", A), ("used", B), ("bad", A)], B, None),
    "not confirmed": ([("used", A), ("switched", B)], B, A),
    "cut off before the switch": ([("used", A), ("switched", B)], A, None),
    "going back, not confirmed": ([("used", A), ("used", B), ("returned", A)], A, A),
    "going back, cut off before the switch": ([("used", A), ("used", B), ("returned", A)], B, A),
    "found there": ([("used", A), ("found", B), ("used", C)], C, B),
    "switched by hand": ([("used", A)], B, A),
}


@pytest.mark.parametrize(("events", "current", "previous"), BACK.values(), ids=BACK)
def test_rollback_follows_the_record(events: list[tuple[str, str]], current: str | None, previous: str | None) -> None:
    assert record(*events, current=current).previous(ALL) == previous


def test_a_release_that_is_gone_is_not_gone_back_to() -> None:
    assert record(("used", A), ("used", B), ("used", C), current=C).previous([A, C]) == A


FAILURES: dict[str, Any] = {
    "the first one": ([], None, A, None),
    "another one": ([("used", A)], A, B, A),
    "the one in use": ([("used", A)], A, A, A),
    "one is not confirmed": ([("used", A), ("switched", B)], B, C, A),
    "the one that is not confirmed": ([("used", A), ("switched", B)], B, B, A),
    "only that": ([("switched", A)], A, A, None),
    "nothing else was": ([("switched", A)], A, B, A),
    "no record": ([], A, B, A),
}


@pytest.mark.parametrize(("events", "current", "target", "back"), FAILURES.values(), ids=FAILURES)
def test_a_failure_goes_back(events: list[tuple[str, str]], current: str | None, target: str, back: str | None) -> None:
    assert record(*events, current=current).way_back(ALL, target) == back


@pytest.mark.parametrize(
    ("events", "current", "states"),
    [
        ([], B, ("never in use", "in use")),
        ([("used", A), ("used", B)], B, ("was in use", "in use")),
        ([("used", A), ("switched", B)], B, ("was in use", "in use, not confirmed")),
        ([("used", A), ("bad", B)], A, ("in use", "failed")),
        ([("used", A), ("bad", A)], A, ("in use, failed", "never in use")),
    ],
)
def test_states_in_words(events: list[tuple[str, str]], current: str, states: tuple[str, str]) -> None:
    found = record(*events, current=current)
    assert (found.state(A), found.state(B)) == states


def test_what_was_in_use_is_kept_before_what_never_was() -> None:
    found = record(("used", A), ("bad", D), ("used", B), current=B)
    assert found.ranked([A, B, C, D]) == [B, A, D, C]
    # After going back from B, the way back from A counts more than B.
    found = record(("used", C), ("used", A), ("used", B), ("back", A), current=A)
    assert found.ranked([A, B, C, D]) == [A, C, B, D]


def test_lines_that_are_none_are_left_out() -> None:
    good = entry("confirmed", A).line
    bad = [good[:30], "", "x" * 5000, f"{good} too many words", good.replace("confirmed", "praised"), f"\x1b[2J{good}"]
    assert Record.read([*bad, good], A).entries == Record.read([good], A).entries


def test_who_it_was_is_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "eve \x1b[31m\nmallory")
    assert len(Record.read([entry("confirmed", A).line], A).entries) == 1
    assert entry("confirmed", A).who.isprintable()


class Shell:
    """A folder of this machine as a board: the steps' scripts in one of its shells."""

    address = "here"

    def __init__(self, home: Path, shell: Sequence[str], programs: Path | None = None) -> None:
        self.home, self.shell, self.programs = home, shell, programs
        self.base = home / BASE
        for identity in ALL[:3]:
            folder = self.base / "releases" / "digits" / identity
            folder.mkdir(parents=True)
            (folder / "agent").write_text(identity)
        (self.base / "blobs").mkdir()

    def run(self, script: str, *arguments: str, **options: Any) -> Completed:
        path = f"{self.programs}:{os.environ['PATH']}" if self.programs else os.environ["PATH"]
        command = [*self.shell, "-c", script, "sh", *arguments]
        environment = {"HOME": str(self.home), "PATH": path}
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        return Completed(done.returncode, done.stdout, done.stderr.decode())

    def rename(self, source: str, target: str) -> None:
        (self.home / source).rename(self.home / target)

    @property
    def connection(self) -> Connection:
        return cast(Connection, self)

    def switch(self, identity: str, *, back: str | None = None) -> None:
        steps.switch(self.connection, "digits", identity, back=back, entries=[entry("switched", identity)])
        steps.write_record(self.connection, "digits", entry("confirmed", identity))

    @property
    def stock(self) -> steps.Inventory:
        return steps.inventory(self.connection, "digits")


@pytest.fixture
def board(shell: list[str], tmp_path: Path) -> Shell:
    """A board with three releases, none in use; that with busybox has no other programs."""
    programs = None
    if shell[0] == "busybox":
        programs = tmp_path / "bin"
        programs.mkdir()
        for applet in printed("busybox", "--list").split():
            (programs / applet).symlink_to(str(shutil.which("busybox")))
    return Shell(tmp_path / "home", shell, programs)


def test_every_shell_keeps_the_record(board: Shell) -> None:
    for identity in (A, B, C):
        board.switch(identity)
    assert board.stock.record.way == [A, B, C]
    assert board.stock.record.current == C
    assert sorted(board.stock.releases) == [A, B, C]
    steps.switch(board.connection, "digits", A, back=C, entries=[entry("returned", A)])
    assert board.stock.record.current == A
    steps.go_back(board.connection, "digits", C)
    assert board.stock.record.current == C
    steps.go_back(board.connection, "digits", None)
    assert board.stock.record.current is None
    steps.sweep(board.connection, [f"releases/digits/{A}"])
    assert sorted(board.stock.releases) == [B, C]


def test_a_record_does_not_grow_for_ever(board: Shell) -> None:
    history = board.base / "releases" / "digits" / "history"
    history.write_text("".join(f"{entry('confirmed', A).line}\n" for _ in range(3 * MOST_ENTRIES)))
    board.switch(B)
    assert len(history.read_text().splitlines()) < MOST_ENTRIES + 5
    assert board.stock.record.way == [A, B]


# The programs that the steps call; the shell's own commands cannot be cut off from it.
CALLED = ("ln", "mv", "rm", "sync", "tail", "find", "rmdir")

CUT = """
count=$(($(cat {folder}/count) + 1))
echo $count >{folder}/count
{program} "$@"
code=$?
[ $count != {number} ] || kill -9 $PPID
exit $code"""


def test_a_switch_that_is_cut_off_anywhere_leaves_a_sound_record(tmp_path: Path) -> None:
    outcomes = []
    for number in range(1, 30):
        folder = tmp_path / str(number)
        board = Shell(folder / "home", ["sh"])
        board.switch(A)
        programs = folder / "bin"
        programs.mkdir()
        (programs / "count").write_text("0")
        for name in CALLED:
            executable(programs / name, CUT.format(folder=programs, number=number, program=shutil.which(name)))
        board.programs = programs
        try:
            board.switch(B, back=A)
        except ReleaseError:
            pass
        else:
            break
        finally:
            board.programs = None
        found = board.stock.record
        outcomes.append(found.current)
        # What was confirmed stays confirmed, and what is in use is known for what it is.
        assert found.way[0] == A
        assert found.current in (A, B)
        assert found.previous(ALL) == (None if found.current == A else A)
        assert found.state(B) != "was in use"
        board.switch(C, back=found.way_back(ALL, C))
        assert board.stock.record.way[-1] == C
    # Ten programs prepare the rename, and four write the line after it.
    assert len(outcomes) == 14
    assert set(outcomes) == {A, B}
