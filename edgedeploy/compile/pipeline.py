"""The compiler: Relax passes, schedule templates, LLVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.s_tir import SBlockRealize

from edgedeploy.board import Board
from edgedeploy.compile.channels import pad_channels
from edgedeploy.compile.codegen import Code, generate
from edgedeploy.compile.concatenations import split_concatenations
from edgedeploy.compile.constants import flush_subnormals, fold_constants
from edgedeploy.compile.dead_channels import RemovedChannels, remove_channels
from edgedeploy.compile.folding import fold_scales
from edgedeploy.compile.layouts import remove_transposes
from edgedeploy.compile.lowering import lower_layers
from edgedeploy.compile.packing import constant_parameters, replace_functions, scheduled_name
from edgedeploy.compile.quantisation import round_in_float
from edgedeploy.compile.schedules import Scheduled, schedule_function
from edgedeploy.compile.transposed import rewrite_transposed
from edgedeploy.errors import CompileError, UnsupportedError, last_line
from edgedeploy.frontends.network import Network
from edgedeploy.progress import SILENT, Progress

# Convolutions and what lies between them work on pixels whose channels are neighbours in memory.
_LAYOUTS = {"relax.nn.conv2d": ["NHWC", "HWIO"], "relax.image.resize2d": ["NHWC"]}

# TVM's `OpPatternKind::kInjective`: fused with what follows, but not into what comes before.
_INJECTIVE = 2


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


def compile_network(network: Network, board: Board, progress: Progress = SILENT) -> Compiled:
    """Generate code for a board's CPU.

    Raises:
        UnsupportedError: the board's networks run on a device that this version generates no code for.
        CompileError: TVM refuses the network or the target.
    """
    lowered = lower_network(network, board, progress)
    with _compiling(network, board) as target, progress.stage("generate code"):
        code = generate(lowered.module, target)
    return Compiled(lowered.module, lowered.functions, lowered.removed, code)


def lower_network(network: Network, board: Board, progress: Progress = SILENT) -> Lowered:
    """Optimise a network and schedule its functions.

    Raises:
        UnsupportedError, CompileError: as `compile_network`.
    """
    require_cpu(board)
    with _compiling(network, board):
        with progress.stage("optimise"):
            module, removed = _optimise(network.module, board)
        with progress.stage("schedule"):
            constants = constant_parameters(module)
            scheduled = {
                variable.name_hint: schedule_function(
                    function, board, packable=constants.get(variable.name_hint, set())
                )
                for variable, function in module.functions.items()
                if isinstance(function, tvm.tirx.PrimFunc) and _can_be_scheduled(function)
            }
            module = replace_functions(module, scheduled)
    return Lowered(module, {scheduled_name(name): entry for name, entry in scheduled.items()}, removed)


def _can_be_scheduled(function: tvm.tirx.PrimFunc) -> bool:
    """Whether a function computes something, in blocks below a root; TVM writes a few, as scattering, without one."""
    below_root = isinstance(function.body, SBlockRealize) and function.body.block.name_hint == "root"
    return below_root and not relax.analysis.has_reshape_pattern(function)


@contextmanager
def _compiling(network: Network, board: Board) -> Iterator[tvm.target.Target]:
    """TVM's compiler set up for a board's CPU; what it raises becomes an error that names network and board."""
    try:
        target = tvm.target.Target(board.cpu_target())
        with target, tvm.transform.PassContext(opt_level=3):
            yield target
    except Exception as error:
        raise CompileError(
            f"{network.file} cannot be compiled for {board.triple} ({board.cpu})", why=last_line(error)
        ) from error


def require_cpu(board: Board) -> None:
    """Refuse boards whose networks run on another device than their CPU.

    Raises:
        UnsupportedError: the board names an OpenCL device.
    """
    if board.opencl is not None:
        raise UnsupportedError(
            "this version generates code for CPUs only",
            why=f"the board runs its networks on an OpenCL device ({board.opencl.device})",
            hints=["take the `opencl` section out of a copy of the board's profile to use its CPU"],
        )


def _optimise(module: tvm.IRModule, board: Board) -> tuple[tvm.IRModule, list[RemovedChannels]]:
    """Fold constants, remove what is constant, move to NHWC, and fuse operators into the functions to schedule."""
    module = relax.transform.DecomposeOpsForInference()(module)
    module = rewrite_transposed(round_in_float(fold_constants(module)))
    module = flush_subnormals(fold_scales(module))
    module, removed = remove_channels(module)
    module = fold_scales(module) if removed else module
    module = pad_channels(split_concatenations(module), board)
    module = remove_transposes(fold_constants(relax.transform.ConvertLayout(_LAYOUTS)(module)))
    module = lower_layers(module, board)
    module = relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps()(module))
    module = _keep_slices_apart(module)
    passes = [
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.DeadCodeElimination(),
    ]
    return tvm.transform.Sequential(passes)(module), removed


def _keep_slices_apart(module: tvm.IRModule) -> tvm.IRModule:
    """Keep slices out of the functions of the convolutions before them.

    TVM takes a slice that begins at zero for an elementwise operator. Fused, it would leave the convolution's
    tiles with a rest that no full vector covers.
    """
    for variable, function in list(module.functions.items()):
        if isinstance(function, tvm.tirx.PrimFunc) and variable.name_hint.startswith("strided_slice"):
            module.update_func(variable, function.with_attr("op_pattern", _INJECTIVE))
    return module
