"""Elementary functions by the names that OpenCL C gives them: TVM writes those of C's library, such as `atan2f`."""

from __future__ import annotations

import functools
from typing import Any

from tvm.ir import Call
from tvm.tirx import call_pure_extern, register_intrin_lowering

# Functions of the same name for every type of float: OpenCL C specification, 6.15.2. TVM takes `native_sin` and
# `native_cos` for two of them, whose errors the specification leaves open.
_NAMES = "acos acosh asin asinh atan atan2 atanh cos sin tan"

# TVM asks the rule of the highest level; its own are at 10 and, from Python, at 99.
_LEVEL = 100


@functools.cache
def use_functions_of_opencl() -> None:
    """Have TVM's OpenCL targets call them so, in this process; TVM refuses a second rule of the same level."""
    for name in _NAMES.split():
        register_intrin_lowering(f"tirx.{name}", "opencl", f=functools.partial(_called, name), level=_LEVEL)


def _called(name: str, call: Call) -> Any:
    return call_pure_extern(call.ty.dtype, name, *call.args)
