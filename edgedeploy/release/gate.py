"""Compares what a package needs with what a board is, before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass

from edgedeploy.errors import InaccurateReleaseError, UnsuitableBoardError
from edgedeploy.facts import Facts
from edgedeploy.package.abi import misfits
from edgedeploy.package.manifest import Abi, Manifest

# What a release takes beside its files: folders, links, the manifest.
OVERHEAD_BYTES = 1 << 20


def check_abi(what: str, abi: Abi, facts: Facts, where: str) -> None:
    """Refuse code that the board's system cannot load, or its processor cannot run.

    What the board did not say is not held against it: its self-test decides.
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


@dataclass(frozen=True)
class AccuracyRule:
    """How accurate a network must be to be released.

    Attributes:
        minimum: its accuracy, as its package records it; where only the agreement with the float network is recorded,
            that. None asks for none. A package that records neither is refused.
        max_loss: by how much a quantised network's accuracy may have fallen; of agreement, what it lacks of 1. None
            allows any. A float network has lost nothing.
    """

    minimum: float | None = None
    max_loss: float | None = None

    def check(self, manifest: Manifest) -> None:
        """Refuse a package."""
        known = manifest.quantisation
        value, loss = (known.value, known.loss) if known else (None, 0.0)
        of = "accuracy" if known is None or known.accuracy else "agreement with the float network"
        if self.minimum is not None and (value is None or value < self.minimum):
            said = f"its package records no {of}" if value is None else f"its {of} is {value:.2%}"
            raise _inaccurate(manifest, f"{said}, and {self.minimum:.2%} is asked for")
        if self.max_loss is not None and (loss is None or loss > self.max_loss):
            lost = f"its {of} fell by" if known and known.accuracy else f"its {of} is {value or 0:.2%}: it lost"
            said = "its package does not record its loss" if loss is None else f"{lost} {loss:.2%}"
            raise _inaccurate(manifest, f"{said}, and {self.max_loss:.2%} is allowed")


def _inaccurate(manifest: Manifest, why: str) -> InaccurateReleaseError:
    if manifest.quantisation is None:
        return InaccurateReleaseError(
            f"the accuracy of {manifest.model} is not known",
            why=f"it is a float network: {why}; nothing was sent",
            hints=["push it without --min-accuracy"],
        )
    return InaccurateReleaseError(
        f"{manifest.model} is not accurate enough to be released",
        why=f"{why}; nothing was sent",
        hints=[
            "quantise it with more images or another --method, or leave layers in float: edgedeploy quantize --auto",
            "state its accuracy on labelled images: edgedeploy quantize --evaluate FOLDER",
        ],
    )


def check_space(needed: int, facts: Facts, where: str) -> None:
    """Refuse what the board has no room for."""
    if needed and facts.free_bytes is not None and needed + OVERHEAD_BYTES > facts.free_bytes:
        raise UnsuitableBoardError(
            f"there is not enough room on {where}",
            why=f"{(needed + OVERHEAD_BYTES) >> 10:,} KiB are needed, {facts.free_bytes >> 10:,} KiB are free",
            hints=["remove old releases: `edgedeploy releases gc --keep 1`", "remove something else there"],
        )
