"""The compiler: Relax passes, schedule templates, LLVM or OpenCL C."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax
from tvm.s_tir import SBlockRealize

from edgedeploy.board import Board
from edgedeploy.compile.channels import pad_channels
from edgedeploy.compile.codegen import Code, generate, generate_for_device
from edgedeploy.compile.concatenations import split_concatenations
from edgedeploy.compile.constants import flush_subnormals, fold_constants
from edgedeploy.compile.dead_channels import RemovedChannels, remove_channels
from edgedeploy.compile.folding import fold_scales
from edgedeploy.compile.groups import Group, groups
from edgedeploy.compile.layouts import remove_transposes
from edgedeploy.compile.lowering import lower_layers
from edgedeploy.compile.packing import constant_parameters, replace_functions, scheduled_name
from edgedeploy.compile.processors import Cpu, Processor, processor_of
from edgedeploy.compile.quantisation import round_in_float
from edgedeploy.compile.schedules import Scheduled
from edgedeploy.compile.transposed import rewrite_transposed
from edgedeploy.compile.tuned import Tuned, untuned, workload_of
from edgedeploy.errors import CompileError, EdgedeployError, UnsupportedError, last_line
from edgedeploy.frontends.network import Network
from edgedeploy.progress import SILENT, Progress

# Convolutions and what lies between them work on pixels whose channels are neighbours in memory.
_LAYOUTS = {"relax.nn.conv2d": ["NHWC", "HWIO"], "relax.image.resize2d": ["NHWC"]}

# The attribute of reshapes that are no views.
_COPIED = "edgedeploy.copied"

# TVM's `OpPatternKind::kInjective`: fused with what follows, but not into what comes before.
_INJECTIVE = 2


@dataclass(frozen=True)
class Optimised:
    """A network as plain functions.

    Attributes:
        module: the `tvm.IRModule` that calls them.
        groups: those of them that hold a layer, by name.
        removed: the layers that lost channels.
    """

    module: Any
    groups: dict[str, Group]
    removed: list[RemovedChannels]

    @property
    def functions(self) -> dict[str, Any]:
        """By name, those that can be scheduled."""
        return {
            variable.name_hint: function
            for variable, function in self.module.functions.items()
            if isinstance(function, tvm.tirx.PrimFunc) and _can_be_scheduled(function)
        }


@dataclass(frozen=True)
class Lowered:
    """A network as scheduled functions.

    Attributes:
        module: the `tvm.IRModule` that calls them.
        functions: by name, how each function was scheduled.
        removed: the layers that lost channels.
    """

    module: Any
    functions: dict[str, Scheduled]
    removed: list[RemovedChannels]

    @property
    def templates(self) -> dict[str, str]:
        """By name, the template that scheduled each function."""
        return {name: entry.template for name, entry in self.functions.items()}


@dataclass(frozen=True)
class Compiled(Lowered):
    """A network as machine code.

    Attributes:
        code: the machine code, not yet linked.
    """

    code: Code


def compile_network(network: Network, board: Board, progress: Progress = SILENT, tuned: Tuned = untuned) -> Compiled:
    """Generate code for a board's CPU, or for its OpenCL device and the CPU that calls it.

    Args:
        network: what `frontends` read.
        board: what the code is for.
        progress: is told about each step.
        tuned: what measuring on the board has found out.

    Raises:
        UnsupportedError: the board has an OpenCL device, and there is no schedule for a function there.
        CompileError: TVM refuses the network or the target.
    """
    lowered = lower_network(network, board, progress, tuned)
    with _compiling(network, board) as target, progress.stage("generate code"):
        code = generate_for_device(lowered.module, target) if board.opencl else generate(lowered.module, target)
    return Compiled(lowered.module, lowered.functions, lowered.removed, code)


def lower_network(network: Network, board: Board, progress: Progress = SILENT, tuned: Tuned = untuned) -> Lowered:
    """Optimise a network and schedule its functions.

    Arguments are those of `compile_network`.

    Raises:
        UnsupportedError, CompileError: as `compile_network`.
    """
    with _compiling(network, board):
        with progress.stage("optimise"):
            optimised = _optimise(network.module, board)
        with progress.stage("schedule"):
            constants, processor = constant_parameters(optimised.module), processor_of(board)
            scheduled = {
                name: _schedule(function, optimised.groups.get(name), processor, constants.get(name, set()), tuned)
                for name, function in optimised.functions.items()
            }
            module = replace_functions(optimised.module, scheduled)
    return Lowered(module, {scheduled_name(name): entry for name, entry in scheduled.items()}, optimised.removed)


def _all_on_device(optimised: Optimised) -> Optimised:
    """A network all of whose functions can be scheduled: what is not would run on the CPU, in the device's memory.

    Reshapes become views here, but for those that make an output, which are copied.

    Raises:
        UnsupportedError: it has a function that no template takes.
    """
    views = tvm.transform.Sequential([relax.transform.RewriteDataflowReshape(), relax.transform.DeadCodeElimination()])
    module = views(optimised.module)
    for variable, function in module.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc):
            if not _below_root(function):
                raise UnsupportedError(f"there is no schedule for {variable.name_hint} on OpenCL devices")
            if relax.analysis.has_reshape_pattern(function):
                module.update_func(variable, function.with_attr(_COPIED, True))
    return replace(optimised, module=module)


def _below_root(function: tvm.tirx.PrimFunc) -> bool:
    """Whether a function computes something in blocks below a root; TVM writes a few, as scattering, without one."""
    return isinstance(function.body, SBlockRealize) and function.body.block.name_hint == "root"


def _can_be_scheduled(function: tvm.tirx.PrimFunc) -> bool:
    """Whether a function computes something; reshapes become views."""
    return _below_root(function) and (
        bool(function.attrs.get(_COPIED)) or not relax.analysis.has_reshape_pattern(function)
    )


def _schedule(
    function: tvm.tirx.PrimFunc, group: Group | None, processor: Processor, packable: set[int], tuned: Tuned
) -> Scheduled:
    """Schedule a function as tuning found best, else as the models of the processor say.

    What MetaSchedule scheduled, with its rules for CPUs, runs on CPUs only.
    """
    found = tuned(workload_of(function))
    if isinstance(found, tvm.tirx.PrimFunc):
        if isinstance(processor, Cpu):
            return Scheduled.elsewhere(found)
        found = None
    if group is None:
        return processor.schedule(function, packable)
    if found is not None and processor.fits(group.layer, found):
        return replace(processor.configured(group, found, packable), tuned=True)
    return processor.configured(group, processor.default(group.layer), packable)


@contextmanager
def _compiling(network: Network, board: Board) -> Iterator[tvm.target.Target]:
    """TVM's compiler set up for a board; what it raises becomes an error that names network and board."""
    try:
        target = tvm.target.Target(board.target())
        with target, tvm.transform.PassContext(opt_level=3):
            yield target
    except EdgedeployError:
        raise
    except Exception as error:
        raise CompileError(
            f"{network.file} cannot be compiled for {board.triple} ({board.cpu})", why=last_line(error)
        ) from error


def optimise(network: Network, board: Board) -> Optimised:
    """The functions of a network, before they are scheduled.

    Raises:
        UnsupportedError, CompileError: as `compile_network`.
    """
    with _compiling(network, board):
        return _optimise(network.module, board)


def _optimise(module: tvm.IRModule, board: Board) -> Optimised:
    """Fold constants, remove what is constant, move to NHWC, and fuse operators into the functions to schedule."""
    module = relax.transform.DecomposeOpsForInference()(module)
    module = rewrite_transposed(round_in_float(fold_constants(module)))
    module = flush_subnormals(fold_scales(module))
    module, removed = remove_channels(module)
    module = fold_scales(module) if removed else module
    module = pad_channels(split_concatenations(module), board)
    module = remove_transposes(fold_constants(relax.transform.ConvertLayout(_LAYOUTS)(module)))
    module = lower_layers(module)
    module = relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps()(module))
    module = _keep_slices_apart(module)
    fused = tvm.transform.Sequential([relax.transform.FoldConstant(), relax.transform.FuseOps()])(module)
    finish = tvm.transform.Sequential([relax.transform.FuseTIR(), relax.transform.DeadCodeElimination()])
    finished = finish(fused)
    names = {variable.name_hint for variable in finished.get_global_vars()}
    held = {name: group for name, group in groups(fused).items() if name in names}
    optimised = Optimised(finished, held, removed)
    return _all_on_device(optimised) if board.opencl else optimised


def _keep_slices_apart(module: tvm.IRModule) -> tvm.IRModule:
    """Keep slices out of the functions of the convolutions before them.

    TVM takes a slice that begins at zero for an elementwise operator. Fused, it would leave the convolution's
    tiles with a rest that no full vector covers.
    """
    for variable, function in list(module.functions.items()):
        if isinstance(function, tvm.tirx.PrimFunc) and variable.name_hint.startswith("strided_slice"):
            module.update_func(variable, function.with_attr("op_pattern", _INJECTIVE))
    return module
