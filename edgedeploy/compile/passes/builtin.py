"""The passes of edgedeploy, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic.pipeline import library_dispatch_passes

from edgedeploy.compile import arithmetic, concatenations, extremes, guards, rowwise, sampling
from edgedeploy.compile.averages import convolve_averages
from edgedeploy.compile.backends import host_of
from edgedeploy.compile.canonical import canonicalise
from edgedeploy.compile.channels import pad_channels
from edgedeploy.compile.concatenations import split_concatenations
from edgedeploy.compile.constants import flush_subnormals, fold_constants
from edgedeploy.compile.dead_channels import remove_channels
from edgedeploy.compile.folding import fold_scales
from edgedeploy.compile.fusion import INJECTIVE, fused_functions, keep_broadcasts_apart
from edgedeploy.compile.grouped import lift_groups
from edgedeploy.compile.integers import compute_in_integers
from edgedeploy.compile.layouts import convert_layout, remove_transposes
from edgedeploy.compile.lowering import lower_layers
from edgedeploy.compile.one_dimensional import lift_signals
from edgedeploy.compile.optraits import slow_operators
from edgedeploy.compile.passes import Compilation, Form, Pass
from edgedeploy.compile.quantisation import round_in_float
from edgedeploy.compile.resizing import separate_resizes
from edgedeploy.compile.three_dimensional import lift_volumes
from edgedeploy.compile.transposed import rewrite_transposed
from edgedeploy.compile.trimming import trim_kernels
from edgedeploy.compile.unified import decompose, unify
from edgedeploy.compile.unrolled import roll_loops

# The attribute of reshapes that are no views.
COPIED = "edgedeploy.copied"

# The attribute of a network: by name, its operators that are slow or may be, and why.
SLOW_OPERATORS = "edgedeploy.slow_operators"

# Convolutions and what lies between them work on pixels whose channels are neighbours in memory.
_LAYOUTS = {"relax.nn.conv2d": ["NHWC", "HWIO"], "relax.image.resize2d": ["NHWC"]}

# What functions operators become where TVM's own are not used, by their names.
_LEGALISATIONS = {
    **arithmetic.LEGALISATIONS,
    **concatenations.LEGALISATIONS,
    **extremes.LEGALISATIONS,
    **guards.LEGALISATIONS,
    **rowwise.LEGALISATIONS,
    **sampling.LEGALISATIONS,
}

_NCHW, _NHWC = Form("NCHW"), Form("NHWC")
_FLOAT = Form("NCHW", ("float32",))
_QUANTISED = Form("NCHW", ("int8", "uint8", "int16", "uint16"))
_FUNCTIONS, _FUSED, _VIEWS = Form("functions"), Form("fused functions"), Form("fused functions and views")


def _alone(function: Callable[[tvm.IRModule], tvm.IRModule]) -> Callable[[Any, Compilation], Any]:
    """A pass that needs nothing but the module."""
    return lambda module, compilation: function(module)


def _remove_channels(module: tvm.IRModule, compilation: Compilation) -> tvm.IRModule:
    """Remove channels; what they become in the sums that read them joins those layers' biases."""
    module, removed = remove_channels(module)
    compilation.removed += removed
    return fold_scales(module) if removed else module


def _fold_constants(module: tvm.IRModule, compilation: Compilation) -> tvm.IRModule:
    """Fold constants; a CPU may compute with weights that are stored as integers."""
    return fold_constants(module, but_quantised_weights=compilation.board.device is None)


def _compute_in_integers(module: tvm.IRModule, compilation: Compilation) -> tvm.IRModule:
    return compute_in_integers(module, host_of(compilation.board))


def _round_in_float(module: tvm.IRModule) -> tvm.IRModule:
    return fold_constants(round_in_float(module))


def _convert_layout(module: tvm.IRModule) -> tvm.IRModule:
    module = fold_constants(convert_layout(module, _LAYOUTS))
    return module.with_attr(SLOW_OPERATORS, slow_operators(module))


def _keep_slices_apart(module: tvm.IRModule) -> tvm.IRModule:
    """Keep slices out of the functions of the convolutions before them.

    TVM takes a slice that begins at zero for an elementwise operator. Fused, it would leave the convolution's
    tiles with a tail that no full vector covers.
    """
    for variable, function in list(module.functions.items()):
        if isinstance(function, tvm.tirx.PrimFunc) and variable.name_hint.startswith("strided_slice"):
            module.update_func(variable, function.with_attr("op_pattern", INJECTIVE))
    return module


def _merge_fused(module: tvm.IRModule, compilation: Compilation) -> tvm.IRModule:
    compilation.groups = fused_functions(module)
    return relax.transform.FuseTIR()(module)


def _make_views(module: tvm.IRModule) -> tvm.IRModule:
    """Leave functions and views alone, which can be dealt out to a device and a CPU.

    What TVM makes functions of at last, as sorting, becomes one for the CPU here. Reshapes become views, but for those
    that make an output, which are copied.
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
    Pass(
        "decompose-operators",
        "Write operators of training as those of inference, and splits into many parts in groups.",
        _alone(decompose),
    ),
    Pass("fold-constants", "Evaluate operators on constants.", _fold_constants),
    Pass("unify-operators", "Write in one way what importers write in several.", _alone(unify)),
    Pass("roll-loops", "Write LSTMs that are unrolled as one function each.", _alone(roll_loops)),
    Pass("lift-signals", "Write operators on signals as operators on images of one row.", _alone(lift_signals)),
    Pass("lift-volumes", "Write operators on volumes as operators on images.", _alone(lift_volumes)),
    Pass("lift-groups", "Write norms of groups of channels as sums of feature maps.", _alone(lift_groups)),
    Pass(
        "canonicalise-operators",
        "Write bounds and leaky ReLUs as maximum, minimum and products.",
        _alone(canonicalise),
    ),
    Pass(
        "compute-in-integers",
        "Compute quantised layers, and what lies between them, in integers.",
        _compute_in_integers,
        _QUANTISED,
        applies=lambda board: board.device is None,
    ),
    Pass(
        "round-in-float",
        "Round other pairs of quantize and dequantize in float.",
        _alone(_round_in_float),
        _QUANTISED,
        _FLOAT,
    ),
    Pass(
        "rewrite-transposed",
        "Write transposed convolutions as convolutions.",
        _alone(rewrite_transposed),
        required="TVM has no code for transposed convolutions in NHWC",
    ),
    Pass("trim-kernels", "Leave out kernel elements that read nothing but padding.", _alone(trim_kernels)),
    Pass("fold-scales", "Fold constant factors and offsets into weights and bias.", _alone(fold_scales), _FLOAT),
    Pass("flush-subnormals", "Set constants below the normal numbers to zero.", _alone(flush_subnormals), _FLOAT),
    Pass("remove-channels", "Remove channels that are constant or unread.", _remove_channels, _FLOAT),
    Pass(
        "convolve-averages",
        "Write means over windows as depthwise convolutions.",
        lambda module, compilation: fold_scales(convolve_averages(module)),
        _FLOAT,
    ),
    Pass("split-concatenations", "Split convolutions of concatenations into sums.", _alone(split_concatenations)),
    Pass(
        "pad-channels",
        "Pad channels to whole vectors.",
        lambda module, compilation: pad_channels(module, host_of(compilation.board).padded_channels),
    ),
    Pass(
        "convert-layout",
        "Move feature maps to NHWC, and weights to HWIO.",
        _alone(_convert_layout),
        _NCHW,
        _NHWC,
        required="templates work on NHWC",
    ),
    Pass(
        "remove-transposes", "Remove transposes that the layout leaves without need.", _alone(remove_transposes), _NHWC
    ),
    Pass("separate-resizes", "Enlarge outputs by columns, then by rows.", _alone(separate_resizes), _NHWC),
    Pass(
        "guard-integers",
        "Check divisors and indices that are known only at run time.",
        _alone(guards.guard),
        _NHWC,
        required="an integer division by zero ends the process, and an index beyond its axis reads foreign memory",
    ),
    Pass(
        "lower-anchors",
        "Make functions of convolutions and products, which templates schedule.",
        _alone(lower_layers),
        _NHWC,
    ),
    Pass(
        "legalise-operators",
        "Make functions of all other operators.",
        _alone(relax.transform.LegalizeOps(_LEGALISATIONS)),
        _NHWC,
        _FUNCTIONS,
        required="code is generated from functions",
    ),
    Pass(
        "annotate-patterns",
        "Mark functions by what they can be fused with.",
        _alone(relax.transform.AnnotateTIROpPattern()),
        _FUNCTIONS,
    ),
    Pass(
        "keep-slices-apart", "Keep slices out of the convolutions before them.", _alone(_keep_slices_apart), _FUNCTIONS
    ),
    Pass(
        "keep-broadcasts-apart",
        "Keep what broadcasts a layer's result out of its function.",
        _alone(keep_broadcasts_apart),
        _FUNCTIONS,
    ),
    Pass("fold-calls", "Evaluate functions of constants.", _alone(relax.transform.FoldConstant()), _FUNCTIONS),
    Pass("fuse-operators", "Group functions that run as one.", _alone(relax.transform.FuseOps()), _FUNCTIONS),
    Pass(
        "merge-fused",
        "Make one function of each group.",
        _merge_fused,
        _FUNCTIONS,
        _FUSED,
        required="a group runs as one function",
    ),
    Pass("remove-dead-code", "Remove what no output needs.", _alone(relax.transform.DeadCodeElimination()), _FUSED),
    Pass(
        "make-views",
        "Make views of reshapes, between functions that can run on a device or on the CPU.",
        _alone(_make_views),
        _FUSED,
        _VIEWS,
        required="tensors are copied between a device and the CPU by functions and views alone",
        applies=lambda board: board.accelerator is not None,
    ),
]
