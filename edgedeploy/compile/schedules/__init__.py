"""What schedule templates share, which make fast code of one fused function: the first that matches it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm

from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.operators import direct
from edgedeploy.compile.operators.product import MATMUL
from edgedeploy.compile.schedules.kernel import Kernel, Packing
from edgedeploy.compile.tiles import vector_length
from edgedeploy.target.board import Board

TEMPLATE_ATTRIBUTE = "edgedeploy.template"  # the attribute of a scheduled function that names its template


@dataclass(frozen=True)
class Template:
    """One family's way to schedule a function in place."""

    name: str
    matches: Callable[[Kernel], bool]
    apply: Callable[[Kernel, Board], None]
    narrows: bool = False  # loops to int32: it marks them by `Kernel.partition`, or puts intrinsics into them


@dataclass(frozen=True)
class Scheduled:
    """A function that is ready for code generation."""

    function: tvm.tirx.PrimFunc
    template: str
    packing: Packing | None  # of the constant behind one of its parameters
    configuration: Configuration | None
    operations: int  # of one call; a multiply-add is two
    parallel: bool  # whether any part of it runs on all threads
    tuned: bool = False  # whether measurements chose the configuration
    exact: bool = False  # whether a faster form of the layer was rejected for its rounding errors
    tile: str = ""  # for reports: the layer's tile, its inner step and its products per cycle
    reason: str = ""  # for reports: why the layer is in another form than one would expect


def with_narrow_indices(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """The function with int32 loops, if no tensor is of int64: TVM 0.27 loses marks of loops that it narrows itself."""
    if any(str(parameter.ty.dtype) in ("int64", "uint64") for parameter in function.params):
        return function
    narrow = tvm.tirx.transform.ForceNarrowIndexToInt32()
    try:
        return narrow(tvm.IRModule({"main": function}))["main"]
    except Exception:  # of no class of its own: it holds a constant that needs int64
        return function


SHORTEST_VECTOR = 4  # vectors shorter than this are not worth a tile, nor loops of their own


def is_convolution(kernel: Kernel) -> bool:
    """A direct convolution in which output channels may sum over several input channels."""
    return kernel.anchor() == direct.DENSE


def is_depthwise(kernel: Kernel) -> bool:
    """A convolution in which output channel c reads input channel c only."""
    return kernel.anchor() == direct.DEPTHWISE


def is_product(kernel: Kernel) -> bool:
    """A product of two matrices, or of two stacks of them, with elementwise operators after it."""
    if kernel.configuration is None or kernel.anchor() != MATMUL:
        return False
    return divides_into_vectors(kernel.extents(kernel.block(MATMUL))[-2])


def divides_into_vectors(columns: int) -> bool:
    """Whether vectors divide the columns, so that tiles pay; `general` splits others into vectors and a tail."""
    return columns <= SHORTEST_VECTOR or vector_length(columns, SHORTEST_VECTOR) == SHORTEST_VECTOR
