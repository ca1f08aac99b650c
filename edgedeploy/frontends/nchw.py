"""Networks of NHWC feature maps, rewritten for the compiler, which expects NCHW."""

from __future__ import annotations

import tvm

from edgedeploy.compile.passes.constants import fold_around_integers
from edgedeploy.compile.passes.layouts import convert_layout, remove_transposes
from edgedeploy.compile.passes.unify import canonicalise
from edgedeploy.compile.quantisation import has_quantisation, recognise, spell_out

_LAYOUTS = {
    "relax.image.resize2d": ["NCHW"],
    "relax.nn.conv2d": ["NCHW", "OIHW"],
    "relax.nn.conv2d_transpose": ["NCHW", "IOHW"],
    "relax.nn.conv3d": ["NCDHW", "OIDHW"],
}


def in_nchw(module: tvm.IRModule) -> tvm.IRModule:
    """The module with convolutions and resizing of NHWC feature maps in NCHW, weights in OIHW.

    What lies between them follows, so that transposes remain at the edges only. Quantised weights stay integers.
    """
    quantised = has_quantisation(module)
    module = fold_around_integers(spell_out(module) if quantised else module)
    module = remove_transposes(fold_around_integers(convert_layout(canonicalise(module), _LAYOUTS)))
    return recognise(module) if quantised else module
