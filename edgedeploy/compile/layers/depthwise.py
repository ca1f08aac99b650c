"""Convolutions that filter each channel by itself."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

from typing_extensions import override

from edgedeploy.compile.layers.layer import AnchorOp, Form
from edgedeploy.compile.operators import direct
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.tiles import ONE_BY_ONE


class DepthwiseConvolution(AnchorOp):
    """A convolution in NHWC, HWIO, of as many groups as channels."""

    kind: Literal["depthwise convolution"] = "depthwise convolution"
    window: Window

    @property
    @override
    def name(self) -> str:
        return direct.DEPTHWISE

    @property
    @override
    def operations(self) -> int:
        return 2 * self.data[0] * math.prod(self.size) * math.prod(self.weights)

    @property
    def channels(self) -> int:
        """Of the data and of the result."""
        return self.weights[3]

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        return self.window.output_size(self.data[1], self.data[2])

    @override
    def canonical(self) -> Form:
        return partial(direct.convolution, window=self.window, groups=self.channels, types=self.types, tile=ONE_BY_ONE)
