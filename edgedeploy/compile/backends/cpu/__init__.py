"""A board's CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
from typing_extensions import override

from edgedeploy.compile.backend import Backend, Generated
from edgedeploy.compile.backends.cpu import codegen
from edgedeploy.compile.backends.cpu.configuration import Depthwise, Direct, Product, Winograd
from edgedeploy.compile.backends.cpu.schedules import TEMPLATES
from edgedeploy.compile.backends.cpu.strategies import STRATEGIES
from edgedeploy.compile.layers import AnyLayer
from edgedeploy.compile.strategy import Strategy


class CpuBackend(Backend):
    """A board's CPU, which runs what no other backend takes."""

    forms = (Direct, Winograd, Depthwise, Product)
    templates = TEMPLATES

    @override
    def strategy(self, layer: AnyLayer) -> Strategy[Any]:
        return STRATEGIES[type(layer)](layer, self.board)

    @override
    def generate(self, functions: tvm.IRModule, folder: Path) -> Generated:
        return codegen.generate(functions, tvm.target.Target(self.board.cpu_target()), folder)

    @override
    def write_objects(self, functions: tvm.IRModule, folder: Path) -> None:
        codegen.write_object(functions, tvm.target.Target(self.board.cpu_target()), folder / "code.o")
