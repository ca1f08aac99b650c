"""Convolutions in which output channels sum over several input channels."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

from typing_extensions import override

from edgedeploy.compile.layers.layer import AnchorOp, Form
from edgedeploy.compile.operators import direct
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.tiles import ONE_BY_ONE


class _Convolution(AnchorOp):
    """What both kinds of convolution share."""

    window: Window
    groups: int = 1

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        return self.window.output_size(*self._feature_map)

    @property
    @override
    def operations(self) -> int:
        return 2 * self.data[0] * math.prod(self.size) * math.prod(self.weights)

    @property
    def inputs(self) -> int:
        """Input channels of one group."""
        return self.weights[2]

    @property
    def outputs(self) -> int:
        """Output channels of one group."""
        return self.weights[3] // self.groups

    @property
    def _feature_map(self) -> tuple[int, int]:
        raise NotImplementedError


class Convolution(_Convolution):
    """A convolution in NHWC, HWIO."""

    kind: Literal["convolution"] = "convolution"

    @property
    @override
    def name(self) -> str:
        return direct.DENSE

    @property
    def _feature_map(self) -> tuple[int, int]:
        return self.data[1], self.data[2]

    @override
    def canonical(self) -> Form:
        return partial(direct.convolution, window=self.window, groups=self.groups, types=self.types, tile=ONE_BY_ONE)


class FirstConvolution(_Convolution):
    """A convolution from NCHW into NHWC: a network's first layer."""

    kind: Literal["first convolution"] = "first convolution"

    @property
    @override
    def name(self) -> str:
        return f"{direct.DENSE}_nchw"

    @property
    def _feature_map(self) -> tuple[int, int]:
        return self.data[2], self.data[3]

    @override
    def canonical(self) -> Form:
        return partial(direct.convolution_of_nchw, window=self.window, types=self.types, tile=ONE_BY_ONE, lanes=1)
