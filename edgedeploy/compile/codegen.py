"""Scheduled functions to machine code, on all cores.

LLVM takes most of a build's time, and TVM runs it on one core. Here the functions are dealt out to several
LLVM modules, which are generated side by side and linked into one library.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.relax import vm_build
from tvm.relax.backend.cpu_generic import pipeline as cpu_pipeline

from edgedeploy.compile.elementary import use_vector_arithmetic
from edgedeploy.compile.memory import planned_memory
from edgedeploy.compile.stack import PIPELINE
from edgedeploy.errors import UnsupportedError
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


def generate(module: tvm.IRModule, target: tvm.target.Target) -> Code:
    """Machine code of a module whose functions are scheduled.

    The steps are those of `tvm.relax.build` of the TVM release that edgedeploy pins, less those that would fuse
    scheduled functions once more.
    """
    use_vector_arithmetic()
    module, builder, functions, constants = _lowered(module, target)
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder, ThreadPoolExecutor() as pool:
        parts = list(pool.map(lambda part: _static_library(part, target, Path(folder)), enumerate(_deal(functions))))
    objects, libraries = [part[0] for part in parts], [part[1] for part in parts]
    executable = vm_build._vmlink(builder, target, ext_libs=objects, params=constants)
    return Code(executable, libraries, planned_memory(module, [each.inspect_source("ll") for each in libraries]))


def generate_for_device(module: tvm.IRModule, target: tvm.target.Target) -> Code:
    """Kernels of a module whose functions are scheduled for a device, and machine code that launches them.

    The device's own compiler turns the kernels into machine code where they run.

    Raises:
        UnsupportedError: TVM would take functions of its own: they run on the CPU, which cannot reach the device's
            memory, or, as its sums of all before, give wrong results on OpenCL devices.
    """
    ours = {variable.name_hint for variable in module.get_global_vars()}
    module, builder, functions, constants = _lowered(module, target)
    for variable, function in functions.functions.items() if functions else ():
        # Reshapes that became views are still there, and not called.
        if variable.name_hint not in ours and not relax.analysis.has_reshape_pattern(function):
            raise UnsupportedError(f"there is no schedule for {variable.name_hint} on OpenCL devices")
    executable = vm_build._vmlink(builder, target, functions, params=constants)
    libraries = list(executable.mod.imports)
    return Code(executable, libraries, planned_memory(module, [each.inspect_source("ll") for each in libraries]))


def _lowered(
    module: tvm.IRModule, target: tvm.target.Target
) -> tuple[tvm.IRModule, relax.ExecBuilder, tvm.IRModule | None, dict[str, Any]]:
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
    constants = dict(module.attrs).get("const_name_to_constant", {}) if module.attrs else {}
    builder = relax.ExecBuilder()
    functions = vm_build._filter_tir(vm_build._vmcodegen(builder, module))
    return module, builder, functions, dict(constants)


def _deal(functions: tvm.IRModule | None) -> list[tvm.IRModule]:
    """The functions in parts of about equal size."""
    if functions is None:
        return []
    ordered = sorted(functions.functions.items(), key=lambda item: item[0].name_hint)
    parts = [ordered[part::PARTS] for part in range(PARTS)]
    return [tvm.IRModule(dict(part), attrs=functions.attrs) for part in parts if part]


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
