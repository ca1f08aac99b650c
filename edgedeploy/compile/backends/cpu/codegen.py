"""Scheduled functions to object files, on all cores.

LLVM takes most of a build's time, and TVM runs it on one core. Here the functions are dealt out to several
LLVM modules, which are generated side by side and linked into one library.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.tirx import compilation_pipeline

from edgedeploy.compile.backend import Generated, write_module
from edgedeploy.compile.backends.cpu.narrowing import narrow_by_instructions
from edgedeploy.compile.backends.cpu.statements import replaced, replaced_within
from edgedeploy.compile.backends.cpu.steps import features_of
from edgedeploy.compile.elementary import use_vector_arithmetic
from edgedeploy.supervision import doing
from edgedeploy.triples import Architecture, architecture_of

# The same on every machine: the library's bytes must not depend on who builds it.
PARTS = 4

# Cores of which LLVM has only an old model, with the one by whose model code for them is scheduled. Cortex-A55 works in
# order as Cortex-A53 does, two instructions in a cycle. By its model sums of bytes do 3.8 products in a cycle in the
# place of 2.2 to 2.9, and spill less; those of floats up to a fifth more (`benchmarks/arm_loops.py`).
_SCHEDULED_AS = {"cortex-a53": "cortex-a55"}

# Features that are no instructions.
_TUNING = {"a55", "fuse-address"}

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
    names = sorted(variable.name_hint for variable in functions.get_global_vars())
    with doing(f"the code of {', '.join(names)}"), ThreadPoolExecutor() as pool:
        parts = list(pool.map(lambda part: _static_library(part, target, folder), enumerate(_deal(functions))))
    return Generated([part[0] for part in parts], [part[1] for part in parts])


def _deal(functions: tvm.IRModule) -> list[tvm.IRModule]:
    """The functions in parts of about equal size."""
    ordered = sorted(functions.functions.items(), key=lambda item: item[0].name_hint)
    return [tvm.IRModule(dict(ordered[part::PARTS])) for part in range(min(PARTS, len(ordered)))]


def _static_library(part: tuple[int, tvm.IRModule], target: tvm.target.Target, folder: Path) -> tuple[Any, Any]:
    """One part's object file, held in memory by TVM, and the LLVM module that it was written from."""
    index, functions = part
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
    features = features_of(target)
    functions = tvm.IRModule(
        {
            variable: keep_nan(narrow_by_instructions(each, architecture, features), architecture)
            for variable, each in functions.functions.items()
        }
    )
    with tvm.transform.PassContext(opt_level=3, config=_CONFIGURATION):
        library = tvm.tirx.build(functions, target=scheduled_as(target), pipeline=PIPELINE)
    write_module(library, path)
    return library


def scheduled_as(target: tvm.target.Target) -> tvm.target.Target:
    """A target that has LLVM schedule by the model of another core, without the instructions that only that one has."""
    described = target.export()
    if described.get("mcpu") not in _SCHEDULED_AS:
        return target
    other = {**described, "mcpu": _SCHEDULED_AS[described["mcpu"]]}
    added = features_of(tvm.target.Target(other)) - features_of(target) - _TUNING
    return tvm.target.Target({**other, "mattr": [*described.get("mattr", []), *(f"-{each}" for each in sorted(added))]})


_TYPE = "float32"


def keep_nan(function: tirx.PrimFunc, architecture: Architecture) -> tirx.PrimFunc:
    """A function whose maxima and minima of floats keep NaN, as far as that costs nothing on a CPU.

    Integers that floats are turned into stay as they are: NaN is no index, and no quantised value.
    """
    of_both = architecture.name == "aarch64"

    def kept(expression: Any) -> Any:
        if str(getattr(expression.ty, "dtype", "")) != _TYPE:  # names of functions have none
            return None
        if not isinstance(expression, tirx.Max | tirx.Min):
            return expression
        first, second = (replaced_within(each, kept) for each in (expression.a, expression.b))
        if of_both:
            name = "llvm.maximum" if isinstance(expression, tirx.Max) else "llvm.minimum"
            return tirx.call_llvm_pure_intrin(expression.ty.dtype, name, first, second)
        if isinstance(second, tirx.FloatImm):
            first, second = second, first
        return type(expression)(first, second)

    def rewritten(statement: Any) -> Any:
        if not isinstance(statement, tirx.BufferStore):
            return statement
        return tirx.BufferStore(statement.buffer, replaced_within(statement.value, kept), statement.indices)

    return function.with_body(replaced(function.body, rewritten))


# The name under which TVM finds the pipeline.
PIPELINE = "edgedeploy"

# TVM's mark on memory that stays with the function that it is declared in.
_STAYS = "disable_lower_builtin"


def _pipeline() -> tuple[Any, Any, Any]:
    """TVM's lowering of scheduled functions, with `_on_stack` before memory is taken from the pool."""
    lower, finalize_host, finalize_device = s_tir.pipeline.default_s_tir_pipeline()
    return lower, lambda: tvm.transform.Sequential([_on_stack, finalize_host()]), finalize_device


compilation_pipeline.PIPELINE_MAP[PIPELINE] = _pipeline


@tirx.transform.prim_func_pass(opt_level=0)
def _on_stack(function: tirx.PrimFunc, _module: tvm.IRModule, _context: tvm.transform.PassContext) -> tirx.PrimFunc:
    return function.with_body(replaced(function.body, _staying))


def _staying(statement: Any) -> Any:
    """The declaration of a buffer of the scope `local` as one that stays where it is."""
    if isinstance(statement, tirx.AllocBuffer) and statement.buffer.scope() == "local":
        return tirx.AllocBuffer(statement.buffer, {_STAYS: tirx.IntImm("bool", 1)})
    return statement
