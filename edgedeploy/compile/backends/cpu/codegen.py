"""Scheduled functions to object files, on all cores: LLVM, which TVM runs on one, takes most of a build's time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.tirx import compilation_pipeline

from edgedeploy.base.supervision import doing
from edgedeploy.compile.backend import Generated, write_module
from edgedeploy.compile.backends.cpu.narrowing import narrow_by_instructions
from edgedeploy.compile.backends.cpu.statements import replaced, replaced_within
from edgedeploy.compile.backends.cpu.steps import features_of
from edgedeploy.compile.ir.elementary import use_vector_arithmetic
from edgedeploy.target.triples import Architecture, architecture_of

# LLVM modules. The same on every machine: the library's bytes must not depend on who builds it.
PARTS = 4

# Cores for which LLVM has only an old model, and the core whose model schedules code for them. Cortex-A55 works in
# order as Cortex-A53 does, two instructions in a cycle. By its model sums of bytes do 3.8 products in a cycle, not 2.2
# to 2.9, and spill less; those of floats up to a fifth more (`benchmarks/arm_loops.py`).
_SCHEDULED_AS = {"cortex-a53": "cortex-a55"}

_TUNING = {"a55", "fuse-address"}  # features that are not instructions

# Functions are called by the network's own code with tensors of fixed shapes; TVM's checks before each of them would be
# three quarters of the code and half of the time to write it.
# Loops that `Kernel.partition` marked are of constant length, which TVM leaves whole otherwise.
# Common subexpressions are LLVM's business: TVM's own pass fails on the copies of a prefetch in an unrolled loop.
_CONFIGURATION = {
    "tirx.disable_assert": True,
    "tirx.disable_cse_tir": True,
    "s_tir.LoopPartition": {"partition_const_loop": True},
}

_PIPELINE = "edgedeploy"  # the name under which TVM finds the pipeline


def generate(functions: tvm.IRModule, target: tvm.target.Target, folder: Path) -> Generated:
    """Generate the machine code of scheduled functions, as object files in a folder, which TVM reads into memory."""
    use_vector_arithmetic()
    ordered = sorted(functions.functions.items(), key=lambda item: item[0].name_hint)

    def generated(part: int) -> tuple[Any, Any]:
        taken, path = dict(ordered[part::PARTS]), folder / f"part{part}.o"
        library = write_object(tvm.IRModule(taken), target, path)
        return tvm.runtime.load_static_library(str(path), [variable.name_hint for variable in taken]), library

    names = ", ".join(variable.name_hint for variable, _ in ordered)
    with doing(f"the code of {names}"), ThreadPoolExecutor() as pool:
        pairs = list(pool.map(generated, range(min(PARTS, len(ordered)))))
    return Generated([pair[0] for pair in pairs], [pair[1] for pair in pairs])


def write_object(functions: tvm.IRModule, target: tvm.target.Target, path: Path) -> Any:
    """Write the machine code of scheduled functions as an object file; returns the LLVM module that it comes from."""
    use_vector_arithmetic()
    architecture = architecture_of(str(target.attrs["mtriple"]))
    features = features_of(target)
    written = {
        variable: _keep_nan(narrow_by_instructions(each, architecture, features), architecture)
        for variable, each in functions.functions.items()
    }
    with target, tvm.transform.PassContext(opt_level=3, config=_CONFIGURATION):
        library = tvm.tirx.build(tvm.IRModule(written), target=scheduled_as(target), pipeline=_PIPELINE)
    write_module(library, path)
    return library


def scheduled_as(target: tvm.target.Target) -> tvm.target.Target:
    """The target with another core's scheduling model, without the instructions that only the other core has."""
    described = target.export()
    if described.get("mcpu") not in _SCHEDULED_AS:
        return target
    other = {**described, "mcpu": _SCHEDULED_AS[described["mcpu"]]}
    added = features_of(tvm.target.Target(other)) - features_of(target) - _TUNING
    return tvm.target.Target({**other, "mattr": [*described.get("mattr", []), *(f"-{each}" for each in sorted(added))]})


def _keep_nan(function: tirx.PrimFunc, architecture: Architecture) -> tirx.PrimFunc:
    """A function whose maxima and minima of floats keep NaN, if the CPU does that with the same instruction.

    In TVM the maximum of NaN and a number is the number, so that a NaN of a sensor would leave a ReLU as 0. 64-bit ARM
    has instructions that keep NaN of either operand. Elsewhere a maximum is a comparison and a choice, and so are x86's
    `maxps` and `minps`: they give their second operand if one is NaN, so that NaN survives next to a constant.
    Integers that floats are turned into stay as they are: NaN is not an index or a quantised value.
    """

    def kept(expression: Any) -> Any:
        if str(getattr(expression.ty, "dtype", "")) not in ("float32", "float16"):  # names of functions have no type
            return None
        if not isinstance(expression, tirx.Max | tirx.Min):
            return expression
        first, second = (replaced_within(each, kept) for each in (expression.a, expression.b))
        if architecture.name == "aarch64":
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


def _pipeline() -> tuple[Any, Any, Any]:
    """TVM's lowering of scheduled functions, with `_on_stack` before memory is taken from the pool."""
    lower, finalize_host, finalize_device = s_tir.pipeline.default_s_tir_pipeline()
    return lower, lambda: tvm.transform.Sequential([_on_stack, finalize_host()]), finalize_device


compilation_pipeline.PIPELINE_MAP[_PIPELINE] = _pipeline


@tirx.transform.prim_func_pass(opt_level=0)
def _on_stack(function: tirx.PrimFunc, _module: tvm.IRModule, _context: tvm.transform.PassContext) -> tirx.PrimFunc:
    """Keep the sums of register tiles on the stack, which LLVM turns into registers.

    TVM takes memory for them from a pool, which LLVM keeps in registers over a loop only if nothing in it may touch the
    same memory, and it assumes that a prefetch may.
    """

    def staying(statement: Any) -> Any:
        if isinstance(statement, tirx.AllocBuffer) and statement.buffer.scope() == "local":
            return tirx.AllocBuffer(statement.buffer, {"disable_lower_builtin": tirx.IntImm("bool", 1)})
        return statement

    return function.with_body(replaced(function.body, staying))
