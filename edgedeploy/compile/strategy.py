"""How a backend computes one layer: its configurations, what a model expects of them, and the code of each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

import numpy as np
from tvm import te
from typing_extensions import override

from edgedeploy.board import Board
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.layers import AnchorOp, Form
from edgedeploy.compile.rounding import rounding_in, summed

# Other forms are preferred to those that are not quicker than this part of their time: the models are no better.
WORTHWHILE = 0.9

Anchor = TypeVar("Anchor", bound=AnchorOp, covariant=True)


@dataclass(frozen=True)
class Strategy(ABC, Generic[Anchor]):
    """The ways in which a backend can compute a layer.

    Attributes:
        layer: it.
        board: whose backend it is.
    """

    layer: Anchor
    board: Board

    @abstractmethod
    def default(self) -> Configuration:
        """The configuration that a model of the backend says is the fastest."""

    @abstractmethod
    def candidates(self) -> Iterator[Configuration]:
        """All that may be worth a trial, the default among them; each is possible."""

    @abstractmethod
    def estimate(self, configuration: Configuration) -> float:
        """The time that a model expects, in units of the backend's own; good for comparing configurations."""

    @abstractmethod
    def fits(self, configuration: Configuration) -> bool:
        """Whether the layer can be computed so: true for each of `candidates`, and for more."""

    @abstractmethod
    def lower(self, configuration: Configuration) -> Form:
        """The layer in that configuration; the backend's schedule templates expect these forms."""

    def alternatives(self) -> list[Configuration]:
        """The fastest configuration of each way to compute it, as far as their rounding errors differ."""
        return [self.default()]

    def rounding(self, configuration: Configuration) -> float:
        """The variance of its rounding errors, as `compile.rounding` has it."""
        return rounding_in(self.layer.types, self.roundings(configuration))

    def roundings(self, configuration: Configuration) -> float:
        """The variance of the rounding errors of its sums, in squares of their unit roundoff."""
        return summed(self.layer.terms)

    def packed(self, configuration: Configuration, weights: np.ndarray) -> np.ndarray:
        """The weights as the lowered form takes them."""
        return weights

    def packed_form(self, configuration: Configuration) -> Callable[[te.Tensor], te.Tensor] | None:
        """`packed` as code that may run when a network is loaded, to the last bit; None where there is none."""
        return None

    def packed_shape(self, configuration: Configuration) -> tuple[int, ...]:
        """The shape of the weights as the lowered form takes them."""
        return self.layer.weights

    def packed_type(self, configuration: Configuration) -> str:
        """The type of the weights as the lowered form takes them."""
        return self.layer.types.weights

    def described(self, configuration: Configuration) -> str:
        """What reports say of a configuration."""
        instruction, rate = self.step(configuration)
        return f"{configuration}, {instruction}, {rate:.3g} products per cycle" if instruction else str(configuration)

    def step(self, configuration: Configuration) -> tuple[str, float]:
        """By which instruction it multiplies, and how many products of the layer that takes in a cycle at most.

        An empty word where the backend does not say.
        """
        return "", 0.0

    def reason(self, configuration: Configuration) -> str:
        """Why a model prefers a form to those that one would expect; empty where it does not."""
        return ""


@dataclass(frozen=True)
class Several(Strategy[Anchor]):
    """A layer that can be computed in several families of forms, whose estimates are in the same unit.

    Attributes:
        families: of which each configuration fits one; the first is preferred to others that are hardly quicker.
    """

    families: tuple[Strategy[Anchor], ...]

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
    def estimate(self, configuration: Configuration) -> float:
        return self._family(configuration).estimate(configuration)

    @override
    def fits(self, configuration: Configuration) -> bool:
        return any(each.fits(configuration) for each in self.families)

    @override
    def lower(self, configuration: Configuration) -> Form:
        return self._family(configuration).lower(configuration)

    @override
    def rounding(self, configuration: Configuration) -> float:
        return self._family(configuration).rounding(configuration)

    @override
    def packed(self, configuration: Configuration, weights: np.ndarray) -> np.ndarray:
        return self._family(configuration).packed(configuration, weights)

    @override
    def packed_form(self, configuration: Configuration) -> Callable[[te.Tensor], te.Tensor] | None:
        return self._family(configuration).packed_form(configuration)

    @override
    def packed_shape(self, configuration: Configuration) -> tuple[int, ...]:
        return self._family(configuration).packed_shape(configuration)

    @override
    def packed_type(self, configuration: Configuration) -> str:
        return self._family(configuration).packed_type(configuration)

    @override
    def step(self, configuration: Configuration) -> tuple[str, float]:
        return self._family(configuration).step(configuration)

    @override
    def reason(self, configuration: Configuration) -> str:
        first, family = self.families[0], self._family(configuration)
        if family is first:
            return ""
        usual = first.default()
        part = family.estimate(configuration) / first.estimate(usual)
        return f"estimated at {part:.2f} of the time with {first.step(usual)[0]}"

    def _family(self, configuration: Configuration) -> Strategy[Anchor]:
        return next(each for each in self.families if each.fits(configuration))
