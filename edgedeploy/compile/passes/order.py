"""The passes of edgedeploy in order, and the passes that run for a board with those of other packages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic.pipeline import library_dispatch_passes

from edgedeploy.base.catalog import unknown_name
from edgedeploy.compile.passes import GROUP, Form, Pass, load_installed, of_module
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
from edgedeploy.compile.passes.fusion import (
    KEEP_BROADCASTS_APART,
    KEEP_SLICES_APART,
    LOWER_ANCHORS,
    MERGE_FUSED,
    STORE_NARROW,
)
from edgedeploy.compile.passes.half_precision import COMPUTE_IN_HALF, WIDEN_HALF
from edgedeploy.compile.passes.integers import COMPUTE_IN_INTEGERS, ROUND_IN_FLOAT
from edgedeploy.compile.passes.layouts import CONVERT_LAYOUT, REMOVE_TRANSPOSES, SEPARATE_RESIZES
from edgedeploy.compile.passes.legalisation import LEGALISE_OPERATORS
from edgedeploy.compile.passes.pad_channels import PAD_CHANNELS
from edgedeploy.compile.passes.signals import LIFT_GROUPS, LIFT_SIGNALS
from edgedeploy.compile.passes.unify import CANONICALISE_OPERATORS, DECOMPOSE_OPERATORS, UNIFY_OPERATORS
from edgedeploy.compile.passes.unrolled import ROLL_LOOPS
from edgedeploy.compile.passes.volumes import LIFT_VOLUMES
from edgedeploy.errors import ConfigurationError, InputError
from edgedeploy.target.board import Board

LISTING = "edgedeploy build --list-passes"

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
    WIDEN_HALF,
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
    COMPUTE_IN_HALF,
    PAD_CHANNELS,
    CONVERT_LAYOUT,
    REMOVE_TRANSPOSES,
    SEPARATE_RESIZES,
    GUARD_INTEGERS,
    LOWER_ANCHORS,
    LEGALISE_OPERATORS,
    Pass(
        "annotate-patterns",
        "Mark functions by the kind of functions that they can be fused with.",
        of_module(relax.transform.AnnotateTIROpPattern()),
        _FUNCTIONS,
    ),
    KEEP_SLICES_APART,
    KEEP_BROADCASTS_APART,
    STORE_NARROW,
    Pass("fold-calls", "Evaluate functions of constants.", of_module(relax.transform.FoldConstant()), _FUNCTIONS),
    Pass("fuse-operators", "Group functions that run as one.", of_module(relax.transform.FuseOps()), _FUNCTIONS),
    MERGE_FUSED,
    Pass("remove-dead-code", "Remove dead code.", of_module(relax.transform.DeadCodeElimination()), _FUSED),
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


def pass_names() -> list[str]:
    """The names of all passes, edgedeploy's own first; nothing is loaded."""
    return [*(each.name for each in PASSES), *(entry.name for entry in GROUP.entries())]


def disableable() -> list[str]:
    """The names of passes that can be disabled."""
    required = {each.name for each in PASSES if each.required}
    return [name for name in pass_names() if name not in required]


def check_disabled(disabled: Collection[str]) -> None:
    """Refuse unknown names, and passes without which nothing can be built."""
    names, required = pass_names(), {each.name: each.required for each in PASSES if each.required}
    for name in disabled:
        if name not in names:
            raise unknown_name("pass", name, names, LISTING)
        if name in required:
            hints = [f"see which can with `{LISTING}`"]
            raise InputError(f"the pass {name} cannot be disabled", why=required[name], hints=hints)


def ordered(added: Sequence[Pass]) -> list[Pass]:
    """All passes in order: edgedeploy's own, and passes of other packages at the places that they ask for.

    If several ask for one place, they run in the order of their names.
    """
    found, waiting = list(PASSES), sorted(added, key=lambda each: each.name)
    for each in waiting:
        if any(each.name == own.name for own in PASSES):
            raise _misplaced(each, "edgedeploy has one of that name")
    while waiting:
        names = [each.name for each in found]
        ready = [each for each in waiting if (each.before or each.after) in names]
        if not ready:
            raise _without_a_place(waiting[0])
        for each in ready:
            index = [other.name for other in found].index(each.before or each.after)
            if each.after:
                index += 1
                while index < len(found) and found[index].after == each.after:
                    index += 1
            found.insert(index, each)
        waiting = [each for each in waiting if each not in ready]
    return found


def passes_for(board: Board, disabled: Collection[str] = ()) -> list[Pass]:
    """The passes that run for a board, in order, without those whose names are in `disabled`."""
    check_disabled(disabled)
    every = ordered(load_installed(disabled))
    chosen = [each for each in every if each.name not in disabled and each.applies(board)]
    for before, each in pairwise(chosen):
        if each.expects.layout != before.result.layout:
            misfit = each if each.package else before
            why = f"{each.name} works on {each.expects.layout}, and {before.name} leaves {before.result.layout}"
            raise _misplaced(misfit, why)
        if each.package and each.expects.layout.startswith("fused"):
            raise _misplaced(each, "fused functions with a layer are lowered from their groups, not from their bodies")
    return chosen


def _without_a_place(each: Pass) -> ConfigurationError:
    place = each.before or each.after
    if not place:
        return _misplaced(each, "it has neither `before` nor `after`")
    if place in pass_names():
        return _misplaced(each, f"it runs next to {place}, which is disabled or has no place itself")
    error = unknown_name("pass", place, pass_names(), LISTING)
    return _misplaced(each, f"it asks for a place next to {place!r}: {error}")


def _misplaced(each: Pass, why: str) -> ConfigurationError:
    hints = [f"leave it out: --disable-pass {each.name}", f"see the order with `{LISTING}`"]
    return ConfigurationError(f"the pass {each.name!r} of {each.package} cannot be used", why=why, hints=hints)
