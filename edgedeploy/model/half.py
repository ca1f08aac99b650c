"""Half precision: the record of the layers that compute in it, in a network and in packages."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgedeploy.base.documents import Listed, Record

Error = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Kept(Record):
    """A layer that stays in single precision.

    Attributes:
        number: its place among the network's convolutions and products, from 0.
        layer: what it computes, for people.
        why: why it stays.
    """

    number: Annotated[int, Field(ge=0)]
    layer: str
    why: str


class Half(Record):
    """The choice of layers that compute in half precision.

    Attributes:
        layers: the number of convolutions and products.
        single: those of them that stay in single precision.
        judged_by: the inputs of which the errors are; all errors are fractions of an output's largest value.
        expected: the expected error of outputs, a sum of independent errors of the layers.
        errors: by output, the largest difference from single precision in trials.
        tested: the larger of both for the self-test's inputs.
    """

    layers: Annotated[int, Field(gt=0)]
    single: Listed[Kept]
    judged_by: Literal["pictures", "test inputs"]
    expected: Error
    errors: dict[str, Error]
    tested: Error

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

    def line(self) -> str:
        """The record in one line for people."""
        if not self.is_used:
            return "all layers stay in single precision; `build --explain` says why"
        return (
            f"{self.used} of {self.layers} layers in half precision, "
            f"which changes outputs by up to {self.error:.2g} of their largest value for {self.judged_by}"
        )
