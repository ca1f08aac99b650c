"""What every kind of layer says of itself, and its canonical form."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

from tvm import te

from edgedeploy.compile.types import LayerTypes
from edgedeploy.documents import Record

# From the layer's data and its weights to its result.
Form = Callable[[te.Tensor, te.Tensor], te.Tensor]


class AnchorOp(Record, ABC):
    """A layer with weights.

    Attributes:
        data, weights: their shapes.
        types: of both, of the sums and of the result.
        constant: whether the weights are known when the network is built, and may be packed.
    """

    data: tuple[int, ...]
    weights: tuple[int, ...]
    types: LayerTypes
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
    def canonical(self) -> Form:
        """The layer as a textbook has it: for other schedulers, and to know it again among tuning records."""
