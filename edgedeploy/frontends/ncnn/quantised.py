"""Layers of 8 bits, as `ncnn2int8` writes them: the scales of weights, input and output, and rounding to them.

ncnn's scales are factors: an integer is `round(value * scale)` within -127 and 127, halves away from zero
(float2int8 in src/layer/quantize.cpp). Sums become real numbers before the bias is added, which
stays in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from edgedeploy.compile.backends.cpu.steps import Step
from edgedeploy.compile.quantisation import AWAY_FROM_ZERO
from edgedeploy.frontends.ncnn.step import Blob

_LARGEST = 127
_REQUANTISED = 100  # above it, parameter 8 says that the output is rounded too
_FORMS = (0, 1, 2, 101, 102)


@dataclass(frozen=True)
class Scales:
    """What a layer multiplies by before it rounds.

    Attributes:
        weights: one for each output; zero where all of an output's weights are.
        data: of the input.
        result: of the output; None if it stays in float32.
    """

    weights: np.ndarray
    data: float
    result: float | None

    @staticmethod
    def read(step: Step, outputs: int, groups: int = 0) -> Scales | None:
        """The next scales of the file; None if the layer is in float.

        Args:
            step: the layer.
            outputs: how many it has.
            groups: of a grouped convolution, which has a scale for each of them.

        Raises:
            ModelError: parameter 8 is not known, or scales are impossible.
        """
        layer = step.layer
        form = layer.integer(8)
        if form not in _FORMS:
            raise layer.error(f"its form of quantisation (parameter 8) is {form}, which is not known")
        if not form:
            return None
        count = (1 if form % _REQUANTISED == 2 else groups) if groups else outputs
        weights = step.weights.scales(count, layer.name)
        [data] = step.weights.scales(1, layer.name)
        [result] = step.weights.scales(1, layer.name) if form > _REQUANTISED else [np.float32(1)]
        if not np.isfinite([*weights, data, result]).all() or min(data, result) <= 0 or weights.min() < 0:
            raise layer.error("its scales (of weights, input or output) are impossible")
        return Scales(np.repeat(weights, outputs // count), data, result if form > _REQUANTISED else None)

    def integers(self, weights: np.ndarray) -> np.ndarray:
        """Weights as int8, their first axis that of outputs; float32 ones are rounded as when ncnn loads them."""
        if weights.dtype == np.int8:
            return weights
        scaled = weights * self.weights.reshape(-1, *[1] * (weights.ndim - 1))
        rounded = np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))
        return np.clip(rounded, -_LARGEST, _LARGEST).astype(np.int8)

    def dequantised(self, step: Step, weights: np.ndarray, *, transposed: bool = False) -> str:
        """The real numbers of weights, whose first axis is that of outputs, or the last when they are transposed."""
        integers = self.integers(weights)
        integers = np.ascontiguousarray(integers.T) if transposed else integers
        steps = np.where(self.weights > 0, 1 / np.where(self.weights > 0, self.weights, 1), 1)
        scale, zero_points = step.constant(steps), step.stored(np.zeros(len(steps), np.int8))
        # Axes are counted from behind the batch, which weights do not have.
        axis = 0 if transposed else -1
        return step.node("DequantizeLinear", step.stored(integers), scale, zero_points, axis=axis).value


def rounded(step: Step, blob: Blob, scale: float | None) -> Blob:
    """A blob as 8 bits can hold it; unchanged without a scale."""
    if scale is None or blob.factor == scale:
        return blob
    one = np.float32(1) / np.float32(scale)
    clipped = step.node("Clip", blob, step.constant(-_LARGEST * one), step.constant(_LARGEST * one))
    further = step.node("Mul", clipped, step.constant(AWAY_FROM_ZERO))
    steps = step.constant(one), step.stored(np.zeros((), np.int8))
    found = step.node("DequantizeLinear", step.node("QuantizeLinear", further, *steps), *steps)
    return replace(found, factor=scale)
