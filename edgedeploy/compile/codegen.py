"""A network of scheduled functions to the code of its library."""

from __future__ import annotations

import tempfile
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.relax import vm_build
from tvm.relax.backend.cpu_generic import pipeline as cpu_pipeline

from edgedeploy.compile.backend import Backend, Generated
from edgedeploy.compile.memory import planned_memory
from edgedeploy.compile.placement import with_one_scope
from edgedeploy.compile.storages import share_storages
from edgedeploy.package.manifest import Memory

_Functions = dict[tvm.ir.GlobalVar, tvm.tirx.PrimFunc]


@dataclass(frozen=True)
class Code:
    """Machine code of a network.

    Attributes:
        executable: a `relax.VMExecutable` over object files; it must be linked before it runs.
        libraries: the LLVM modules that the object files were written from.
        memory: how much of it a run takes.
    """

    executable: Any
    libraries: list[Any]
    memory: Memory

    def inspect(self, kind: str) -> str:
        """The code as text: `ll` is LLVM's intermediate code, `asm` assembly."""
        return "\n".join(library.inspect_source(kind) for library in self.libraries)


def generate(module: tvm.IRModule, host: Backend, device: Backend, on_device: Set[str] = frozenset()) -> Code:
    """Machine code of a module whose functions are scheduled.

    The steps are those of `tvm.relax.build` of the TVM release that edgedeploy pins, less those that would fuse
    scheduled functions once more.

    Args:
        module: a network of scheduled functions.
        host: the board's CPU.
        device: what the network runs on beside it.
        on_device: the functions, by name, that run there; the others run on the CPU.
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
) -> tuple[tvm.IRModule, relax.ExecBuilder, _Functions, dict[str, Any]]:
    """A module lowered for the virtual machine; its instructions, its functions, and its constants by name."""
    plan, *finalize = cpu_pipeline.finalize_passes(target)
    with target:
        module = tvm.transform.Sequential(
            [
                *cpu_pipeline.library_dispatch_passes(target),
                relax.transform.LegalizeOps(),
                *cpu_pipeline.dataflow_lower_passes(target),
                plan,
            ]
        )(module)
        module = tvm.transform.Sequential(finalize)(share_storages(module))
    module = with_one_scope(module)
    constants = dict(module.attrs).get("const_name_to_constant", {}) if module.attrs else {}
    builder = relax.ExecBuilder()
    functions = vm_build._filter_tir(vm_build._vmcodegen(builder, module))
    return module, builder, dict(functions.functions) if functions else {}, dict(constants)
