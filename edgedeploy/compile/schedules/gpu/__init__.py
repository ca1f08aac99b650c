"""Schedule templates for OpenCL devices: how the loops of one fused function become kernels.

A work-item computes what a tile is on a CPU: some pixels by some channels, whose sums stay in its registers, with
vectors over channels. So neighbouring work-items read neighbouring weights, and the same pixels. Nothing is shared
through local memory: an integrated graphics processor's caches serve as well, and a CPU has nothing else.
"""

from __future__ import annotations

import tvm

from edgedeploy.board import Board
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.schedules import Scheduled, Template
from edgedeploy.compile.schedules.gpu import convolution, depthwise, general, product
from edgedeploy.compile.schedules.kernel import Kernel

__all__ = ["TEMPLATES", "schedule_for_device"]

TEMPLATES = (
    Template("gpu convolution", convolution.matches, convolution.apply),
    Template("gpu depthwise convolution", depthwise.matches, depthwise.apply),
    Template("gpu product", product.matches, product.apply),
    Template("gpu general", general.matches, general.apply),
)


def schedule_for_device(
    function: tvm.tirx.PrimFunc, board: Board, *, packable: set[int], configuration: Configuration | None = None
) -> Scheduled | None:
    """Schedule one function for a board's OpenCL device, by the first template that matches it; None if none does.

    Args:
        function: one operator or a fused group of them.
        board: whose OpenCL device the code is for.
        packable: the parameters, by index, that are constant wherever the function is called.
        configuration: that the layer in the function was written in.
    """
    kernel = Kernel(function, packable, configuration)
    template = next((template for template in TEMPLATES if template.matches(kernel)), None)
    if template is None:
        return None
    packing = template.apply(kernel, board)
    scheduled = kernel.schedule.mod["main"].with_attr("tirx.is_scheduled", True)
    return Scheduled(scheduled, template.name, packing, kernel.configuration, kernel.operations, parallel=True)
