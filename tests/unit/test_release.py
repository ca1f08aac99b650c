"""Releases: what of a board follows for a package, health checks, and the record of what was in use."""

import os
import shutil
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.commands import executable, printed, put

from edgedeploy.errors import InputError, ReleaseError, UnsuitableBoardError
from edgedeploy.package.manifest import Abi
from edgedeploy.release import steps
from edgedeploy.release.gate import check_abi, check_space
from edgedeploy.release.layout import BASE, is_id
from edgedeploy.release.record import MOST_ENTRIES, Entry, Event, Record
from edgedeploy.release.switching import HEALTH_CHECK, HealthCheck
from edgedeploy.remote import facts
from edgedeploy.remote.connection import Completed
from edgedeploy.target.board import load_board
from edgedeploy.target.facts import Facts

RPI4 = Abi(
    elf_class=64, machine="EM_AARCH64", float_abi=None, glibc="2.17", libraries=[], cpu="cortex-a72", features=[]
)
OF_ARM = {"elf_class": 32, "machine": "EM_ARM", "float_abi": "hard", "glibc": "2.4", "cpu": "cortex-a7"}
ARMHF = RPI4.model_copy(update={**OF_ARM, "features": ["+neon", "+vfp4"]})
A_RPI4 = Facts(elf_class=64, elf_machine="EM_AARCH64", glibc="2.36", features=["asimd", "crc32", "fp"])
# Raspberry Pi OS (32-bit) under a 64-bit kernel: the kernel's words, the system's programs.
AN_ARMHF = A_RPI4.model_copy(
    update={"machine": "aarch64", "elf_class": 32, "elf_machine": "EM_ARM", "float_abi": "hard", "glibc": "2.31"}
)


@pytest.mark.parametrize(("abi", "board"), [(RPI4, A_RPI4), (ARMHF, AN_ARMHF), (RPI4, Facts())])
def test_what_fits_passes(abi: Abi, board: Facts) -> None:
    check_abi("net", abi, board, "board")


@pytest.mark.parametrize(
    ("abi", "board", "both_sides"),
    [
        (ARMHF, A_RPI4, ("EM_ARM (32 bits)", "EM_AARCH64 (64 bits)")),
        (RPI4, AN_ARMHF, ("EM_AARCH64 (64 bits)", "EM_ARM (32 bits)")),
        (ARMHF, AN_ARMHF.model_copy(update={"float_abi": "soft"}), ("hard-float", "soft-float")),
        (RPI4.model_copy(update={"glibc": "2.9"}), A_RPI4.model_copy(update={"glibc": "2.8"}), ("2.9", "2.8")),
        (RPI4.model_copy(update={"glibc": "2.100"}), A_RPI4, ("2.100", "2.36")),
        (RPI4.model_copy(update={"cpu": "cortex-a76"}), A_RPI4, ("cortex-a76", "asimddp")),
        (RPI4.model_copy(update={"features": ["+dotprod", "-lse"]}), A_RPI4, ("cortex-a72 +dotprod,", "asimddp")),
        (ARMHF, AN_ARMHF.model_copy(update={"features": ["vfp", "vfpv3"]}), ("cortex-a7", "neon")),
        (RPI4.model_copy(update={"glibc": "2.99", "cpu": "cortex-a76"}), A_RPI4, ("glibc 2.99", "cortex-a76")),
    ],
    ids=[
        *("32 on 64 bits", "64 on 32 bits", "float ABI", "glibc", "glibc as a number", "a newer core"),
        *("a feature flag", "no NEON", "all that does not fit at once"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_sides(abi: Abi, board: Facts, both_sides: tuple[str, str]) -> None:
    with pytest.raises(UnsuitableBoardError) as caught:
        check_abi("net", abi, board, "board")
    assert all(side in str(caught.value) for side in both_sides)


def test_room_is_counted_in_the_same_unit_on_both_sides() -> None:
    board = Facts(free_bytes=5 << 20)
    check_space(4 << 20, board, "board")
    check_space(0, Facts(free_bytes=0), "board")
    with pytest.raises(UnsuitableBoardError, match=r"6,144 KiB are needed, 5,120 KiB are free"):
        check_space(5 << 20, board, "board")


def elf(*, bits: int, machine: int, flags: int = 0, order: str = "<") -> bytes:
    """The head of an ELF file, by the specification's table of fields."""
    ident = b"\x7fELF" + bytes([bits // 32, 1 if order == "<" else 2]) + bytes(10)
    word = "I" if bits == 32 else "Q"
    head = struct.pack(f"{order}HHI{word}{word}{word}IHHHHHH", 2, machine, 1, 0, 0, 0, flags, 52, 0, 0, 0, 0, 0)
    return (ident + head).ljust(64, b"\0")


ANSWER = (
    b"machine x\nkernel 6\nsystem \nhardware Some Board\nglibc 2.36\nfeatures fp asimd\ncores 4\ntemperature 48725\n\n"
)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (elf(bits=64, machine=183), ("EM_AARCH64", 64, None)),
        (elf(bits=32, machine=40, flags=0x5000400), ("EM_ARM", 32, "hard")),
        (elf(bits=32, machine=40, flags=0x5000200), ("EM_ARM", 32, "soft")),
        (elf(bits=32, machine=8, order=">"), ("8", 32, None)),
        (elf(bits=64, machine=243, flags=0x5), ("EM_RISCV", 64, "hard")),
        (elf(bits=64, machine=243, flags=0x1), ("EM_RISCV", 64, "soft")),
    ],
    ids=["aarch64", "armhf", "armel", "big-endian MIPS", "riscv64", "riscv64 with floats in integer registers"],
)
def test_the_shells_elf_head_says_what_programs_are(head: bytes, expected: tuple[str, int, str | None]) -> None:
    said = facts._of_shell(ANSWER + head)
    assert (said.elf_machine, said.elf_class, said.float_abi) == expected
    assert said.line() == "Some Board, 4 cores, 48.7 °C"


@pytest.mark.parametrize(
    "answer", [b"", b"no facts", ANSWER, ANSWER + b"#!/bin/sh", ANSWER[20:] + elf(bits=64, machine=62)]
)
def test_an_answer_that_is_cut_off_is_none(answer: bytes) -> None:
    with pytest.raises((ValueError, KeyError)):
        facts._of_shell(answer)


def test_names_of_releases_are_times_and_hashes() -> None:
    assert is_id("20260102T030405Z-0123abcd")
    wrong = ("20261302T030405Z-0123abcd", "20260102T030405Z-0123ABCD", "../20260102T030405Z-0123abcd")
    for name in ("current", *wrong, ""):
        assert not is_id(name)


# A health check's command: what it is told, how it ends, and what it may be, in the shells that boards have.


def checked(shell: list[str], folder: Path, command: str, limit_s: int = 30) -> subprocess.CompletedProcess[str]:
    """A check, run as boards run it, but here."""
    arguments = [*shell, "-c", HEALTH_CHECK, "sh", str(folder), str(limit_s), "digits", "ID", command]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=300, check=False)


def test_a_check_knows_what_it_checks_and_its_code_counts(shell: list[str], tmp_path: Path) -> None:
    done = checked(shell, tmp_path, 'pwd; echo "$EDGEDEPLOY_MODEL $EDGEDEPLOY_RELEASE $0"; echo why >&2; cat; exit 7')
    assert (done.returncode, done.stdout) == (7, f"{tmp_path}\ndigits ID sh\nwhy\n")
    assert checked(shell, tmp_path, "true").returncode == 0


@pytest.mark.slow
def test_a_check_that_takes_too_long_is_ended_with_its_children(shell: list[str], tmp_path: Path) -> None:
    command = "trap '' TERM; echo began; (sleep 654; echo late) & sleep 654"
    started = time.monotonic()
    done = checked(shell, tmp_path, command, limit_s=1)
    # The output's end came, so all that held it has ended.
    assert time.monotonic() - started < 200
    assert (done.returncode, done.stdout) == (124, "began\n")


def test_the_command_line_goes_before_the_profile() -> None:
    board = load_board("local").model_copy(update={"health_check": "profile", "health_check_s": 5})
    assert HealthCheck.chosen(board, None, None) == HealthCheck("profile", 5)
    assert HealthCheck.chosen(board, "line", 7) == HealthCheck("line", 7)
    assert HealthCheck.chosen(board, "", None) is None
    assert HealthCheck.chosen(load_board("local"), None, None) is None
    with pytest.raises(InputError, match="health_check="):
        HealthCheck.chosen(board, " ", None)


# What was in use on a board is known from its record, wherever a step was cut off, in whatever shell it ran.

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
    """A folder of this machine as the connection to a board: the steps' scripts run in one of its shells."""

    address = "here"

    def __init__(self, home: Path, shell: Sequence[str], programs: Path | None = None) -> None:
        self.home, self.shell, self.programs = home, shell, programs
        self.base = home / BASE
        for identity in ALL[:3]:
            put(self.base / "releases" / "digits" / identity / "agent", identity)
        (self.base / "blobs").mkdir()

    def run(self, script: str, *arguments: str, **options: Any) -> Completed:
        path = f"{self.programs}:{os.environ['PATH']}" if self.programs else os.environ["PATH"]
        command = [*self.shell, "-c", script, "sh", *arguments]
        environment = {"HOME": str(self.home), "PATH": path}
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        return Completed(done.returncode, done.stdout, done.stderr.decode())

    def rename(self, source: str, target: str) -> None:
        (self.home / source).rename(self.home / target)

    def switch(self, identity: str, *, back: str | None = None) -> None:
        steps.switch(self, "digits", identity, back=back, entries=[entry("switched", identity)])
        steps.write_record(self, "digits", entry("confirmed", identity))

    @property
    def stock(self) -> steps.Inventory:
        return steps.inventory(self, "digits")


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
    steps.switch(board, "digits", A, back=C, entries=[entry("returned", A)])
    assert board.stock.record.current == A
    steps.go_back(board, "digits", C)
    assert board.stock.record.current == C
    steps.go_back(board, "digits", None)
    assert board.stock.record.current is None
    steps.sweep(board, [f"releases/digits/{A}"])
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
        put(programs / "count", "0")
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
