"""Depthwise convolutions of bytes on CPUs without dot products, in TVM's tensor expressions.

The products of two kernel elements are added in 16 bits, and then to sums of 32: on ARM four instructions for sixteen
products (`smull`, `smlal`, `saddw`, `saddw2`), where each product widened by itself takes eight. That is exact unless
all four bytes are -128, which weights are not (`steps.least_weight`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from edgedeploy.compile.layers import DepthwiseConvolution
from edgedeploy.compile.operators.direct import DEPTHWISE, crop, whole_feature_map
from edgedeploy.compile.tiles import Tile

# Channels of a vector of products: 16 bits each.
CHANNELS = 8

# Kernels of up to so many elements are written out; of larger ones a row is.
WRITTEN_OUT = 9


@dataclass(frozen=True)
class PairForm:
    """A depthwise convolution as sums over pairs of kernel elements.

    Attributes:
        layer: it.
        tile: what the template computes at a time.
    """

    layer: DepthwiseConvolution
    tile: Tile
    multiply: str

    def compute(self, data: te.Tensor, weights: te.Tensor) -> te.Tensor:
        """The layer's sums, of its data and its weights."""
        window, batch, channels = self.layer.window, self.layer.batch, self.layer.channels
        whole = self.tile.whole(*self.layer.size)
        read = whole_feature_map(data, window, whole)
        height, width = window.kernel
        rows, elements = (1, math.prod(window.kernel)) if math.prod(window.kernel) <= WRITTEN_OUT else (height, width)
        row, pair = te.reduce_axis((0, rows), "ry"), te.reduce_axis((0, -(-elements // 2)), "rx")

        def sum_of_products(n: Any, y: Any, x: Any, c: Any) -> Any:
            def product(element: Any) -> Any:
                ky, kx = (row, element) if rows > 1 else (tirx.floordiv(element, width), tirx.floormod(element, width))
                down, across = y * window.strides[0] + ky * window.dilation[0], x * window.strides[1] + kx * window.dilation[1]
                return tirx.call_llvm_pure_intrin("int16", f"llvm.{self.multiply}", read(n, down, across, c), weights[ky, kx, 0, c])

            second = product(2 * pair + 1)
            if elements % 2:
                second = tirx.if_then_else(2 * pair + 1 < elements, second, tirx.const(0, "int16"))
            return te.sum((product(2 * pair) + second).astype("int32"), axis=[row, pair])

        sums = te.compute((batch, *whole, channels), sum_of_products, name=DEPTHWISE)
        return crop(sums, self.layer.size, self.layer.types.result)
