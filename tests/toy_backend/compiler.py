"""The toy's side of the compiler: one form of layers, one template, and LLVM."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import tvm
from typing_extensions import override

from edgedeploy.compile.backend import Backend, Generated
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.layers import AnchorOp, AnyAnchorOp
from edgedeploy.compile.schedules import Template, is_convolution, is_depthwise, is_product
from edgedeploy.compile.schedules.kernel import Kernel
from edgedeploy.compile.strategy import PackedForm, Strategy
from edgedeploy.compile.tiles import ONE_BY_ONE, Tile
from edgedeploy.target.board import Board
from toy_backend import Toy


class Scalar(Configuration):
    """Loops over one value at a time, the innermost one unrolled or not."""

    form: Literal["scalar"] = "scalar"
    unroll: bool

    @property
    @override
    def register_tile(self) -> Tile:
        return ONE_BY_ONE


class ToyStrategy(Strategy[AnchorOp]):
    """Any layer, in its canonical form."""

    @override
    def default(self) -> Configuration:
        device = self.board.device
        assert isinstance(device, Toy)
        return Scalar(unroll=device.unroll)

    @override
    def candidates(self) -> Iterator[Configuration]:
        yield from (Scalar(unroll=unroll) for unroll in (False, True))

    @override
    def estimate(self, configuration: Configuration) -> float:
        return float(self.layer.operations)

    @override
    def fits(self, configuration: Configuration) -> bool:
        return isinstance(configuration, Scalar)

    @override
    def form(self, configuration: Configuration) -> PackedForm:
        return self.unpacked(self.layer.canonical())


def apply(kernel: Kernel, board: Board) -> None:
    """Leave the loops as they are."""
    anchor = kernel.anchor()
    assert anchor is not None
    assert isinstance(kernel.configuration, Scalar)
    block = kernel.block(anchor)
    kernel.operations += 2 * math.prod(kernel.extents(block))
    if kernel.configuration.unroll:
        kernel.schedule.unroll(kernel.schedule.get_loops(block)[-1])


def matches(kernel: Kernel) -> bool:
    """A layer; all other functions are left to the CPU."""
    return kernel.configuration is not None and any(each(kernel) for each in (is_convolution, is_depthwise, is_product))


class ToyBackend(Backend):
    """What schedules layers, and compiles them, for the toy."""

    forms = (Scalar,)
    templates = (Template("toy", matches, apply),)

    @override
    def strategy(self, layer: AnyAnchorOp) -> Strategy[Any]:
        return ToyStrategy(layer, self.board)

    @override
    def generate(self, functions: tvm.IRModule, folder: Path) -> Generated:
        names = [variable.name_hint for variable in functions.get_global_vars()]
        library = self._written(functions, folder / "toy.o")
        return Generated([tvm.runtime.load_static_library(str(folder / "toy.o"), names)], [library])

    @override
    def write_objects(self, functions: tvm.IRModule, folder: Path) -> None:
        self._written(functions, folder / "toy.o")

    def _written(self, functions: tvm.IRModule, path: Path) -> Any:
        library = tvm.tirx.build(functions, target=tvm.target.Target(self.board.target()))
        library.write_to_file(str(path), "o")
        return library
