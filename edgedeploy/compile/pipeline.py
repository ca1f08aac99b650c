"""The compiler: Relax passes, schedule templates, LLVM or OpenCL C."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax
from tvm.relax.backend.cpu_generic.pipeline import library_dispatch_passes
from tvm.s_tir import SBlockRealize

from edgedeploy.board import Board
from edgedeploy.compile.channels import pad_channels
from edgedeploy.compile.codegen import Code, generate
from edgedeploy.compile.concatenations import split_concatenations
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.constants import flush_subnormals, fold_constants
from edgedeploy.compile.dead_channels import RemovedChannels, remove_channels
from edgedeploy.compile.error_budget import within
from edgedeploy.compile.expressions import call_counts
from edgedeploy.compile.extremes import LEGALISATIONS
from edgedeploy.compile.folding import fold_scales
from edgedeploy.compile.groups import Group, groups
from edgedeploy.compile.layers import AnyLayer
from edgedeploy.compile.layouts import remove_transposes
from edgedeploy.compile.lowering import lower_layers
from edgedeploy.compile.packing import constant_parameters, replace_functions, scheduled_name
from edgedeploy.compile.placement import functions_on_cpu, with_copies
from edgedeploy.compile.processors import Cpu, Device, Processor
from edgedeploy.compile.quantisation import round_in_float
from edgedeploy.compile.schedules import Scheduled
from edgedeploy.compile.transposed import rewrite_transposed
from edgedeploy.compile.tuned import Tuned, untuned, workload_of
from edgedeploy.errors import CompileError, EdgedeployError, last_line
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
        on_cpu: of a network for an OpenCL device, the functions that run on the CPU all the same, by name; known
            only of what `optimise` gives.
    """

    module: Any
    groups: dict[str, Group]
    removed: list[RemovedChannels]
    on_cpu: frozenset[str] = frozenset()

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
        on_cpu: of a network for an OpenCL device, the functions that run on the CPU all the same, and why.
    """

    module: Any
    functions: dict[str, Scheduled]
    removed: list[RemovedChannels]
    on_cpu: dict[str, str]

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


def compile_network(
    network: Network,
    board: Board,
    progress: Progress = SILENT,
    tuned: Tuned = untuned,
    error_limit: float = math.inf,
) -> Compiled:
    """Generate code for a board's CPU, or for its OpenCL device and the CPU that calls it.

    Args:
        network: what `frontends` read.
        board: what the code is for.
        progress: is told about each step.
        tuned: what measuring on the board has found out.
        error_limit: how many times the rounding error of a reference the network's may be, as `compile.error_budget`
            estimates it; where layers would exceed it, they take slower forms.

    Raises:
        CompileError: TVM refuses the network or the target.
    """
    lowered = lower_network(network, board, progress, tuned, error_limit)
    on_device = lowered.functions.keys() - lowered.on_cpu.keys() if board.opencl else set()
    with _compiling(network, board), progress.stage("generate code"):
        code = generate(lowered.module, board, on_device)
    return Compiled(lowered.module, lowered.functions, lowered.removed, lowered.on_cpu, code)


def lower_network(
    network: Network,
    board: Board,
    progress: Progress = SILENT,
    tuned: Tuned = untuned,
    error_limit: float = math.inf,
) -> Lowered:
    """Optimise a network and schedule its functions.

    Arguments are those of `compile_network`.

    Raises:
        CompileError: as `compile_network`.
    """
    with _compiling(network, board):
        with progress.stage("optimise"):
            optimised = _optimise(network.module, board)
            if board.opencl:
                optimised = _with_views(optimised)
        with progress.stage("schedule"):
            place = _on_device if board.opencl else _on_cpu
            return place(optimised, board, tuned, error_limit)


def _on_cpu(optimised: Optimised, board: Board, tuned: Tuned, error_limit: float) -> Lowered:
    scheduled = _scheduled(optimised, optimised.functions, Cpu(board), tuned, error_limit)
    module = replace_functions(optimised.module, scheduled)
    functions = {scheduled_name(name): entry for name, entry in scheduled.items()}
    return Lowered(module, functions, optimised.removed, on_cpu={})


def _on_device(optimised: Optimised, board: Board, tuned: Tuned, error_limit: float) -> Lowered:
    """A network on the board's OpenCL device, with what has no place there on the CPU."""
    scheduled = _scheduled(optimised, optimised.functions, Device(board), tuned, error_limit)
    on_cpu = functions_on_cpu(optimised.module, scheduled, board)
    left = on_cpu.keys() & optimised.functions.keys()
    scheduled |= _scheduled(optimised, left, Cpu(board), tuned, error_limit)
    names = {name: scheduled_name(name) if name in scheduled else name for name in {*scheduled, *on_cpu}}
    on_cpu = {names[name]: why for name, why in on_cpu.items()}
    module = with_copies(replace_functions(optimised.module, scheduled), on_cpu.keys(), board)
    return Lowered(module, {names[name]: entry for name, entry in scheduled.items()}, optimised.removed, on_cpu)


def _scheduled(
    optimised: Optimised, names: Iterable[str], processor: Processor, tuned: Tuned, error_limit: float
) -> dict[str, Scheduled]:
    """By name, those functions that a processor has a template for.

    Each is scheduled as tuning found best, else as the models of the processor say, unless rounding errors forbid it.
    """
    constants, functions = constant_parameters(optimised.module), optimised.functions
    measured = {name: tuned(workload_of(functions[name])) for name in names}
    layers = {name: optimised.groups[name].layer for name in measured if name in optimised.groups}
    fastest = {name: _fastest(layer, processor, measured[name]) for name, layer in layers.items()}
    chosen = within(error_limit, layers, fastest, call_counts(optimised.module), processor.board)

    def schedule(name: str) -> Scheduled | None:
        packable = constants.get(name, set())
        if name not in layers:
            return processor.schedule(functions[name], packable)
        scheduled = processor.configured(optimised.groups[name], chosen[name], packable)
        return replace(scheduled, tuned=chosen[name] is measured[name], exact=chosen[name] is not fastest[name])

    found = {name: schedule(name) for name in measured}
    return {name: entry for name, entry in found.items() if entry}


def _fastest(layer: AnyLayer, processor: Processor, measured: Any) -> Configuration:
    if isinstance(measured, processor.forms) and processor.fits(layer, measured):
        return measured
    return processor.default(layer)


def _with_views(optimised: Optimised) -> Optimised:
    """A network of functions and views alone, which can be dealt out to a device and a CPU.

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
    )(optimised.module)
    for variable, function in module.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc) and relax.analysis.has_reshape_pattern(function):
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


@contextmanager
def _compiling(network: Network, board: Board) -> Iterator[None]:
    """TVM's compiler set up for a board; what it raises becomes an error that names network and board."""
    try:
        with tvm.target.Target(board.cpu_target()), tvm.transform.PassContext(opt_level=3):
            yield
    except EdgedeployError:
        raise
    except Exception as error:
        raise CompileError(
            f"{network.file} cannot be compiled for {board.triple} ({board.cpu})", why=last_line(error)
        ) from error


def optimise(network: Network, board: Board) -> Optimised:
    """The functions of a network, before they are scheduled, and where they run.

    Raises:
        CompileError: as `compile_network`.
    """
    with _compiling(network, board):
        optimised = _optimise(network.module, board)
        if not board.opencl:
            return optimised
        optimised = _with_views(optimised)
        scheduled = _scheduled(optimised, optimised.functions, Device(board), untuned, math.inf)
        return replace(optimised, on_cpu=frozenset(functions_on_cpu(optimised.module, scheduled, board)))


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
    module = relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps(LEGALISATIONS)(module))
    module = _keep_slices_apart(module)
    fused = tvm.transform.Sequential([relax.transform.FoldConstant(), relax.transform.FuseOps()])(module)
    finish = tvm.transform.Sequential([relax.transform.FuseTIR(), relax.transform.DeadCodeElimination()])
    finished = finish(fused)
    names = {variable.name_hint for variable in finished.get_global_vars()}
    return Optimised(finished, {name: group for name, group in groups(fused).items() if name in names}, removed)


def _keep_slices_apart(module: tvm.IRModule) -> tvm.IRModule:
    """Keep slices out of the functions of the convolutions before them.

    TVM takes a slice that begins at zero for an elementwise operator. Fused, it would leave the convolution's
    tiles with a rest that no full vector covers.
    """
    for variable, function in list(module.functions.items()):
        if isinstance(function, tvm.tirx.PrimFunc) and variable.name_hint.startswith("strided_slice"):
            module.update_func(variable, function.with_attr("op_pattern", _INJECTIVE))
    return module
