"""What a board says of itself and what follows from it for a package; and the health check of a release."""

import os
import struct
import subprocess
import time
from pathlib import Path

import pytest

from edgedeploy.errors import InputError, UnsuitableBoardError
from edgedeploy.package.manifest import Abi
from edgedeploy.release.gate import check_abi, check_space
from edgedeploy.release.health import CHECK, HealthCheck
from edgedeploy.release.layout import is_id
from edgedeploy.remote import facts
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
    arguments = [*shell, "-c", CHECK, "sh", str(folder), str(limit_s), "digits", "ID", command]
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
