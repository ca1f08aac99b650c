"""What every kind of layer offers: a plain form, its configurations, and how each of them is written."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
from tvm import te

from edgedeploy.board import Board
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.rounding import summed
from edgedeploy.documents import Record

# From the layer's data and its weights to its result.
Form = Callable[[te.Tensor, te.Tensor], te.Tensor]


class Layer(Record, ABC):
    """A layer with weights.

    Attributes:
        data, weights: their shapes.
        dtype: of both, and of the result.
        constant: whether the weights are known when the network is built, and may be re-laid.
    """

    data: tuple[int, ...]
    weights: tuple[int, ...]
    dtype: str
    constant: bool

    @property
    @abstractmethod
    def name(self) -> str:
        """What its function is called, alone or fused with others."""

    @property
    @abstractmethod
    def operations(self) -> int:
        """Arithmetic operations, a multiply-add being two, when it is computed directly."""

    @property
    def terms(self) -> int:
        """The products that are summed up for each value of the result."""
        return math.prod(self.weights[:-1])

    @abstractmethod
    def plain(self) -> Form:
        """The layer as a textbook has it: for other schedulers, and to know it again among tuning records."""

    @abstractmethod
    def default(self, board: Board) -> Configuration:
        """The configuration that a model of the board says is the fastest."""

    @abstractmethod
    def configurations(self, board: Board) -> Iterator[Configuration]:
        """All that may be worth a trial, the default among them; each is possible."""

    @abstractmethod
    def estimate(self, configuration: Configuration, board: Board) -> float:
        """Cycles that a model of the board expects for all cores together; good for comparing configurations."""

    def forms(self, board: Board) -> list[Configuration]:
        """The fastest configuration of each way to compute it, as far as their rounding errors differ."""
        return [self.default(board)]

    def rounding(self, configuration: Configuration) -> float:
        """The variance of its rounding errors, as `compile.rounding` has it."""
        return summed(self.terms)

    @abstractmethod
    def fits(self, configuration: Configuration, board: Board) -> bool:
        """Whether the layer can be computed so: true for each of `configurations`, and for more."""

    @abstractmethod
    def written(self, configuration: Configuration, board: Board) -> Form:
        """The layer in that configuration; the schedule templates expect these forms."""

    def relaid(self, configuration: Configuration, weights: np.ndarray) -> np.ndarray:
        """The weights as the written form takes them."""
        return weights

    def relaid_shape(self, configuration: Configuration) -> tuple[int, ...]:
        """The shape of the weights as the written form takes them."""
        return self.weights
