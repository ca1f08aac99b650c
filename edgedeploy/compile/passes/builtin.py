"""The passes of edgedeploy, in order."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic.pipeline import library_dispatch_passes

from edgedeploy.compile.passes import Form, Pass, of_module
from edgedeploy.compile.passes.arithmetic import GUARD_INTEGERS
from edgedeploy.compile.passes.constants import FLUSH_SUBNORMALS, FOLD_CONSTANTS
from edgedeploy.compile.passes.convolutions import (
    CONVOLVE_AVERAGES,
    FOLD_SCALES,
    REWRITE_TRANSPOSED,
    SPLIT_CONCATENATIONS,
    TRIM_KERNELS,
)
from edgedeploy.compile.passes.dead_channels import REMOVE_CHANNELS
from edgedeploy.compile.passes.fusion import KEEP_BROADCASTS_APART, KEEP_SLICES_APART, LOWER_ANCHORS, MERGE_FUSED
from edgedeploy.compile.passes.integers import COMPUTE_IN_INTEGERS, ROUND_IN_FLOAT
from edgedeploy.compile.passes.layouts import CONVERT_LAYOUT, REMOVE_TRANSPOSES, SEPARATE_RESIZES
from edgedeploy.compile.passes.legalisation import LEGALISE_OPERATORS
from edgedeploy.compile.passes.pad_channels import PAD_CHANNELS
from edgedeploy.compile.passes.signals import LIFT_GROUPS, LIFT_SIGNALS
from edgedeploy.compile.passes.unify import CANONICALISE_OPERATORS, DECOMPOSE_OPERATORS, UNIFY_OPERATORS
from edgedeploy.compile.passes.unrolled import ROLL_LOOPS
from edgedeploy.compile.passes.volumes import LIFT_VOLUMES

# The attribute of reshapes that are copies, not views.
COPIED = "edgedeploy.copied"

_FUNCTIONS, _FUSED, _VIEWS = Form("functions"), Form("fused functions"), Form("fused functions and views")


def _make_views(module: tvm.IRModule) -> tvm.IRModule:
    """Leave functions and views alone, which can be placed on a device or a CPU.

    Operators that TVM makes functions of last, as sorting, become functions for the CPU here. Reshapes become views,
    but reshapes that make an output are copied.
    """
    module = tvm.transform.Sequential(
        [
            *library_dispatch_passes(tvm.target.Target.current()),
            relax.transform.LegalizeOps(),
            relax.transform.RewriteDataflowReshape(),
            relax.transform.DeadCodeElimination(),
        ]
    )(module)
    for variable, function in module.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc) and relax.analysis.has_reshape_pattern(function):
            module.update_func(variable, function.with_attr(COPIED, True))
    return module


PASSES = [
    DECOMPOSE_OPERATORS,
    FOLD_CONSTANTS,
    UNIFY_OPERATORS,
    ROLL_LOOPS,
    LIFT_SIGNALS,
    LIFT_VOLUMES,
    LIFT_GROUPS,
    CANONICALISE_OPERATORS,
    COMPUTE_IN_INTEGERS,
    ROUND_IN_FLOAT,
    REWRITE_TRANSPOSED,
    TRIM_KERNELS,
    FOLD_SCALES,
    FLUSH_SUBNORMALS,
    REMOVE_CHANNELS,
    CONVOLVE_AVERAGES,
    SPLIT_CONCATENATIONS,
    PAD_CHANNELS,
    CONVERT_LAYOUT,
    REMOVE_TRANSPOSES,
    SEPARATE_RESIZES,
    GUARD_INTEGERS,
    LOWER_ANCHORS,
    LEGALISE_OPERATORS,
    Pass(
        "annotate-patterns",
        "Mark functions by what they can be fused with.",
        of_module(relax.transform.AnnotateTIROpPattern()),
        _FUNCTIONS,
    ),
    KEEP_SLICES_APART,
    KEEP_BROADCASTS_APART,
    Pass("fold-calls", "Evaluate functions of constants.", of_module(relax.transform.FoldConstant()), _FUNCTIONS),
    Pass("fuse-operators", "Group functions that run as one.", of_module(relax.transform.FuseOps()), _FUNCTIONS),
    MERGE_FUSED,
    Pass("remove-dead-code", "Remove what no output needs.", of_module(relax.transform.DeadCodeElimination()), _FUSED),
    Pass(
        "make-views",
        "Make views of reshapes, between functions that can run on a device or on the CPU.",
        of_module(_make_views),
        _FUSED,
        _VIEWS,
        required="tensors are copied between a device and the CPU by functions and views alone",
        applies=lambda board: board.accelerator is not None,
    ),
]
