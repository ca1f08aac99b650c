"""Compares what a package needs with what a board is, before anything is sent."""

from __future__ import annotations

from edgedeploy.errors import UnsuitableBoardError
from edgedeploy.facts import Facts
from edgedeploy.package.abi import misfits
from edgedeploy.package.manifest import Abi

# What a release takes beside its files: folders, links, the manifest.
OVERHEAD_BYTES = 1 << 20


def check_abi(what: str, abi: Abi, facts: Facts, where: str) -> None:
    """Refuse code that the board's system cannot load, or its processor cannot run.

    What the board did not say is not held against it: its self-test decides.

    Raises:
        UnsuitableBoardError: with both sides of each thing that does not fit.
    """
    reasons = misfits(abi, facts, "the board")
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
