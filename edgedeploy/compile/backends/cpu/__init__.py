"""A board's CPU."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from edgedeploy.compile.backend import Backend
from edgedeploy.compile.backends.cpu.configuration import Depthwise, Direct, Product, Winograd
from edgedeploy.compile.backends.cpu.schedules import TEMPLATES
from edgedeploy.compile.backends.cpu.strategies import STRATEGIES
from edgedeploy.compile.layers import AnyLayer
from edgedeploy.compile.strategy import Strategy


class Cpu(Backend):
    """A board's CPU."""

    forms = (Direct, Winograd, Depthwise, Product)
    templates = TEMPLATES

    @override
    def strategy(self, layer: AnyLayer) -> Strategy[Any]:
        return STRATEGIES[type(layer)](layer, self.board)
