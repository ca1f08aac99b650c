"""Sums of a register tile as variables on the stack, which LLVM turns into registers whatever else the loop does.

TVM takes memory for them from a pool, by a call in each task. LLVM can keep that in registers over a loop only if
nothing in the loop may touch the same memory, and it takes a prefetch for something that may.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.tirx import compilation_pipeline

from edgedeploy.compile.backends.cpu.statements import replaced

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
