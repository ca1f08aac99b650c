"""What is known of how a network was quantised: its file says it, packages carry it, and `push` goes by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from edgedeploy.documents import Listed, Record

# Under which name an ONNX file keeps the record among its `metadata_props`, as JSON.
KEY = "edgedeploy.quantisation"

Method = Literal["minmax", "entropy", "percentile"]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
# What every reader of JSON keeps exactly.
_MOST = 1 << 53
# Shares of less than a billion samples differ by more than one of the last.
_DIGITS = 9
Count = Annotated[int, Field(gt=0, le=_MOST)]


class Agreement(Record):
    """How far the quantised network does what the float network does.

    Attributes:
        of: what was compared: `top-1`, the best class of each image; `boxes`, those of one class that overlap by an
            intersection over union of 0.5 or more, twice their number over that of all boxes of both; `outputs`, the
            cosine of the angle between the outputs.
        value: 1 if there is no difference.
        samples: in how many images, or inputs.
    """

    of: Literal["top-1", "boxes", "outputs"]
    value: Share
    samples: Count


class Accuracy(Record):
    """How often the networks are right, on labelled images.

    Attributes:
        of: `top-1`, the share of images whose best class is right; `mAP@0.5`, as COCO defines it.
        before: of the float network.
        after: of the quantised one.
        samples: on how many images.
    """

    of: Literal["top-1", "mAP@0.5"]
    before: Share
    after: Share
    samples: Count


class Quantisation(Record):
    """How a network was quantised, and what that cost; nothing is known of files that other programs made.

    Attributes:
        method: how ranges of activations were chosen.
        samples: how many images, or inputs, they were chosen by.
        kept: layers that were left in float by request or for their loss.
        agreement: with the float network.
        accuracy: before and after, where labelled images were given.
    """

    method: Method | None = None
    samples: Annotated[int, Field(ge=0, le=_MOST)] = 0
    kept: Listed[str] = []
    agreement: Agreement | None = None
    accuracy: Accuracy | None = None

    @property
    def value(self) -> float | None:
        """The accuracy after, or else the agreement; None where neither is known."""
        if self.accuracy:
            return self.accuracy.after
        return self.agreement.value if self.agreement else None

    @property
    def loss(self) -> float | None:
        """By how much the accuracy fell, or else what the agreement lacks of 1; None where neither is known.

        It is rounded: 1 - 0.99 is more than 0.01 in floating point, and 0.01 may be what is allowed.
        """
        if self.accuracy:
            return round(max(self.accuracy.before - self.accuracy.after, 0.0), _DIGITS)
        return round(1 - self.agreement.value, _DIGITS) if self.agreement else None

    def lines(self) -> list[str]:
        """The same for people."""
        how = f"{self.method} over {self.samples} samples; {len(self.kept)} layers kept in float"
        lines = [how if self.method else "by another program"]
        if self.value is None:
            lines[0] += "; its accuracy is not recorded"
        if self.agreement:
            lines.append(
                f"agreement with the float network: {self.agreement.value:.2%} "
                f"({self.agreement.of}, {self.agreement.samples} samples)"
            )
        if self.accuracy:
            lines.append(
                f"{self.accuracy.of}: {self.accuracy.before:.2%} before, {self.accuracy.after:.2%} after "
                f"({self.accuracy.samples} images)"
            )
        return lines


def recorded(metadata: Mapping[str, str], *, quantised: bool) -> Quantisation | None:
    """What a network's file says of its quantisation; None for a float network.

    A record that cannot be read is none: then nothing is known.
    """
    if not quantised:
        return None
    try:
        return Quantisation.model_validate_json(metadata[KEY])
    except (KeyError, ValidationError):
        return Quantisation()
