"""Backends, which run functions of a network: the forms of their layers, and the templates that schedule them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import tvm

from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.layers import AnyAnchorOp
from edgedeploy.compile.passes.fusion import FusedFunction
from edgedeploy.compile.schedules import TEMPLATE_ATTRIBUTE, Scheduled, Template, with_narrow_indices
from edgedeploy.compile.schedules.kernel import Kernel, after
from edgedeploy.compile.strategy import Strategy
from edgedeploy.target.board import Board


def write_module(module: Any, path: Path) -> None:
    """Write an LLVM module of TVM's as an object file.

    LLVM ends the process if a disk is full, so it writes into memory, and Python to the disk.
    """
    with os.fdopen(os.memfd_create("object"), "w+b") as memory:
        module.write_to_file(f"/proc/self/fd/{memory.fileno()}", "o")
        path.write_bytes(memory.read())


@dataclass(frozen=True)
class Generated:
    """Code of functions, to be linked into the library of their network.

    TVM links `objects` as they are; `libraries` are the LLVM modules behind them, for reports. It compiles `launched`
    for the board's target: kernels, and functions that launch them.
    """

    objects: list[Any] = field(default_factory=list)
    libraries: list[Any] = field(default_factory=list)
    launched: tvm.IRModule | None = None


@dataclass(frozen=True)
class Backend(ABC):
    """A processor of a board that functions run on: its types of configurations, and templates, tried in order."""

    board: Board
    forms: ClassVar[tuple[type[Configuration], ...]]
    templates: ClassVar[tuple[Template, ...]]

    @abstractmethod
    def strategy(self, layer: AnyAnchorOp) -> Strategy[Any]:
        """The forms of a layer."""

    @property
    def little_work(self) -> int:
        """The arithmetic operations that the CPU does before this backend would begin with a function."""
        return -1

    @abstractmethod
    def generate(self, functions: tvm.IRModule, folder: Path) -> Generated:
        """Generate the code of scheduled functions for a network's library; `folder` is for files."""

    @abstractmethod
    def write_objects(self, functions: tvm.IRModule, folder: Path) -> None:
        """Write object files of scheduled functions, which are linked into a library of their own."""

    def schedule(
        self,
        function: tvm.tirx.PrimFunc,
        packable: set[int],
        configuration: Configuration | None = None,
        layer: AnyAnchorOp | None = None,
    ) -> Scheduled | None:
        """Schedule one operator, or a fused group, by the first template that matches it; None if none does.

        `packable` are the indices of parameters that are constants in all calls. A function that holds a layer comes
        with it and its configuration.
        """
        kernel = Kernel(function, packable, configuration, layer)
        template = next((template for template in self.templates if template.matches(kernel)), None)
        if template is None:
            return None
        if template.narrows:
            kernel = Kernel(with_narrow_indices(function), packable, configuration, layer)
        template.apply(kernel, self.board)
        # The first attribute makes TVM's pipeline leave the function as it is.
        attributes = {"tirx.is_scheduled": True, TEMPLATE_ATTRIBUTE: template.name}
        result, chosen = kernel.schedule.mod["main"].with_attr(attributes), kernel.configuration
        tile = str(chosen) if chosen else ""
        return Scheduled(result, template.name, kernel.packing, chosen, kernel.operations, kernel.parallel, tile=tile)

    def configured(self, group: FusedFunction, configuration: Configuration, packable: set[int]) -> Scheduled:
        """Schedule a group with its layer in a configuration, which must fit it."""
        strategy = self.strategy(group.layer)
        form = strategy.form(configuration)
        scheduled = self.schedule(group.lower(form), packable, configuration, group.layer)
        assert scheduled is not None, "every layer has a template"
        packing = after(group.packing(form), scheduled.packing)
        tile, reason = strategy.described(configuration), strategy.reason(configuration)
        return replace(scheduled, packing=packing, tile=tile, reason=reason)
