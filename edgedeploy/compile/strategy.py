"""How a backend computes one layer: its configurations, their estimated times, and the code of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
from tvm import te
from typing_extensions import override

from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.layers import AnchorOp, Form
from edgedeploy.compile.rounding import rounding_in, summed
from edgedeploy.target.board import Board

# Another form must take less than this part of the first one's time: the models are no better.
WORTHWHILE = 0.9

Anchor = TypeVar("Anchor", bound=AnchorOp, covariant=True)


@dataclass(frozen=True)
class Strategy(ABC, Generic[Anchor]):
    """The forms in which a board's backend can compute a layer."""

    layer: Anchor
    board: Board

    @abstractmethod
    def default(self) -> Configuration:
        """The fastest configuration by the backend's model."""

    @abstractmethod
    def candidates(self) -> Iterator[Configuration]:
        """All configurations that may be worth a trial, the default among them; each fits."""

    @abstractmethod
    def estimate(self, configuration: Configuration) -> float:
        """The time by the backend's model, in a unit of its own; good for comparing configurations."""

    @abstractmethod
    def fits(self, configuration: Configuration) -> bool:
        """Whether the layer can be computed in a configuration: true for each of `candidates`, and for more."""

    @abstractmethod
    def lower(self, configuration: Configuration) -> Form:
        """The layer in a configuration, as the backend's schedule templates expect it."""

    def alternatives(self) -> list[Configuration]:
        """The fastest configurations of forms with different rounding errors."""
        return [self.default()]

    def rounding(self, configuration: Configuration) -> float:
        """The variance of its rounding errors, as defined in `compile.rounding`."""
        return rounding_in(self.layer.types, self.roundings(configuration))

    def roundings(self, configuration: Configuration) -> float:
        """The variance of the rounding errors of its sums, in squares of their unit roundoff."""
        return summed(self.layer.terms)

    def packed(self, configuration: Configuration, weights: np.ndarray) -> np.ndarray:
        """The weights as the lowered form takes them."""
        return weights

    def packed_form(self, configuration: Configuration) -> Callable[[te.Tensor], te.Tensor] | None:
        """`packed` as code that may run when a network is loaded, to the last bit; None if there is none."""
        return None

    def packed_shape(self, configuration: Configuration) -> tuple[int, ...]:
        """The shape of the weights as the lowered form takes them."""
        return self.layer.weights

    def packed_type(self, configuration: Configuration) -> str:
        """The type of the weights as the lowered form takes them."""
        return self.layer.types.weights

    def described(self, configuration: Configuration) -> str:
        """A configuration in reports."""
        instruction, rate = self.step(configuration)
        return f"{configuration}, {instruction}, {rate:.3g} products per cycle" if instruction else str(configuration)

    def step(self, configuration: Configuration) -> tuple[str, float]:
        """The instruction that multiplies, empty if unknown, and the most products of the layer per cycle."""
        return "", 0.0

    def reason(self, configuration: Configuration) -> str:
        """Why a model prefers a form to the expected one; empty if it does not."""
        return ""


def _of_family(name: str) -> Any:
    """A method that calls the same method of the family that a configuration fits."""

    def method(self: Several[Any], configuration: Configuration, *others: Any) -> Any:
        return getattr(self.family(configuration), name)(configuration, *others)

    return method


@dataclass(frozen=True)
class Several(Strategy[Anchor]):
    """A layer with several families of forms, whose estimates are in the same unit; each configuration fits one.

    The first family is preferred to others that are hardly faster.
    """

    families: tuple[Strategy[Anchor], ...]

    estimate = _of_family("estimate")
    lower = _of_family("lower")
    rounding = _of_family("rounding")
    packed = _of_family("packed")
    packed_form = _of_family("packed_form")
    packed_shape = _of_family("packed_shape")
    packed_type = _of_family("packed_type")
    step = _of_family("step")

    def family(self, configuration: Configuration) -> Strategy[Anchor]:
        """The family that a configuration fits."""
        return next(each for each in self.families if each.fits(configuration))

    @override
    def default(self) -> Configuration:
        first, *others = self.families
        best = first.default()
        for configuration in (each.default() for each in others):
            if self.estimate(configuration) < WORTHWHILE * self.estimate(best):
                best = configuration
        return best

    @override
    def candidates(self) -> Iterator[Configuration]:
        return chain.from_iterable(each.candidates() for each in self.families)

    @override
    def alternatives(self) -> list[Configuration]:
        return [form for each in self.families for form in each.alternatives()]

    @override
    def fits(self, configuration: Configuration) -> bool:
        return any(each.fits(configuration) for each in self.families)

    @override
    def reason(self, configuration: Configuration) -> str:
        first, family = self.families[0], self.family(configuration)
        if family is first:
            return ""
        usual = first.default()
        part = family.estimate(configuration) / first.estimate(usual)
        return f"estimated at {part:.2f} of the time with {first.step(usual)[0]}"
