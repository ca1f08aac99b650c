"""Compares what a package needs with what a board is, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator

from edgedeploy.errors import UnsuitableBoardError
from edgedeploy.hosts import missing_features
from edgedeploy.package.manifest import Abi
from edgedeploy.remote.facts import Facts

# What a release takes beside its files: folders, links, the manifest.
OVERHEAD_BYTES = 1 << 20


def check_abi(what: str, abi: Abi, facts: Facts, where: str) -> None:
    """Refuse code that the board's system cannot load, or its processor cannot run.

    What the board did not say is not held against it: its self-test decides.

    Raises:
        UnsuitableBoardError: with both sides of each thing that does not fit.
    """
    reasons = list(_reasons(abi, facts))
    if reasons:
        raise UnsuitableBoardError(
            f"{what} does not run on {where}",
            why="; ".join(reasons) + "; nothing was sent",
            hints=[
                "build it for a profile that describes this board: `edgedeploy boards`, docs/adding-a-board.md",
                "look whether this is the board that you mean: `edgedeploy boards probe`",
            ],
        )


def check_space(needed: int, facts: Facts, where: str) -> None:
    """Refuse what the board has no room for.

    Raises:
        UnsuitableBoardError: with both numbers.
    """
    if needed and facts.free_bytes is not None and needed + OVERHEAD_BYTES > facts.free_bytes:
        raise UnsuitableBoardError(
            f"there is not enough room on {where}",
            why=f"{(needed + OVERHEAD_BYTES) >> 10:,} KiB are needed, {facts.free_bytes >> 10:,} KiB are free",
            hints=["remove old releases: `edgedeploy releases gc --keep 1`", "remove something else there"],
        )


def _reasons(abi: Abi, facts: Facts) -> Iterator[str]:
    if facts.elf_machine and (abi.machine, abi.elf_class) != (facts.elf_machine, facts.elf_class):
        yield (
            f"its code is {abi.machine} ({abi.elf_class} bits), "
            f"the board's programs are {facts.elf_machine} ({facts.elf_class} bits)"
        )
        return  # the rest compares within one architecture
    if abi.float_abi and facts.float_abi and abi.float_abi != facts.float_abi:
        yield f"its code has the {abi.float_abi}-float ABI, the board's programs have {facts.float_abi}-float"
    if abi.glibc and facts.glibc and _numbers(abi.glibc) > _numbers(facts.glibc):
        yield f"it needs glibc {abi.glibc}, the board has {facts.glibc}"
    missing = missing_features(abi.cpu, facts.features)
    if missing:
        yield f"it is for {abi.cpu}, the board's processor lacks {', '.join(sorted(missing))}"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
