"""What functions run on: how their layers may be computed there, and which templates schedule them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import tvm
from typing_extensions import override

from edgedeploy.board import Board
from edgedeploy.compile.configuration import Configuration, Depthwise, Direct, Product, Winograd, WorkItem
from edgedeploy.compile.groups import Group
from edgedeploy.compile.layers import AnyLayer
from edgedeploy.compile.schedules import Scheduled, schedule_function
from edgedeploy.compile.schedules.gpu import schedule_for_device, tiles
from edgedeploy.compile.schedules.gpu.threads import device_of
from edgedeploy.compile.schedules.kernel import after


@dataclass(frozen=True)
class Processor(ABC):
    """What functions run on.

    Attributes:
        board: whose it is.
        forms: that configurations may have there.
    """

    board: Board
    forms: ClassVar[tuple[type[Configuration], ...]]

    @abstractmethod
    def default(self, layer: AnyLayer) -> Configuration:
        """The configuration of a layer that a model of the processor says is the fastest."""

    @abstractmethod
    def configurations(self, layer: AnyLayer) -> Iterator[Configuration]:
        """All of a layer that may be worth a trial, the default among them; each is possible."""

    @abstractmethod
    def estimate(self, layer: AnyLayer, configuration: Configuration) -> float:
        """The time that a model of the processor expects, in units of its own: good for comparing configurations."""

    @abstractmethod
    def fits(self, layer: AnyLayer, configuration: Configuration) -> bool:
        """Whether a layer can be computed so: true for each of `configurations`, and for more."""

    @abstractmethod
    def schedule(
        self, function: tvm.tirx.PrimFunc, packable: set[int], configuration: Configuration | None = None
    ) -> Scheduled | None:
        """Schedule a function, whose layer, if it has one, was written in a configuration; None if no template can.

        Args:
            function: one operator or a fused group of them.
            packable: the parameters, by index, that are constant wherever the function is called.
            configuration: of the layer.
        """

    def configured(self, group: Group, configuration: Configuration, packable: set[int]) -> Scheduled:
        """Schedule a group with its layer in a configuration, which must fit it."""
        scheduled = self.schedule(group.written(configuration, self.board), packable, configuration)
        assert scheduled is not None, "every layer has a template"
        return replace(scheduled, packing=after(group.relaying(configuration), scheduled.packing))


class Cpu(Processor):
    """A board's CPU."""

    forms = (Direct, Winograd, Depthwise, Product)

    @override
    def default(self, layer: AnyLayer) -> Configuration:
        return layer.default(self.board)

    @override
    def configurations(self, layer: AnyLayer) -> Iterator[Configuration]:
        return layer.configurations(self.board)

    @override
    def estimate(self, layer: AnyLayer, configuration: Configuration) -> float:
        return layer.estimate(configuration, self.board)

    @override
    def fits(self, layer: AnyLayer, configuration: Configuration) -> bool:
        return layer.fits(configuration, self.board)

    @override
    def schedule(
        self, function: tvm.tirx.PrimFunc, packable: set[int], configuration: Configuration | None = None
    ) -> Scheduled:
        return schedule_function(function, self.board, packable=packable, configuration=configuration)


class Device(Processor):
    """A board's OpenCL device."""

    forms = (WorkItem,)

    @override
    def default(self, layer: AnyLayer) -> Configuration:
        return tiles.default_for_device(layer, device_of(self.board))

    @override
    def configurations(self, layer: AnyLayer) -> Iterator[Configuration]:
        return tiles.configurations_for_device(layer, device_of(self.board))

    @override
    def estimate(self, layer: AnyLayer, configuration: Configuration) -> float:
        assert isinstance(configuration, WorkItem)
        return tiles.cycles_on_device(layer, configuration, device_of(self.board))

    @override
    def fits(self, layer: AnyLayer, configuration: Configuration) -> bool:
        return tiles.fits_device(layer, configuration, device_of(self.board))

    @override
    def schedule(
        self, function: tvm.tirx.PrimFunc, packable: set[int], configuration: Configuration | None = None
    ) -> Scheduled | None:
        return schedule_for_device(function, self.board, packable=packable, configuration=configuration)


def processor_of(board: Board) -> Processor:
    """What a board's networks run on: its OpenCL device if the profile names one, else its CPU."""
    return Device(board) if board.opencl else Cpu(board)
