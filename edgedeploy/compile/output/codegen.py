"""Generates the code of a network of scheduled functions, and links it with the board's toolchain."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.relax import vm_build
from tvm.relax.backend.cpu_generic import pipeline as cpu_pipeline

from edgedeploy.compile.backend import Backend, Generated, write_module
from edgedeploy.compile.native import GUARDS, THREAD_POOL
from edgedeploy.compile.output.memory import planned_memory, share_storages
from edgedeploy.compile.output.placement import with_one_scope
from edgedeploy.errors import ToolchainError
from edgedeploy.package.manifest import Memory
from edgedeploy.target.board import Board
from edgedeploy.target.toolchain import link_shared

# The room for objects of a network's functions, in bytes: LLVM, which writes them, ends the process if a disk is full.
_ROOM = 16 << 20


@dataclass(frozen=True)
class Code:
    """Machine code of a network: a `relax.VMExecutable` over object files, and the LLVM modules behind them."""

    executable: Any
    libraries: list[Any]
    memory: Memory

    def inspect(self, kind: str) -> str:
        """The code as text: `ll` is LLVM's intermediate code, `asm` assembly."""
        return "\n".join(library.inspect_source(kind) for library in self.libraries)


def generate(module: tvm.IRModule, host: Backend, device: Backend, on_device: Set[str] = frozenset()) -> Code:
    """Machine code of a module whose functions are scheduled: those named in `on_device` for it, others for the CPU.

    The steps are those of `tvm.relax.build` of the pinned TVM, without those that fuse scheduled functions once more.
    """
    cpu, target = tvm.target.Target(host.board.cpu_target()), tvm.target.Target(host.board.target())
    module, builder, functions, constants = _lowered(module, cpu)
    there = {variable: function for variable, function in functions.items() if variable.name_hint in on_device}
    here = {variable: function for variable, function in functions.items() if variable not in there}
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
        mine = host.generate(tvm.IRModule(here), Path(tempfile.mkdtemp(dir=folder)))
        others = device.generate(tvm.IRModule(there), Path(tempfile.mkdtemp(dir=folder))) if there else Generated()
    objects = [*mine.objects, *others.objects]
    executable = vm_build._vmlink(builder, target, others.launched, ext_libs=objects, params=constants)
    libraries = [*mine.libraries, *others.libraries]
    libraries += [each for each in executable.mod.imports if each.kind == "llvm"]
    return Code(executable, libraries, planned_memory(module, [each.inspect_source("ll") for each in libraries]))


def _lowered(
    module: tvm.IRModule, target: tvm.target.Target
) -> tuple[tvm.IRModule, relax.ExecBuilder, dict[tvm.ir.GlobalVar, tvm.tirx.PrimFunc], dict[str, Any]]:
    """A module lowered for the virtual machine; its instructions, its functions, and its constants by name."""
    plan, *finalize = cpu_pipeline.finalize_passes(target)
    dispatch, lower = cpu_pipeline.library_dispatch_passes(target), cpu_pipeline.dataflow_lower_passes(target)
    with target:
        module = tvm.transform.Sequential([*dispatch, relax.transform.LegalizeOps(), *lower, plan])(module)
        module = tvm.transform.Sequential(finalize)(share_storages(module))
    module = with_one_scope(module)
    constants = dict(module.attrs).get("const_name_to_constant", {}) if module.attrs else {}
    builder = relax.ExecBuilder()
    functions = vm_build._filter_tir(vm_build._vmcodegen(builder, module))
    return module, builder, dict(functions.functions) if functions else {}, dict(constants)


def link(code: Code, library: Path, board: Board) -> None:
    """Link a network's code, its weights, its threads and its guards into the shared library that TVM loads."""
    try:
        with tempfile.TemporaryFile() as room:
            os.posix_fallocate(room.fileno(), 0, _ROOM)
    except OSError as error:
        raise ToolchainError("the network's objects cannot be written", why=error.strerror) from error

    def compile_with(output: str, objects: list[str], **_: Any) -> None:
        link_shared([*map(Path, objects), THREAD_POOL, GUARDS], Path(output), board)

    def pack_weights(module: Any, in_program: bool, prefix: str, folder: str) -> str:
        """The object with the weights. TVM's own lacks the CPU and the ABI, which linkers compare."""
        path = str(Path(folder) / f"{prefix}devc.o")
        pack = tvm.get_global_func("runtime.ModulePackImportsToLLVM")
        write_module(pack(module, in_program, json.dumps(board.cpu_target()), prefix), Path(path))
        return path

    compile_with.object_format = "o"  # type: ignore[attr-defined]
    code.executable.export_library(str(library), fcompile=compile_with, fpack_imports=pack_weights)
