"""How a backend computes one layer: its configurations, their estimated times, and the code of each."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from tvm import te
from typing_extensions import override

from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.ir.types import LayerTypes, unit_roundoff
from edgedeploy.compile.layers import AnchorOp, Form
from edgedeploy.target.board import Board

# Rounding errors of sums are estimated for independent values of mean zero, whose rounding errors are independent too
# (N. J. Higham and T. Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019):
# as variances, relative to the variance of a layer's results. Worst-case bounds grow with the same norms of the
# transforms (B. Barabasz et al., Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural
# Networks, ACM TOMS 46(4), 2020), but no network comes near them. docs/schedules.md has measurements.

# The variance of one rounding, in squares of the unit roundoff: uniform in half a unit of the last place, of a value
# with a log-uniform mantissa.
ROUNDING = (1 - 1 / 4) / (2 * math.log(2)) / 3

# The terms of a sum of half precision that is added to others like it. Rounding errors of long sums grow with the root
# of their terms; in two levels, a sum of 4096 terms has the errors of one of 128.
SHORT_SUM = 64

# The products that the reference sums up before it adds that sum to others: onnxruntime's error stops growing there.
_REFERENCE_BLOCK = 144

WORTHWHILE = 0.9  # another form must take less than this part of the first one's time: the models are no better

Anchor = TypeVar("Anchor", bound=AnchorOp, covariant=True)


def additions(terms: float, accumulator: str) -> float:
    """The additions that round a term of a sum on its way to the result, at most."""
    return min(terms, SHORT_SUM) + terms / SHORT_SUM if accumulator == "float16" else terms


def summed(terms: float) -> float:
    """The rounding of a sum of products, one after the other, in squares of the unit roundoff.

    On average, a partial sum has half the variance of the whole.
    """
    return ROUNDING * terms / 2


def _rounding_in(types: LayerTypes, sums: float) -> float:
    """The rounding of a layer whose sums have a variance, in squares of their unit roundoff, stored as its result."""
    stored = unit_roundoff(types.result)
    last = ROUNDING * stored**2 if stored > unit_roundoff(types.accumulator) else 0.0
    return sums * unit_roundoff(types.accumulator) ** 2 + last


class PackedForm(NamedTuple):
    """A layer in a configuration: how it is computed from data and weights, which are packed in the order of use.

    `shape` and `dtype` are those of packed weights. `at_load` is `pack`, to the last bit, as code that may run when a
    network is loaded; None without such code.
    """

    compute: Form
    shape: tuple[int, ...]
    dtype: str
    pack: Callable[[np.ndarray], np.ndarray] = lambda weights: weights
    at_load: Callable[[te.Tensor], te.Tensor] | None = None


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
    def form(self, configuration: Configuration) -> PackedForm:
        """The layer in a configuration, as the backend's schedule templates expect it."""

    def unpacked(self, compute: Form) -> PackedForm:
        """The layer with weights in their own order."""
        return PackedForm(compute, self.layer.weights, self.layer.types.weights)

    def alternatives(self) -> list[Configuration]:
        """The fastest configurations of forms with different rounding errors."""
        return [self.default()]

    def rounding(self, configuration: Configuration) -> float:
        """The variance of its rounding errors, relative to the variance of its results."""
        return _rounding_in(self.layer.types, self.roundings(configuration))

    def roundings(self, configuration: Configuration) -> float:
        """The variance of the rounding errors of its sums, in squares of their unit roundoff."""
        return summed(additions(self.layer.terms, self.layer.types.accumulator))

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

    def method(self: Several[Any], configuration: Configuration) -> Any:
        return getattr(self.family(configuration), name)(configuration)

    return method


@dataclass(frozen=True)
class Several(Strategy[Anchor]):
    """A layer with several families of forms, whose estimates are in the same unit; each configuration fits one.

    The first family is preferred to others that are hardly faster.
    """

    families: tuple[Strategy[Anchor], ...]

    estimate = _of_family("estimate")
    form = _of_family("form")
    rounding = _of_family("rounding")
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


def within(
    limit: float, strategies: Mapping[str, Strategy[Any]], chosen: Mapping[str, Configuration], calls: Mapping[str, int]
) -> dict[str, Configuration]:
    """Configurations with which a network's rounding error stays within a limit, or comes as near to it as it can.

    All layers are assumed to matter equally to the outputs. If the limit is exceeded, the layer with the largest share
    takes the fastest form that rounds less, and so on. The limit is how many times the error of a reference the
    network's may be. By the names of functions, `chosen` has the fastest or measured configuration of their layers, and
    `calls` the calls in one inference.
    """
    chosen = dict(chosen)
    allowed = limit**2 * sum(calls[name] * _of_reference(strategy.layer) for name, strategy in strategies.items())

    def share(name: str) -> float:
        return calls[name] * strategies[name].rounding(chosen[name])

    changeable = set(strategies)
    while changeable and sum(map(share, strategies)) > allowed:
        name = max(sorted(changeable), key=share)
        strategy, error = strategies[name], strategies[name].rounding(chosen[name])
        exacter = [form for form in strategy.alternatives() if strategy.rounding(form) < error]
        if exacter:
            chosen[name] = min(exacter, key=strategy.estimate)
        else:
            changeable.remove(name)
    return chosen


def _of_reference(layer: AnchorOp) -> float:
    """The variance of the reference's rounding errors, which sums up in float32 at least."""
    types, block = layer.types, min(layer.terms, _REFERENCE_BLOCK)
    types = replace(types, accumulator=min("float32", types.accumulator, key=unit_roundoff))
    return _rounding_in(types, summed(block + layer.terms / block))
