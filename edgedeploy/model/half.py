"""Half precision: the record of the layers that compute in it, in a network and in packages."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgedeploy.base.documents import Listed, Record
from edgedeploy.model.quantised import Accuracy

JudgedBy = Literal["pictures", "given inputs", "test inputs"]
Error = Annotated[float, Field(ge=0, allow_inf_nan=False)]


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
    accuracy: Accuracy | None = None  # in single and half precision, if labelled images were given

    @property
    def used(self) -> int:
        """The number of layers in half precision."""
        return self.layers - len(self.single)

    @property
    def is_used(self) -> bool:
        """Whether any layer is in half precision."""
        return self.used > 0

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
        return [self._line(), *([self.accuracy.line()] if self.accuracy else [])]

    def _line(self) -> str:
        if not self.is_used:
            return "all layers stay in single precision; `build --explain` says why"
        return (
            f"{self.used} of {self.layers} layers in half precision, "
            f"which changes outputs by up to {self.error:.2g} of their largest value for {self.judged_by}"
        )
