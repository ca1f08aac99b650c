"""Dense layers: products with a matrix of constants."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

from typing_extensions import override

from edgedeploy.compile.layers.layer import AnchorOp, Form
from edgedeploy.compile.operators.product import MATMUL, product


class Dense(AnchorOp):
    """Rows x terms times terms x columns; the weights are constants."""

    kind: Literal["dense"] = "dense"

    @property
    @override
    def name(self) -> str:
        return MATMUL

    @property
    @override
    def operations(self) -> int:
        return 2 * self.data[0] * math.prod(self.weights)

    @override
    def canonical(self) -> Form:
        return partial(product, columns=self.weights[1], types=self.types, tile_rows=1)
