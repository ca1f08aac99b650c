"""Scheduled functions to object files, on all cores.

LLVM takes most of a build's time, and TVM runs it on one core. Here the functions are dealt out to several
LLVM modules, which are generated side by side and linked into one library.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tvm

from edgedeploy.compile.backend import Generated
from edgedeploy.compile.backends.cpu.narrowing import narrow_by_instructions
from edgedeploy.compile.backends.cpu.schedules import STEPS
from edgedeploy.compile.backends.cpu.stack import PIPELINE
from edgedeploy.compile.elementary import use_vector_arithmetic
from edgedeploy.compile.schedules import TEMPLATE_ATTRIBUTE
from edgedeploy.triples import architecture_of

# The same on every machine: the library's bytes must not depend on who builds it.
PARTS = 4

# Cores for which LLVM unrolls sums of integers until their registers spill, with what it generates them for instead:
# Cortex-A53 takes 3.8 products of bytes in a cycle in the place of 2.2 to 2.9 (`benchmarks/arm_loops.py`).
_INTEGERS_AS = {"cortex-a53": "generic"}

# What LLVM calls the features of CPUs that have fused multiply-adds: of x86, 32-bit ARM, 64-bit ARM, and RISC-V.
_FUSING = {"fma", "vfp4", "fp-armv8", "f"}

# Every function is called by the network's own code with tensors of fixed shapes; the checks that TVM would
# put before each of them are three quarters of the code and half of the time to write it.
# Loops that `Kernel.partition` marked are of constant length, which TVM leaves whole otherwise.
# Common subexpressions are LLVM's business: TVM's own pass fails on the copies of a prefetch in an unrolled loop.
_CONFIGURATION = {
    "tirx.disable_assert": True,
    "tirx.disable_cse_tir": True,
    "s_tir.LoopPartition": {"partition_const_loop": True},
}


def generate(functions: tvm.IRModule, target: tvm.target.Target, folder: Path) -> Generated:
    """Generate the machine code of scheduled functions, as object files in a folder that TVM holds in memory then."""
    use_vector_arithmetic()
    with ThreadPoolExecutor() as pool:
        parts = list(pool.map(lambda part: _static_library(part, folder), enumerate(_deal(functions, target))))
    return Generated([part[0] for part in parts], [part[1] for part in parts])


def _deal(functions: tvm.IRModule, target: tvm.target.Target) -> list[tuple[tvm.IRModule, tvm.target.Target]]:
    """The functions in parts of about equal size, each with the target that it is generated for."""
    ordered = sorted(functions.functions.items(), key=lambda item: item[0].name_hint)
    other = _INTEGERS_AS.get(str(target.attrs.get("mcpu")))
    apart = [each for each in ordered if other and (each[1].attrs or {}).get(TEMPLATE_ATTRIBUTE) == STEPS]
    ordered = [each for each in ordered if each not in apart]
    dealt = [(ordered[part::PARTS], target) for part in range(PARTS)]
    if apart:
        generic = tvm.target.Target({**target.export(), "mcpu": other})
        dealt += [(apart[part::PARTS], generic) for part in range(PARTS)]
    return [(tvm.IRModule(dict(part)), its) for part, its in dealt if part]


def _static_library(part: tuple[int, tuple[tvm.IRModule, tvm.target.Target]], folder: Path) -> tuple[Any, Any]:
    """One part's object file, held in memory by TVM, and the LLVM module that it was written from."""
    index, (functions, target) = part
    path = folder / f"part{index}.o"
    library = write_object(functions, target, path)
    names = [variable.name_hint for variable in functions.get_global_vars()]
    return tvm.runtime.load_static_library(str(path), names), library


def write_object(functions: tvm.IRModule, target: tvm.target.Target, path: Path) -> Any:
    """Generate the machine code of scheduled functions, and write it as an object file.

    Returns:
        The LLVM module that it was written from.
    """
    use_vector_arithmetic()
    architecture = architecture_of(str(target.attrs["mtriple"]))
    fuses = not _FUSING.isdisjoint(map(str, tvm.target.codegen.llvm_get_cpu_features(target)))
    functions = tvm.IRModule(
        {
            variable: narrow_by_instructions(each, architecture, fuses=fuses)
            for variable, each in functions.functions.items()
        }
    )
    with tvm.transform.PassContext(opt_level=3, config=_CONFIGURATION):
        library = tvm.tirx.build(functions, target=target, pipeline=PIPELINE)
    library.write_to_file(str(path), "o")
    return library
