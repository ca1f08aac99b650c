"""The compiler: Relax passes, schedule templates, LLVM or OpenCL C."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax
from tvm.s_tir import SBlockRealize

from edgedeploy.board import Board
from edgedeploy.compile.codegen import Code, generate
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.dead_channels import RemovedChannels
from edgedeploy.compile.error_budget import within
from edgedeploy.compile.expressions import call_counts
from edgedeploy.compile.groups import Group
from edgedeploy.compile.layers import AnyLayer
from edgedeploy.compile.packing import constant_parameters, replace_functions, scheduled_name
from edgedeploy.compile.passes import Compilation
from edgedeploy.compile.passes.builtin import COPIED
from edgedeploy.compile.passes.order import passes_for
from edgedeploy.compile.passes.running import Listener, PassError, ignore, run_passes
from edgedeploy.compile.placement import functions_on_cpu, with_copies
from edgedeploy.compile.processors import Cpu, Device, Processor
from edgedeploy.compile.schedules import Scheduled
from edgedeploy.compile.tuned import Tuned, untuned, workload_of
from edgedeploy.errors import CompileError, EdgedeployError, last_line
from edgedeploy.network import Network
from edgedeploy.progress import SILENT, Progress


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
    disabled_passes: Collection[str] = (),
    listener: Listener = ignore,
) -> Compiled:
    """Generate code for a board's CPU, or for its OpenCL device and the CPU that calls it.

    Args:
        network: what `frontends` read.
        board: what the code is for.
        progress: is told about each step.
        tuned: what measuring on the board has found out.
        error_limit: how many times the rounding error of a reference the network's may be, as `compile.error_budget`
            estimates it; where layers would exceed it, they take slower forms.
        disabled_passes: names of passes to leave out.
        listener: is shown the module after each pass.

    Raises:
        CompileError: TVM refuses the network or the target, or a pass fails.
        UnknownNameError, InputError, ConfigurationError: as `passes_for`.
    """
    lowered = lower_network(network, board, progress, tuned, error_limit, disabled_passes, listener)
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
    disabled_passes: Collection[str] = (),
    listener: Listener = ignore,
) -> Lowered:
    """Optimise a network and schedule its functions.

    Arguments are those of `compile_network`.

    Raises:
        EdgedeployError: as `compile_network`.
    """
    with _compiling(network, board):
        with progress.stage("optimise"):
            optimised = _optimised(network, board, disabled_passes, listener)
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
    What MetaSchedule scheduled is not taken for boards with an OpenCL device: its rules here are those for CPUs, and
    records of such boards are of the device.
    """
    constants, functions = constant_parameters(optimised.module), optimised.functions
    measured = {name: tuned(workload_of(functions[name])) for name in names}
    layers = {name: optimised.groups[name].layer for name in measured if name in optimised.groups}
    fastest = {name: _fastest(layer, processor, measured[name]) for name, layer in layers.items()}
    chosen = within(error_limit, layers, fastest, call_counts(optimised.module), processor.board)

    def schedule(name: str) -> Scheduled | None:
        found, packable = measured[name], constants.get(name, set())
        if isinstance(found, tvm.tirx.PrimFunc) and processor.board.opencl is None:
            return Scheduled.elsewhere(found)
        if name not in layers:
            return processor.schedule(functions[name], packable)
        scheduled = processor.configured(optimised.groups[name], chosen[name], packable)
        return replace(scheduled, tuned=chosen[name] is found, exact=chosen[name] is not fastest[name])

    found = {name: schedule(name) for name in measured}
    return {name: entry for name, entry in found.items() if entry}


def _fastest(layer: AnyLayer, processor: Processor, measured: Any) -> Configuration:
    if isinstance(measured, processor.forms) and processor.fits(layer, measured):
        return measured
    return processor.default(layer)


def _below_root(function: tvm.tirx.PrimFunc) -> bool:
    """Whether a function computes something in blocks below a root; TVM writes a few, as scattering, without one."""
    return isinstance(function.body, SBlockRealize) and function.body.block.name_hint == "root"


def _can_be_scheduled(function: tvm.tirx.PrimFunc) -> bool:
    """Whether a function computes something; reshapes become views."""
    return _below_root(function) and (
        bool(function.attrs.get(COPIED)) or not relax.analysis.has_reshape_pattern(function)
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
            f"{network.file} cannot be compiled for {board.triple} ({board.cpu})",
            why=last_line(error),
            hints=error.hints if isinstance(error, PassError) else (),
        ) from error


def optimise(network: Network, board: Board) -> Optimised:
    """The functions of a network, before they are scheduled, and where they run.

    Raises:
        CompileError: as `compile_network`.
    """
    with _compiling(network, board):
        optimised = _optimised(network, board)
        if not board.opencl:
            return optimised
        scheduled = _scheduled(optimised, optimised.functions, Device(board), untuned, math.inf)
        return replace(optimised, on_cpu=frozenset(functions_on_cpu(optimised.module, scheduled, board)))


def _optimised(
    network: Network, board: Board, disabled_passes: Collection[str] = (), listener: Listener = ignore
) -> Optimised:
    """Apply the passes."""
    compilation = Compilation(board)
    module = run_passes(network.module, passes_for(board, disabled_passes), compilation, listener)
    names = {variable.name_hint for variable in module.get_global_vars()}
    groups = {name: group for name, group in compilation.groups.items() if name in names}
    return Optimised(module, groups, compilation.removed)
