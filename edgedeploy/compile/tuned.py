"""What a build may know from measurements: the best candidate of a function, found by the function itself."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm_ffi import structural_hash

from edgedeploy.compile.configuration import Configuration

# From a function's workload to the configuration of its layer; None where nothing is known.
Tuned = Callable[[tvm.IRModule], Configuration | None]


def untuned(workload: tvm.IRModule) -> None:
    """Nothing is known of any function."""


def workload_of(function: tvm.tirx.PrimFunc) -> tvm.IRModule:
    """A function as tuning records know it: alone, called `main`, without what passes noted on it."""
    for name in dict(function.attrs):
        function = function.without_attr(name)
    return tvm.IRModule({"main": function.with_attr({"global_symbol": "main", "tirx.noalias": True})})


def workload_hash(workload: tvm.IRModule) -> str:
    """The structural hash by which records know a workload: 16 hexadecimal digits, the same in every process."""
    return format(int(structural_hash(workload)) & (2**64 - 1), "016x")
