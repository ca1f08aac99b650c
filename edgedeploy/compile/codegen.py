"""Scheduled functions to machine code, on all cores.

LLVM takes most of a build's time, and TVM runs it on one core. Here the functions are dealt out to several
LLVM modules, which are generated side by side and linked into one library.
"""

from __future__ import annotations

import tempfile
from collections.abc import Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.relax import vm_build
from tvm.relax.backend.cpu_generic import pipeline as cpu_pipeline

from edgedeploy.board import Board
from edgedeploy.compile.backends.cpu.elementary import use_vector_arithmetic
from edgedeploy.compile.backends.cpu.stack import PIPELINE
from edgedeploy.compile.memory import planned_memory
from edgedeploy.compile.placement import with_one_scope
from edgedeploy.package.manifest import Memory

# The same on every machine: the library's bytes must not depend on who builds it.
PARTS = 4

# Every function is called by the network's own code with tensors of fixed shapes; the checks that TVM would
# put before each of them are three quarters of the code and half of the time to write it.
# Loops that `Kernel.partition` marked are of constant length, which TVM leaves whole otherwise.
# Common subexpressions are LLVM's business: TVM's own pass fails on the copies of a prefetch in an unrolled loop.
_CONFIGURATION = {
    "tirx.disable_assert": True,
    "tirx.disable_cse_tir": True,
    "s_tir.LoopPartition": {"partition_const_loop": True},
}

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


def generate(module: tvm.IRModule, board: Board, on_device: Set[str] = frozenset()) -> Code:
    """Machine code of a module whose functions are scheduled.

    The steps are those of `tvm.relax.build` of the TVM release that edgedeploy pins, less those that would fuse
    scheduled functions once more.

    Args:
        module: a network of scheduled functions.
        board: what the code is for.
        on_device: the functions, by name, that run on the board's OpenCL device; the others run on its CPU. Kernels
            become machine code where they run, by the device's own compiler; code for the CPU starts them.
    """
    use_vector_arithmetic()
    cpu, target = tvm.target.Target(board.cpu_target()), tvm.target.Target(board.target())
    module, builder, functions, constants = _lowered(module, cpu)
    kernels = {variable: function for variable, function in functions.items() if variable.name_hint in on_device}
    deal = _deal({variable: function for variable, function in functions.items() if variable not in kernels})
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder, ThreadPoolExecutor() as pool:
        parts = list(pool.map(lambda part: _static_library(part, cpu, Path(folder)), enumerate(deal)))
    objects, libraries = [part[0] for part in parts], [part[1] for part in parts]
    launched = tvm.IRModule(kernels) if kernels else None
    executable = vm_build._vmlink(builder, target, launched, ext_libs=objects, params=constants)
    libraries += [each for each in executable.mod.imports if each.kind == "llvm"]
    return Code(executable, libraries, planned_memory(module, [each.inspect_source("ll") for each in libraries]))


def _lowered(
    module: tvm.IRModule, target: tvm.target.Target
) -> tuple[tvm.IRModule, relax.ExecBuilder, _Functions, dict[str, Any]]:
    """A module lowered for the virtual machine; its instructions, its functions, and its constants by name."""
    with target:
        module = tvm.transform.Sequential(
            [
                *cpu_pipeline.library_dispatch_passes(target),
                relax.transform.LegalizeOps(),
                *cpu_pipeline.dataflow_lower_passes(target),
                *cpu_pipeline.finalize_passes(target),
            ]
        )(module)
    module = with_one_scope(module)
    constants = dict(module.attrs).get("const_name_to_constant", {}) if module.attrs else {}
    builder = relax.ExecBuilder()
    functions = vm_build._filter_tir(vm_build._vmcodegen(builder, module))
    return module, builder, dict(functions.functions) if functions else {}, dict(constants)


def _deal(functions: _Functions) -> list[tvm.IRModule]:
    """The functions in parts of about equal size."""
    ordered = sorted(functions.items(), key=lambda item: item[0].name_hint)
    parts = [ordered[part::PARTS] for part in range(PARTS)]
    return [tvm.IRModule(dict(part)) for part in parts if part]


def _static_library(part: tuple[int, tvm.IRModule], target: tvm.target.Target, folder: Path) -> tuple[Any, Any]:
    """One part's object file, held in memory by TVM, and the LLVM module that it was written from."""
    index, functions = part
    path = folder / f"part{index}.o"
    library = write_object(functions, target, path)
    names = [variable.name_hint for variable in functions.get_global_vars()]
    return tvm.runtime.load_static_library(str(path), names), library


def write_device_objects(functions: tvm.IRModule, target: tvm.target.Target, folder: Path) -> None:
    """Generate the kernels of functions that are scheduled for a device, and what launches them.

    Written into the folder are object files with the code that runs on the CPU, and with the kernels as that reads
    them; linked, they are a library of their own.
    """
    with tvm.transform.PassContext(opt_level=3):
        library = tvm.tirx.build(functions, target=target)
    library.export_library("", fcompile=_leave, workspace_dir=str(folder))


def _leave(_output: str, _objects: list[str], **_: Any) -> None:
    """In the place of a linker: the object files stay where they are."""


def write_object(functions: tvm.IRModule, target: tvm.target.Target, path: Path) -> Any:
    """Generate the machine code of scheduled functions, and write it as an object file.

    Returns:
        The LLVM module that it was written from.
    """
    use_vector_arithmetic()
    with tvm.transform.PassContext(opt_level=3, config=_CONFIGURATION):
        library = tvm.tirx.build(functions, target=target, pipeline=PIPELINE)
    library.write_to_file(str(path), "o")
    return library
