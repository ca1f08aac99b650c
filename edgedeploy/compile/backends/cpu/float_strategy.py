"""Sums of products of integers in float32, if that takes fewer instructions; layers read bytes and return integers.

Depthwise sums are exact: float32 holds each of them. Winograd's are rounded to whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from edgedeploy.compile.backends.cpu.configuration import Depthwise, Winograd
from edgedeploy.compile.backends.cpu.depthwise import DepthwiseStrategy
from edgedeploy.compile.backends.cpu.strategy import ConvolutionStrategy
from edgedeploy.compile.backends.cpu.tiles import RESULT_CYCLES
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.ir.types import LayerTypes, bytes_of, lanes_for
from edgedeploy.compile.layers import AnyAnchorOp, Convolution, DepthwiseConvolution
from edgedeploy.compile.strategy import PackedForm, Strategy
from edgedeploy.target.board import Board

Layer = Convolution | DepthwiseConvolution

_CONVERSION_CYCLES = 1  # cycles to convert a vector of sums to integers

# The architectures that have instructions to round vectors of floats to integers, and for which estimates of forms of
# floats and of integers were compared: with measurements on x86, with llvm-mca's predictions on ARM.
_ROUNDING = ("x86_64", "aarch64")

_EXACT = 2**24  # the largest whole number below which float32 holds all others


class FloatStrategy(Strategy[Layer]):
    """Convolutions of bytes, with constant weights, as Winograd's or of single channels, with sums in float32."""

    @classmethod
    def of(cls, layer: AnyAnchorOp, board: Board) -> FloatStrategy | None:
        """The strategy, if it applies to the layer."""
        of_bytes = bytes_of(layer.types.data) == bytes_of(layer.types.weights) == 1
        applies = board.family in _ROUNDING and of_bytes and layer.constant
        if not applies or not isinstance(layer, Convolution | DepthwiseConvolution):
            return None
        strategy = cls(layer, board)
        return strategy if strategy.alternatives() else None

    @override
    def default(self) -> Configuration:
        return min(self.alternatives(), key=self.estimate)

    @override
    def alternatives(self) -> list[Configuration]:
        return list(filter(self._is_form, self._floats.alternatives()))

    @override
    def candidates(self) -> Iterator[Configuration]:
        return filter(self._is_form, self._floats.candidates())

    @override
    def estimate(self, configuration: Configuration) -> float:
        vectors = math.prod(self.layer.size) * self.layer.channels / lanes_for(self.board, "float32")
        more = RESULT_CYCLES if isinstance(configuration, Winograd) else 0  # which the estimate of floats leaves out
        return self._floats.estimate(configuration) + vectors * (more + _CONVERSION_CYCLES)

    @override
    def fits(self, configuration: Configuration) -> bool:
        return self._is_form(configuration) and self._floats.fits(configuration)

    @override
    def form(self, configuration: Configuration) -> PackedForm:
        form = self._floats.form(configuration)  # whose `at_load` takes bytes too
        return form._replace(pack=lambda weights: form.pack(weights.astype(np.float32)))

    @override
    def rounding(self, configuration: Configuration) -> float:
        return self._floats.rounding(configuration) if isinstance(configuration, Winograd) else 0.0

    @override
    def step(self, configuration: Configuration) -> tuple[str, float]:
        return self._floats.step(configuration)

    @cached_property
    def _floats(self) -> Strategy[Any]:
        """The strategy of the layer if its weights and sums are floats."""
        types = LayerTypes(self.layer.types.data, "float32", "float32", self.layer.types.result)
        layer = self.layer.model_copy(update={"types": types})
        if isinstance(layer, DepthwiseConvolution):
            return DepthwiseStrategy(layer, self.board)
        return ConvolutionStrategy(layer, self.board)

    def _is_form(self, configuration: Configuration) -> bool:
        """Whether floats may be faster in this form, and sums are right."""
        largest = self.layer.terms * 2**8 * 2**7
        return isinstance(configuration, Winograd) or (isinstance(configuration, Depthwise) and largest <= _EXACT)
