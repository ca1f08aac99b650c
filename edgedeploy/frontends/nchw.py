"""Networks of NHWC feature maps, rewritten for the compiler, which expects NCHW."""

from __future__ import annotations

import tvm

from edgedeploy.compile.canonical import canonicalise
from edgedeploy.compile.constants import fold_constants
from edgedeploy.compile.layouts import convert_layout, remove_transposes

_LAYOUTS = {
    "relax.image.resize2d": ["NCHW"],
    "relax.nn.conv2d": ["NCHW", "OIHW"],
    "relax.nn.conv2d_transpose": ["NCHW", "IOHW"],
}


def in_nchw(module: tvm.IRModule) -> tvm.IRModule:
    """The module with convolutions and resizing of NHWC feature maps in NCHW, weights in OIHW.

    What lies between them follows, so that transposes remain at the edges only.
    """
    converted = convert_layout(canonicalise(fold_constants(module)), _LAYOUTS)
    return remove_transposes(fold_constants(converted))
