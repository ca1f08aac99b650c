"""How much memory a network needs, as planned when it was built."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import tvm
from tvm import relax

from edgedeploy.compile.expressions import constant_value, is_call, parts_of
from edgedeploy.package.manifest import TRANSFORM, Memory

# How LLVM's text form shows what TVM's code generator makes of a buffer inside of a function: a call through a
# pointer that was just loaded, with device type, device, and the size in bytes.
_FUNCTION = re.compile(r"define .*?@\"?(?P<name>[^\"(]+)")
_LOAD = re.compile(r"\s*(?P<pointer>%\S+) = load ptr, ptr @__TVMBackendAllocWorkspace")
_CALL = re.compile(r"call .*?(?P<pointer>%\S+)\(i32 [^,]+, i32 [^,]+, i64 (?P<bytes>\d+),")
_PARALLEL = "__tvm_parallel_lambda"


def planned_memory(module: tvm.IRModule, code: Iterable[str]) -> Memory:
    """Read the memory plan of a network.

    Args:
        module: Relax's module after `StaticPlanBlockMemory`, lowered for the virtual machine. Each of its entries keeps
            what it needs between functions; constants that several have are there once. What `TRANSFORM` makes are
            weights.
        code: its functions, as LLVM's text form shows them.
    """
    functions = {name.name_hint: each for name, each in module.functions_items() if isinstance(each, relax.Function)}
    transform = functions.pop(TRANSFORM, None)
    entries = list(functions.values())
    parts = [part for entry in entries for part in parts_of(entry)]
    constants = [array for array in map(constant_value, parts) if array is not None]
    if len(entries) > 1:
        constants = list({(array.dtype.str, array.shape, array.tobytes()): array for array in constants}.values())
    return Memory(
        workspace_bytes=_stored_bytes(parts),
        scratch_bytes=_scratch_bytes(code),
        constants_bytes=sum(array.nbytes for array in constants)
        + (_stored_bytes(parts_of(transform)) if transform else 0),
    )


def _stored_bytes(parts: Iterable[Any]) -> int:
    """Of the storages that a function's expressions ask for."""
    storages = (each.args[0].values for each in parts if is_call(each, "relax.vm.alloc_storage"))
    return sum(math.prod(map(int, sizes)) for sizes in storages)


def _scratch_bytes(code: Iterable[str]) -> int:
    """The most that one thread takes at once: in a function, and in the body of a parallel loop that it runs."""
    taken: dict[bool, list[int]] = {False: [0], True: [0]}
    for line in "\n".join(code).splitlines():
        if function := _FUNCTION.match(line):
            sizes, pointers = taken[function["name"].startswith(_PARALLEL)], set()
            sizes.append(0)
        elif load := _LOAD.match(line):
            pointers.add(load["pointer"])
        elif (call := _CALL.search(line)) and call["pointer"] in pointers:
            sizes[-1] += int(call["bytes"])
    return max(taken[False]) + max(taken[True])
