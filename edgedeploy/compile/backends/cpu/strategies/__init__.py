"""How CPUs compute layers, chosen by models of the board."""

from __future__ import annotations

from typing import Any

from edgedeploy.compile.backends.cpu.strategies.convolution import ConvolutionStrategy, FirstConvolutionStrategy
from edgedeploy.compile.backends.cpu.strategies.depthwise import DepthwiseStrategy
from edgedeploy.compile.backends.cpu.strategies.product import DenseStrategy
from edgedeploy.compile.layers import Convolution, Dense, DepthwiseConvolution, FirstConvolution
from edgedeploy.compile.strategy import Strategy

STRATEGIES: dict[type, type[Strategy[Any]]] = {
    Convolution: ConvolutionStrategy,
    FirstConvolution: FirstConvolutionStrategy,
    DepthwiseConvolution: DepthwiseStrategy,
    Dense: DenseStrategy,
}
