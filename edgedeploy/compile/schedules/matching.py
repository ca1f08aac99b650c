"""Which functions templates take: what they compute, told by the names of their blocks."""

from __future__ import annotations

from edgedeploy.compile.operators import direct
from edgedeploy.compile.operators.product import MATMUL
from edgedeploy.compile.schedules.kernel import Kernel
from edgedeploy.compile.tiles import vector_length

# Vectors shorter than this are not worth a tile.
SHORTEST_VECTOR = 4


def is_convolution(kernel: Kernel) -> bool:
    """A direct convolution in which output channels may sum over several input channels."""
    return kernel.anchor() == direct.DENSE


def is_depthwise(kernel: Kernel) -> bool:
    """A convolution in which output channel c reads input channel c only."""
    return kernel.anchor() == direct.DEPTHWISE


def is_product(kernel: Kernel) -> bool:
    """A product of two matrices, or of two stacks of them, with whatever elementwise work follows."""
    anchor = kernel.anchor()
    if kernel.configuration is None or anchor != MATMUL:
        return False
    return divides_into_vectors(kernel.extents(kernel.block(anchor))[-2])


def divides_into_vectors(columns: int) -> bool:
    """Whether tiles are worth it, whose vectors divide the columns; `general` cuts others into vectors and a tail."""
    return columns <= SHORTEST_VECTOR or vector_length(columns, SHORTEST_VECTOR) == SHORTEST_VECTOR
