"""Compare the needs of a package with a board's facts before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass

from edgedeploy.errors import InaccurateReleaseError, UnsuitableBoardError
from edgedeploy.package.abi import misfits
from edgedeploy.package.manifest import Abi, Manifest
from edgedeploy.target.facts import Facts

# The size of a release in addition to its files: folders, links, the manifest.
OVERHEAD_BYTES = 1 << 20


def check_abi(what: str, abi: Abi, facts: Facts, where: str) -> None:
    """Refuse code that the board cannot load or run. Unknown facts are no reason: the self-test decides."""
    reasons = misfits(abi, facts, "the board")
    if reasons:
        raise UnsuitableBoardError(
            f"{what} does not run on {where}",
            why="; ".join(reasons) + "; nothing was sent",
            hints=[
                "build it for a profile that describes this board: `edgedeploy boards`, docs/adding-a-board.md",
                "check that this is the right board: `edgedeploy boards probe`",
            ],
        )


@dataclass(frozen=True)
class AccuracyRule:
    """How accurate a network must be to be released; None for any."""

    # Of the recorded accuracy or, without one, of the agreement with the float network. A package that records neither
    # is refused.
    minimum: float | None = None
    # The largest loss of accuracy by quantisation or half precision; of agreement, 1 minus it. Networks in single
    # precision, and those in half that record no accuracy, have no loss.
    max_loss: float | None = None

    def check(self, manifest: Manifest) -> None:
        """Refuse a package that is less accurate, or does not record its accuracy."""
        known = manifest.quantisation or manifest.half
        value, loss = (known.value, known.loss) if known else (None, 0.0)
        of = "accuracy" if known is None or known.accuracy else "agreement with the float network"
        if self.minimum is not None and (value is None or value < self.minimum):
            reason = f"its package records no {of}" if value is None else f"its {of} is {value:.2%}"
            raise _inaccurate(manifest, f"{reason}, and {self.minimum:.2%} is asked for")
        if self.max_loss is not None and (loss is None or loss > self.max_loss):
            lost = f"its {of} fell by" if known and known.accuracy else f"its {of} is {value or 0:.2%}: it lost"
            reason = "its package does not record its loss" if loss is None else f"{lost} {loss:.2%}"
            raise _inaccurate(manifest, f"{reason}, and {self.max_loss:.2%} is allowed")


def _inaccurate(manifest: Manifest, why: str) -> InaccurateReleaseError:
    what = f"{manifest.model} is not accurate enough to be released"
    hints = [
        "quantise it with more images or another --method, or leave layers in float: "
        "edgedeploy quantize --max-loss 0.01",
        "state its accuracy on labelled images: edgedeploy quantize --evaluate FOLDER",
    ]
    if manifest.quantisation is None:
        why = f"it is a float network: {why}"
        hints = ["push it without --min-accuracy", "build it in single precision: --precision single"]
        if not (manifest.half and manifest.half.accuracy):
            what = f"the accuracy of {manifest.model} is unknown"
            hints[1] = "for layers in half precision, state it on labelled images: edgedeploy build --evaluate FOLDER"
    return InaccurateReleaseError(what, why=f"{why}; nothing was sent", hints=hints)


def check_space(needed: int, facts: Facts, where: str) -> None:
    """Refuse more bytes than the board has free."""
    if needed and facts.free_bytes is not None and needed + OVERHEAD_BYTES > facts.free_bytes:
        raise UnsuitableBoardError(
            f"there is not enough room on {where}",
            why=f"{(needed + OVERHEAD_BYTES) >> 10:,} KiB are needed, {facts.free_bytes >> 10:,} KiB are free",
            hints=["remove old releases: `edgedeploy releases gc --keep 1`", "remove something else there"],
        )
