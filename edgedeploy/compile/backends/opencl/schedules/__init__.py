"""Schedule templates for OpenCL devices: how the loops of one fused function become kernels.

A work-item computes what a tile is on a CPU: some pixels by some channels, whose sums stay in its registers, with
vectors over channels. So neighbouring work-items read neighbouring weights, and the same pixels. Nothing is shared
through local memory: an integrated graphics processor's caches serve as well, and a CPU has nothing else.
"""

from __future__ import annotations

from edgedeploy.compile.backends.opencl.schedules import convolution, depthwise, general, product
from edgedeploy.compile.schedules import Template
from edgedeploy.compile.schedules.matching import is_convolution, is_depthwise, is_product

TEMPLATES = (
    Template("gpu convolution", is_convolution, convolution.apply),
    Template("gpu depthwise convolution", is_depthwise, depthwise.apply),
    Template("gpu product", is_product, product.apply),
    Template("gpu general", general.matches, general.apply),
)
