"""The passes of edgedeploy in order, and the passes that run for a board with those of other packages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic.pipeline import library_dispatch_passes

from edgedeploy.base.catalog import unknown_name
from edgedeploy.compile.backends import host_of
from edgedeploy.compile.passes import (
    GROUP,
    Compilation,
    Form,
    Pass,
    arithmetic,
    constants,
    convolutions,
    dead_channels,
    fusion,
    integers,
    layouts,
    legalisation,
    load_installed,
    pad_channels,
    signals,
    unify,
    unrolled,
    volumes,
)
from edgedeploy.compile.passes.half_precision import COMPUTE_IN_HALF, WIDEN_HALF
from edgedeploy.errors import ConfigurationError, InputError
from edgedeploy.target.board import Board

LISTING = "edgedeploy build --list-passes"

COPIED = "edgedeploy.copied"  # the attribute of reshapes that are copies, not views

_FLOAT, _QUANTISED = Form("NCHW", ("float32",)), Form("NCHW", ("int8", "uint8", "int16", "uint16"))
_NHWC, _FUNCTIONS, _FUSED = Form("NHWC"), Form("functions"), Form("fused functions")


def _make_views(module: tvm.IRModule, compilation: Compilation) -> tvm.IRModule:
    """Leave functions and views alone, which can be placed on a device or a CPU.

    Operators that TVM makes functions of last, as sorting, become functions for the CPU here. Reshapes become views,
    but reshapes that make an output are copied.
    """
    dispatch = library_dispatch_passes(tvm.target.Target.current())
    views = relax.transform.RewriteDataflowReshape(), relax.transform.DeadCodeElimination()
    module = tvm.transform.Sequential([*dispatch, relax.transform.LegalizeOps(), *views])(module)
    for variable, function in module.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc) and relax.analysis.has_reshape_pattern(function):
            module.update_func(variable, function.with_attr(COPIED, True))
    return module


def _step(
    name: str,
    what: str,
    run: Callable[[tvm.IRModule], tvm.IRModule],
    expects: Form = Form("NCHW"),
    leaves: Form | None = None,
    required: str = "",
) -> Pass:
    """A pass that takes nothing but the module."""
    return Pass(name, what, lambda module, compilation: run(module), expects, leaves, required)


PASSES = [
    WIDEN_HALF,
    _step(
        "decompose-operators",
        "Write operators of training as those of inference, and splits into many parts in groups.",
        unify.decompose,
    ),
    Pass(
        "fold-constants",
        "Evaluate operators on constants.",
        # A CPU may compute with weights that are stored as integers.
        lambda module, compilation: constants.fold_constants(
            module, but_quantised_weights=compilation.board.device is None
        ),
    ),
    _step("unify-operators", "Give operators that importers write in several ways one form.", unify.unify),
    _step("roll-loops", "Write unrolled LSTMs as one function each.", unrolled.roll_loops),
    _step("lift-signals", "Write operators on signals as operators on images of one row.", signals.lift_signals),
    _step("lift-volumes", "Write operators on volumes as operators on images.", volumes.lift_volumes),
    _step("lift-groups", "Write norms of groups of channels as sums of feature maps.", signals.lift_groups),
    _step(
        "canonicalise-operators", "Write bounds and leaky ReLUs as maximum, minimum and products.", unify.canonicalise
    ),
    Pass(
        "compute-in-integers",
        "Compute quantised layers, and operators between them, in integers.",
        lambda module, compilation: integers.compute_in_integers(module, host_of(compilation.board)),
        _QUANTISED,
        applies=lambda board: board.device is None,
    ),
    _step(
        "round-in-float",
        "Round other pairs of quantize and dequantize in float.",
        integers.round_in_float,
        _QUANTISED,
        _FLOAT,
    ),
    _step(
        "rewrite-transposed",
        "Write transposed convolutions as convolutions.",
        convolutions.rewrite_transposed,
        required="TVM has no code for transposed convolutions in NHWC",
    ),
    _step("trim-kernels", "Leave out kernel elements that read nothing but padding.", convolutions.trim_kernels),
    _step("fold-scales", "Fold constant factors and offsets into weights and bias.", convolutions.fold_scales, _FLOAT),
    _step("flush-subnormals", "Set constants below the normal numbers to zero.", constants.flush_subnormals, _FLOAT),
    Pass("remove-channels", "Remove channels that are constant or unread.", dead_channels.remove_and_note, _FLOAT),
    _step(
        "convolve-averages",
        "Write means over windows as depthwise convolutions.",
        convolutions.convolve_averages,
        _FLOAT,
    ),
    _step("split-concatenations", "Split convolutions of concatenations into sums.", convolutions.split_concatenations),
    COMPUTE_IN_HALF,
    Pass("pad-channels", "Pad channels to whole vectors.", pad_channels.pad_channels),
    _step(
        "convert-layout",
        "Move feature maps to NHWC, and weights to HWIO.",
        layouts.convert_to_nhwc,
        leaves=_NHWC,
        required="templates work on NHWC",
    ),
    _step("remove-transposes", "Remove needless transposes that the layout leaves.", layouts.remove_transposes, _NHWC),
    _step("separate-resizes", "Enlarge outputs by columns, then by rows.", layouts.separate_resizes, _NHWC),
    _step(
        "guard-integers",
        "Check divisors and indices that are known only at run time.",
        arithmetic.guard_integers,
        _NHWC,
        required="an integer division by zero ends the process, and an index beyond its axis reads foreign memory",
    ),
    Pass(
        "lower-anchors",
        "Make functions of convolutions and products, which templates schedule.",
        lambda module, compilation: fusion.lower_anchors(module, host_of(compilation.board).with_half_weights),
        _NHWC,
    ),
    _step(
        "legalise-operators",
        "Make functions of all other operators.",
        legalisation.legalise_operators,
        _NHWC,
        _FUNCTIONS,
        required="code is generated from functions",
    ),
    _step(
        "annotate-patterns",
        "Mark functions by the kind of functions that they can be fused with.",
        relax.transform.AnnotateTIROpPattern(),
        _FUNCTIONS,
    ),
    _step(
        "keep-slices-apart", "Keep slices out of the convolutions before them.", fusion.keep_slices_apart, _FUNCTIONS
    ),
    _step(
        "keep-broadcasts-apart",
        "Keep operators that broadcast a layer's result out of its function.",
        fusion.keep_broadcasts_apart,
        _FUNCTIONS,
    ),
    _step(
        "store-narrow",
        "Store the narrowest form of a result that another layer's function reads.",
        fusion.store_narrow,
        _FUNCTIONS,
    ),
    _step("fold-calls", "Evaluate functions of constants.", relax.transform.FoldConstant(), _FUNCTIONS),
    _step("fuse-operators", "Group functions that run as one.", relax.transform.FuseOps(), _FUNCTIONS),
    Pass(
        "merge-fused",
        "Make one function of each group.",
        fusion.merge_fused,
        _FUNCTIONS,
        _FUSED,
        required="a group runs as one function",
    ),
    _step("remove-dead-code", "Remove dead code.", relax.transform.DeadCodeElimination(), _FUSED),
    Pass(
        "make-views",
        "Make views of reshapes, between functions that can run on a device or on the CPU.",
        _make_views,
        _FUSED,
        Form("fused functions and views"),
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
