"""Depthwise convolutions of bytes on CPUs without dot products of bytes, in TVM's tensor expressions.

The products of two kernel elements are added in 16 bits, and then to sums of 32: on ARM four instructions for sixteen
products (`smull`, `smlal`, `saddw`, `saddw2`). That is exact unless all four bytes are -128, which such weights are not
(`steps.weight_type`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from edgedeploy.compile.backends.cpu.steps import Step
from edgedeploy.compile.layers import DepthwiseConvolution
from edgedeploy.compile.operators.direct import DEPTHWISE, crop, whole_feature_map
from edgedeploy.compile.tiles import Tile

# Channels of a vector of products: 16 bits each.
CHANNELS = 8

# Kernels of up to so many elements are written out; of larger ones a row is.
_WRITTEN_OUT = 9

# LLVM's names of the instructions that multiply bytes. Of casts it would widen the weights before the loops, and have
# too few registers for them on 32-bit ARM.
_PRODUCTS = {"smull": "llvm.aarch64.neon.smull", "vmull.s8": "llvm.arm.neon.vmulls"}


@dataclass(frozen=True)
class PairForm:
    """A depthwise convolution as sums over pairs of kernel elements.

    Attributes:
        layer: it.
        tile: what the template computes at a time; its channels are vectors of `CHANNELS`.
        step: whose instruction multiplies.
    """

    layer: DepthwiseConvolution
    tile: Tile
    step: Step

    def compute(self, data: te.Tensor, weights: te.Tensor) -> te.Tensor:
        """The layer's sums, of its data and its weights."""
        window, (height, width) = self.layer.window, self.layer.window.kernel
        whole = self.tile.whole(*self.layer.size)
        read = whole_feature_map(data, window, whole, data.dtype)
        rows, elements = (1, height * width) if math.prod(window.kernel) <= _WRITTEN_OUT else (height, width)
        row, pair = te.reduce_axis((0, rows), "ry"), te.reduce_axis((0, -(-elements // 2)), "rx")

        def sum_of_products(n: Any, y: Any, x: Any, c: Any) -> Any:
            def product(element: Any) -> Any:
                # A row's elements, or all of them, one after the other.
                ky, kx = row + tirx.floordiv(element, width), tirx.floormod(element, width)
                place = y * window.strides[0] + ky * window.dilation[0], x * window.strides[1] + kx * window.dilation[1]
                factors = read(n, *place, c), weights[ky, kx, 0, c]
                return tirx.call_llvm_pure_intrin("int16", _PRODUCTS[self.step.instruction], *factors)

            second = product(2 * pair + 1)
            if elements % 2:
                second = tirx.if_then_else(2 * pair + 1 < elements, second, tirx.const(0, "int16"))
            return te.sum((product(2 * pair) + second).astype("int32"), axis=[row, pair])

        sums = te.compute((self.layer.batch, *whole, self.layer.channels), sum_of_products, name=DEPTHWISE)
        return crop(sums, self.layer.size, self.layer.types.result)
