"""The compiler: Relax passes, schedule templates, code generation."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.s_tir import SBlockRealize

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.base.supervision import doing
from edgedeploy.compile.backend import Backend
from edgedeploy.compile.backends import backend_of, host_of
from edgedeploy.compile.configuration import Configuration, Tuned, untuned, workload_of
from edgedeploy.compile.ir.expressions import call_counts
from edgedeploy.compile.output import packing
from edgedeploy.compile.output.codegen import Code, generate
from edgedeploy.compile.output.entries import joined, renamed
from edgedeploy.compile.output.placement import functions_on_cpu, with_copies
from edgedeploy.compile.passes import Compilation
from edgedeploy.compile.passes.dead_channels import RemovedChannels
from edgedeploy.compile.passes.fusion import FusedFunction
from edgedeploy.compile.passes.half_precision import COMPUTE_IN_HALF, Trial, trial_of
from edgedeploy.compile.passes.integers import THROUGHOUT
from edgedeploy.compile.passes.order import COPIED, passes_for
from edgedeploy.compile.passes.running import Listener, PassError, ignore, run_passes
from edgedeploy.compile.schedules import Scheduled
from edgedeploy.compile.strategy import within
from edgedeploy.errors import CompileError, EdgedeployError, UnsupportedError, last_line
from edgedeploy.model.network import Network
from edgedeploy.target.board import Board


@dataclass(frozen=True)
class Optimised:
    """A network as functions in canonical form; `groups` are those that hold a layer, by name.

    `on_cpu` are those of a network for a device that run on the CPU nevertheless; only `optimise` fills it.
    """

    module: Any
    groups: dict[str, FusedFunction]
    removed: list[RemovedChannels]
    on_cpu: frozenset[str] = frozenset()

    @property
    def functions(self) -> dict[str, Any]:
        """By name, the functions that can be scheduled."""
        return {
            variable.name_hint: function
            for variable, function in self.module.functions.items()
            if isinstance(function, tvm.tirx.PrimFunc) and _can_be_scheduled(function)
        }


@dataclass(frozen=True)
class Lowered:
    """A network as scheduled functions, by name.

    `on_cpu` are those of a network for a device that run on the CPU nevertheless, and why. An `exact` network is
    computed in integers from its inputs to its outputs: no sum is rounded either.
    """

    module: Any
    functions: dict[str, Scheduled]
    removed: list[RemovedChannels]
    on_cpu: dict[str, str]
    exact: bool

    @property
    def templates(self) -> dict[str, str]:
        """By name, the template that scheduled each function."""
        return {name: entry.template for name, entry in self.functions.items()}


@dataclass(frozen=True)
class Compiled(Lowered):
    """A network as code that is not linked yet; `weights` are those of `packing.Lifted`."""

    code: Code
    weights: list[np.ndarray] = field(default_factory=list)


def compile_network(
    network: Network, board: Board, tuned: Tuned = untuned, disabled_passes: Collection[str] = ()
) -> Compiled:
    """As `compile_entries`, for one network without a limit of errors."""
    return compile_entries([(network, math.inf)], board, tuned=tuned, disabled_passes=disabled_passes)


def compile_entries(
    networks: Sequence[tuple[Network, float]],
    board: Board,
    progress: Progress = SILENT,
    tuned: Tuned = untuned,
    disabled_passes: Collection[str] = (),
    listener: Listener = ignore,
    *,
    at_load: bool = False,
) -> Compiled:
    """Generate code for a board's CPU, or for its device and its CPU: one library for networks of the same weights.

    The limit of errors of a network is how many times the rounding error of a reference its own may be, as
    `compile.strategy` estimates it; layers that would exceed it take slower forms. Functions of later networks are
    renamed; `main` of each is `entries.entry_name`. With `at_load`, weights that grow when they are packed are packed
    when the library is loaded, on CPUs.
    """
    if len(networks) > 1 and board.device:
        raise UnsupportedError(
            "networks for a device next to the CPU have one shape", hints=["build one package for each shape"]
        )
    parts: list[Lowered] = []
    for network, limit in networks:
        options = progress, tuned, limit, disabled_passes, ignore if parts else listener
        parts.append(lower_network(network, board, *options, at_load=at_load and board.device is None))
    first, exact = parts[0], all(part.exact for part in parts)
    functions = {
        renamed(name, place): entry for place, part in enumerate(parts) for name, entry in part.functions.items()
    }
    on_device = functions.keys() - first.on_cpu.keys() if board.device else set()
    with _compiling(networks[0][0], board):
        module, weights = packing.lifted(joined([part.module for part in parts]))
        with progress.stage("generate code"):
            code = generate(module, host_of(board), backend_of(board), on_device)
    return Compiled(module, functions, first.removed, first.on_cpu, exact, code, weights)


def lower_network(
    network: Network,
    board: Board,
    progress: Progress = SILENT,
    tuned: Tuned = untuned,
    error_limit: float = math.inf,
    disabled_passes: Collection[str] = (),
    listener: Listener = ignore,
    *,
    at_load: bool = False,
) -> Lowered:
    """Optimise a network and schedule its functions; the arguments are those of `compile_entries`."""
    with _compiling(network, board):
        with progress.stage("optimise"):
            optimised = _optimised(network, board, disabled_passes, listener)
        with progress.stage("schedule"):
            return _placed(optimised, board, tuned, error_limit, at_load=at_load)


def _placed(optimised: Optimised, board: Board, tuned: Tuned, error_limit: float, *, at_load: bool) -> Lowered:
    """A network on the board's device, with other functions on the CPU."""
    backend, exact = backend_of(board), bool((optimised.module.attrs or {}).get(THROUGHOUT, False))
    error_limit = 0.0 if exact else error_limit
    scheduled = _scheduled(optimised, optimised.functions, backend, tuned, error_limit)
    on_cpu = functions_on_cpu(optimised.module, scheduled, backend.little_work) if board.device else {}
    if left := on_cpu.keys() & optimised.functions.keys():
        scheduled |= _scheduled(optimised, left, host_of(board), tuned, error_limit)
    names = {name: packing.scheduled_name(name) if name in scheduled else name for name in {*scheduled, *on_cpu}}
    on_cpu = {names[name]: why for name, why in on_cpu.items()}
    transform = partial(packing.transform_of, backend=backend) if at_load else None
    module = packing.replace_functions(optimised.module, scheduled, transform)
    if board.accelerator:
        module = with_copies(module, on_cpu.keys(), board)
    functions = {names[name]: entry for name, entry in scheduled.items()}
    return Lowered(module, functions, optimised.removed, on_cpu, exact)


def _scheduled(
    optimised: Optimised, names: Iterable[str], backend: Backend, tuned: Tuned, error_limit: float
) -> dict[str, Scheduled]:
    """By name, the functions that a backend has a template for.

    Tuning's best configuration is used, else the one of the backend's models, unless rounding errors forbid it.
    """
    constants, functions = packing.constant_parameters(optimised.module), optimised.functions
    measured = {name: tuned(workload_of(functions[name])) for name in names}
    layers = {name: optimised.groups[name].layer for name in measured if name in optimised.groups}
    strategies = {name: backend.strategy(layer) for name, layer in layers.items()}
    fastest: dict[str, Configuration] = {}
    for name, strategy in strategies.items():
        best = measured[name]
        fits = isinstance(best, backend.forms) and strategy.fits(best)
        fastest[name] = best if best and fits else strategy.default()
    # Half precision rounds by far more than the reference; a trial of the whole network decided that it may.
    rounded = {name: strategy for name, strategy in strategies.items() if layers[name].types.accumulator != "float16"}
    chosen = fastest | within(error_limit, rounded, fastest, call_counts(optimised.module))

    def schedule(name: str) -> Scheduled | None:
        packable = constants.get(name, set())
        if name not in strategies:
            return backend.schedule(functions[name], packable)
        scheduled = backend.configured(optimised.groups[name], chosen[name], packable)
        return replace(scheduled, tuned=chosen[name] is measured[name], exact=chosen[name] is not fastest[name])

    return {name: entry for name in measured if (entry := schedule(name))}


def _can_be_scheduled(function: tvm.tirx.PrimFunc) -> bool:
    """Whether a function computes in blocks below a root; TVM writes a few, as scattering, without one."""
    if not isinstance(function.body, SBlockRealize) or function.body.block.name_hint != "root":
        return False
    return bool(function.attrs.get(COPIED)) or not relax.analysis.has_reshape_pattern(function)  # reshapes become views


@contextmanager
def _compiling(network: Network, board: Board) -> Iterator[None]:
    """TVM's compiler set up for a board; its exceptions become errors that name network and board."""
    try:
        with (
            doing(f"{network.file} for {board.triple} ({board.cpu})"),
            tvm.target.Target(board.cpu_target()),
            tvm.transform.PassContext(opt_level=3),
        ):
            yield
    except EdgedeployError:
        raise
    except Exception as error:
        raise CompileError(
            f"{network.file} cannot be compiled for {board.triple} ({board.cpu})",
            why=last_line(error),
            hints=error.hints if isinstance(error, PassError) else (),
        ) from error


def trial(network: Network, board: Board, disabled_passes: Collection[str] = ()) -> Trial:
    """A network that tries out half precision layer by layer, as its layers are for a board."""
    passes = passes_for(board, disabled_passes)
    with _compiling(network, board):
        module = run_passes(network.module, passes[: passes.index(COMPUTE_IN_HALF)], Compilation(board))
        return trial_of(network, module, board)


def compile_trial(network: Network, board: Board) -> Compiled:
    """Generate code for a trial's network, without the passes that it has been through.

    They would fold the factors around its layers into weights, whose layers were then no longer in half precision.
    """
    passes = passes_for(board, ())
    done = [each.name for each in passes[: passes.index(COMPUTE_IN_HALF)] if not each.required]
    return compile_network(network, board, disabled_passes=done)


def optimise(network: Network, board: Board) -> Optimised:
    """The functions of a network before they are scheduled, and the functions that run on the CPU."""
    with _compiling(network, board):
        optimised = _optimised(network, board)
        if not board.device:
            return optimised
        backend = backend_of(board)
        scheduled = _scheduled(optimised, optimised.functions, backend, untuned, math.inf)
        return replace(optimised, on_cpu=frozenset(functions_on_cpu(optimised.module, scheduled, backend.little_work)))


def _optimised(
    network: Network, board: Board, disabled_passes: Collection[str] = (), listener: Listener = ignore
) -> Optimised:
    compilation = Compilation(board, network.half)
    module = run_passes(network.module, passes_for(board, disabled_passes), compilation, listener)
    names = {variable.name_hint for variable in module.get_global_vars()}
    groups = {name: group for name, group in compilation.groups.items() if name in names}
    return Optimised(module, groups, compilation.removed)
