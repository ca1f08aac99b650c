"""A board's OpenCL device."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from edgedeploy.compile.backend import Backend
from edgedeploy.compile.backends.opencl.configuration import WorkItem
from edgedeploy.compile.backends.opencl.schedules import TEMPLATES
from edgedeploy.compile.backends.opencl.strategy import DeviceStrategy
from edgedeploy.compile.layers import AnyLayer
from edgedeploy.compile.strategy import Strategy


class Device(Backend):
    """A board's OpenCL device."""

    forms = (WorkItem,)
    templates = TEMPLATES

    @override
    def strategy(self, layer: AnyLayer) -> Strategy[Any]:
        return DeviceStrategy(layer, self.board)
