"""What schedule templates share: how the loops of one fused function become fast code.

A template is for one family of functions. Each backend has a list of them; the first one that matches a function
schedules it.
"""

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

# The attribute of a scheduled function that names its template.
TEMPLATE_ATTRIBUTE = "edgedeploy.template"


@dataclass(frozen=True)
class Template:
    """One family's way to schedule a function.

    Attributes:
        name: for reports.
        apply: schedules the function in place; returns how its weights must be packed, if they must.
        narrows: whether loops have to be of int32: it marks them by `Kernel.partition`, or puts intrinsics into them.
    """

    name: str
    matches: Callable[[Kernel], bool]
    apply: Callable[[Kernel, Board], Packing | None]
    narrows: bool = False


@dataclass(frozen=True)
class Scheduled:
    """A function that is ready for code generation.

    Attributes:
        packing: how the constant behind one of its parameters must be packed, or None.
        configuration: of the layer in it; None without a layer.
        operations: arithmetic operations of one call; a multiply-add is two.
        parallel: whether any part of it runs on all threads.
        tuned: whether measurements chose the configuration.
        exact: whether a faster form of the layer was rejected for its rounding errors.
        tile: the sizes of the layer's tile, its inner step and its products per cycle, for reports; empty without a
            layer.
        reason: why the layer is in another form than one would expect, for reports; empty if it is not.
    """

    function: tvm.tirx.PrimFunc
    template: str
    packing: Packing | None
    configuration: Configuration | None
    operations: int
    parallel: bool
    tuned: bool = False
    exact: bool = False
    tile: str = ""
    reason: str = ""


def with_narrow_indices(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """The function with int32 loops and indices, if none of its tensors is of int64.

    TVM 0.27 loses the marks of loops when it narrows them itself.
    """
    if any(str(parameter.ty.dtype) in ("int64", "uint64") for parameter in function.params):
        return function
    narrow = tvm.tirx.transform.ForceNarrowIndexToInt32()
    try:
        return narrow(tvm.IRModule({"main": function}))["main"]
    except Exception:  # of no class of its own: it holds a constant that needs int64
        return function


# Vectors shorter than this are not worth a tile.
SHORTEST_VECTOR = 4


def is_convolution(kernel: Kernel) -> bool:
    """A direct convolution in which output channels may sum over several input channels."""
    return kernel.anchor() == direct.DENSE


def is_depthwise(kernel: Kernel) -> bool:
    """A convolution in which output channel c reads input channel c only."""
    return kernel.anchor() == direct.DEPTHWISE


def is_product(kernel: Kernel) -> bool:
    """A product of two matrices, or of two stacks of them, with elementwise operators after it."""
    anchor = kernel.anchor()
    if kernel.configuration is None or anchor != MATMUL:
        return False
    return divides_into_vectors(kernel.extents(kernel.block(anchor))[-2])


def divides_into_vectors(columns: int) -> bool:
    """Whether vectors divide the columns, so that tiles pay; `general` splits others into vectors and a tail."""
    return columns <= SHORTEST_VECTOR or vector_length(columns, SHORTEST_VECTOR) == SHORTEST_VECTOR
