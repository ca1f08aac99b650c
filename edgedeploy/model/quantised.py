"""How a network was quantised, or which layers compute in half precision: the records that `push` checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from edgedeploy.base.documents import Listed, Record

KEY = "edgedeploy.quantisation"  # the key of the record, as JSON, in an ONNX file's `metadata_props`

Method = Literal["minmax", "entropy", "percentile"]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_MOST = 1 << 53  # every reader of JSON represents integers up to this exactly
# Shares of less than a billion samples differ by more than one of the last.
_DIGITS = 9
Count = Annotated[int, Field(gt=0, le=_MOST)]
JudgedBy = Literal["pictures and the demo's image", "pictures", "given inputs", "test inputs"]
Error = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Agreement(Record):
    """How far the quantised network agrees with the float network."""

    # The quantity compared: `top-1`, the best class of each image; `boxes` of the same class with an intersection over
    # union of at least 0.5, twice their number over that of all boxes of both; `outputs`, the cosine of the angle
    # between the outputs.
    of: Literal["top-1", "boxes", "outputs"]
    value: Share  # 1 means no difference
    samples: Count  # the number of images, or inputs


class Accuracy(Record):
    """The accuracy of both networks on labelled images."""

    # `top-1`, the share of images whose best class is right; `mAP@0.5`, as defined by COCO.
    of: Literal["top-1", "mAP@0.5"]
    before: Share  # of the network in single precision
    after: Share  # of the quantised one, or the one with layers in half precision
    samples: Count  # the number of images

    @property
    def loss(self) -> float:
        """The loss of accuracy, rounded: 1 - 0.99 is more than 0.01 in floating point, and 0.01 may be the limit."""
        return round(max(self.before - self.after, 0.0), _DIGITS)

    def line(self) -> str:
        """The record as a line for people."""
        return f"{self.of}: {self.before:.2%} before, {self.after:.2%} after ({self.samples} images)"


class Quantisation(Record):
    """How a network was quantised, and the loss; empty for files of other programs."""

    method: Method | None = None  # how the ranges of activations were chosen
    equalised: bool = False  # whether channels were, to use their tensors' ranges
    samples: Annotated[int, Field(ge=0, le=_MOST)] = 0  # the number of images, or inputs, that determined them
    kept: Listed[str] = []  # layers left in float, by request or because of their loss
    agreement: Agreement | None = None  # with the float network
    accuracy: Accuracy | None = None  # before and after, if labelled images were given

    @property
    def value(self) -> float | None:
        """The accuracy after, or else the agreement; None if neither is known."""
        if self.accuracy:
            return self.accuracy.after
        return self.agreement.value if self.agreement else None

    @property
    def loss(self) -> float | None:
        """The loss of accuracy, or else of agreement, rounded; None if neither is known."""
        if self.accuracy:
            return self.accuracy.loss
        return round(1 - self.agreement.value, _DIGITS) if self.agreement else None

    def lines(self) -> list[str]:
        """The record as lines for people."""
        channels = ", channels equalised" if self.equalised else ""
        how = f"{self.method} over {self.samples} samples{channels}; {len(self.kept)} layers kept in float"
        lines = [how if self.method else "by another program"]
        if self.value is None:
            lines[0] += "; its accuracy is not recorded"
        if self.agreement:
            lines.append(
                f"agreement with the float network: {self.agreement.value:.2%} "
                f"({self.agreement.of}, {self.agreement.samples} samples)"
            )
        if self.accuracy:
            lines.append(self.accuracy.line())
        return lines


def recorded(metadata: Mapping[str, str], *, quantised: bool) -> Quantisation | None:
    """The record in a network's metadata, empty if it is missing or invalid; None for a float network."""
    if not quantised:
        return None
    try:
        return Quantisation.model_validate_json(metadata[KEY])
    except (KeyError, ValidationError):
        return Quantisation()


class Kept(Record):
    """A layer that stays in single precision."""

    number: Annotated[int, Field(ge=0)]  # its place among the network's convolutions and products, from 0
    layer: str  # what it computes, for people
    why: str  # why it stays


class Half(Record):
    """The choice of layers that compute in half precision."""

    layers: Annotated[int, Field(gt=0)]  # the number of convolutions and products
    single: Listed[Kept]  # those of them that stay in single precision
    judged_by: JudgedBy  # the inputs that gave the errors; all of them are fractions of an output's largest value
    expected: Error  # the expected error of outputs, a sum of independent errors of the layers
    errors: dict[str, Error]  # by output, the largest difference from single precision in trials
    tested: Error  # the larger of both for the self-test's inputs
    # The places of products that compute in single precision with weights in half; only such products count then.
    weights: Listed[Annotated[int, Field(ge=0)]] = []
    accuracy: Accuracy | None = None  # in single and half precision, if labelled images were given

    @property
    def used(self) -> int:
        """The number of layers in half precision."""
        return self.layers - len(self.single)

    @property
    def error(self) -> float:
        """The larger of the expected error and those of trials, of any output."""
        return max(self.expected, *self.errors.values())

    @property
    def value(self) -> float | None:
        """The accuracy, if it is known."""
        return self.accuracy.after if self.accuracy else None

    @property
    def loss(self) -> float:
        """The loss of accuracy; nothing if it is unknown, since errors are bounded."""
        return self.accuracy.loss if self.accuracy else 0.0

    def lines(self) -> list[str]:
        """The record as lines for people."""
        line = "all layers stay in single precision; `build --explain` says why"
        if self.used:
            what = "large products read weights" if self.weights else "layers"
            line = (
                f"{self.used} of {self.layers} {what} in half precision, "
                f"which changes outputs by up to {self.error:.2g} of their largest value for {self.judged_by}"
            )
        return [line, *([self.accuracy.line()] if self.accuracy else [])]
