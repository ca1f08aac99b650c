"""Generates the code of a network of scheduled functions, plans its memory, and links it with the board's toolchain.

TVM plans which tensors of a network take turns in one piece of memory, for each type separately. Here tensors of
different types share it, too: a quantised network's last tensors are floats, for which there is room where its first,
largest bytes were. The manifest states how much was planned.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.relax import vm_build
from tvm.relax.backend.cpu_generic import pipeline as cpu_pipeline

from edgedeploy.compile.backend import Backend, Generated, write_module
from edgedeploy.compile.ir.expressions import bindings_of, constant_value, is_call, parts_of
from edgedeploy.compile.native import GUARDS, THREAD_POOL
from edgedeploy.compile.output.placement import with_one_scope
from edgedeploy.errors import ToolchainError
from edgedeploy.package.manifest import TRANSFORM, Memory
from edgedeploy.target.board import Board
from edgedeploy.target.toolchain import link_shared

# The room for objects of a network's functions, in bytes: LLVM, which writes them, ends the process if a disk is full.
_ROOM = 16 << 20


@dataclass(frozen=True)
class Code:
    """Machine code of a network: a `relax.VMExecutable` over object files, and the LLVM modules behind them."""

    executable: Any
    libraries: list[Any]
    memory: Memory

    def inspect(self, kind: str) -> str:
        """The code as text: `ll` is LLVM's intermediate code, `asm` assembly."""
        return "\n".join(library.inspect_source(kind) for library in self.libraries)


def generate(module: tvm.IRModule, host: Backend, device: Backend, on_device: Set[str] = frozenset()) -> Code:
    """Machine code of a module whose functions are scheduled: those named in `on_device` for it, others for the CPU.

    The steps are those of `tvm.relax.build` of the pinned TVM, without those that fuse scheduled functions once more.
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
) -> tuple[tvm.IRModule, relax.ExecBuilder, dict[tvm.ir.GlobalVar, tvm.tirx.PrimFunc], dict[str, Any]]:
    """A module lowered for the virtual machine; its instructions, its functions, and its constants by name."""
    plan, *finalize = cpu_pipeline.finalize_passes(target)
    dispatch, lower = cpu_pipeline.library_dispatch_passes(target), cpu_pipeline.dataflow_lower_passes(target)
    with target:
        module = tvm.transform.Sequential([*dispatch, relax.transform.LegalizeOps(), *lower, plan])(module)
        module = tvm.transform.Sequential(finalize)(share_storages(module))
    module = with_one_scope(module)
    constants = dict(module.attrs).get("const_name_to_constant", {}) if module.attrs else {}
    builder = relax.ExecBuilder()
    functions = vm_build._filter_tir(vm_build._vmcodegen(builder, module))
    return module, builder, dict(functions.functions) if functions else {}, dict(constants)


def link(code: Code, library: Path, board: Board) -> None:
    """Link a network's code, its weights, its threads and its guards into the shared library that TVM loads."""
    try:
        with tempfile.TemporaryFile() as room:
            os.posix_fallocate(room.fileno(), 0, _ROOM)
    except OSError as error:
        raise ToolchainError("the network's objects cannot be written", why=error.strerror) from error

    def compile_with(output: str, objects: list[str], **_: Any) -> None:
        link_shared([*map(Path, objects), THREAD_POOL, GUARDS], Path(output), board)

    def pack_weights(module: Any, in_program: bool, prefix: str, folder: str) -> str:
        """The object with the weights. TVM's own lacks the CPU and the ABI, which linkers compare."""
        path = str(Path(folder) / f"{prefix}devc.o")
        pack = tvm.get_global_func("runtime.ModulePackImportsToLLVM")
        write_module(pack(module, in_program, json.dumps(board.cpu_target()), prefix), Path(path))
        return path

    compile_with.object_format = "o"  # type: ignore[attr-defined]
    code.executable.export_library(str(library), fcompile=compile_with, fpack_imports=pack_weights)


# LLVM's text form of a buffer that TVM's code generator allocates inside a function: a call through a pointer that was
# just loaded, with device type, device, and the size in bytes.
_FUNCTION = re.compile(r"define .*?@\"?(?P<name>[^\"(]+)")
_LOAD = re.compile(r"\s*(?P<pointer>%\S+) = load ptr, ptr @__TVMBackendAllocWorkspace")
_CALL = re.compile(r"call .*?(?P<pointer>%\S+)\(i32 [^,]+, i32 [^,]+, i64 (?P<bytes>\d+),")
_PARALLEL = "__tvm_parallel_lambda"

# TVM's operators that allocate memory, and that place a tensor in it.
_STORAGE, _TENSOR = "relax.memory.alloc_storage", "relax.memory.alloc_tensor"


def planned_memory(module: tvm.IRModule, code: Iterable[str]) -> Memory:
    """Read the memory plan of a network, after `StaticPlanBlockMemory`, and LLVM's text form of its functions.

    Each entry keeps its own memory; constants that several share are there once. Results of `TRANSFORM` are weights.
    """
    functions = {name.name_hint: each for name, each in module.functions_items() if isinstance(each, relax.Function)}
    transform = functions.pop(TRANSFORM, None)
    parts = [part for entry in functions.values() for part in parts_of(entry)]
    constants = [array for array in map(constant_value, parts) if array is not None]
    if len(functions) > 1:
        constants = list({(array.dtype.str, array.shape, array.tobytes()): array for array in constants}.values())
    transformed = _stored_bytes(parts_of(transform)) if transform else 0
    return Memory(
        workspace_bytes=_stored_bytes(parts),
        scratch_bytes=_scratch_bytes(code),
        constants_bytes=sum(array.nbytes for array in constants) + transformed,
    )


def _stored_bytes(parts: Iterable[Any]) -> int:
    """The size of the storages that a function's expressions allocate."""
    storages = (each.args[0].values for each in parts if is_call(each, "relax.vm.alloc_storage"))
    return sum(math.prod(map(int, sizes)) for sizes in storages)


def _scratch_bytes(code: Iterable[str]) -> int:
    """The most that one thread takes at once: in a function, and in the body of a parallel loop in it."""
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


@dataclass
class _Storage:
    """A piece of memory for tensors of one type."""

    place: int  # the number of the binding that allocates it
    size: int  # in bytes
    like: tuple[str, ...]  # device and scope, which pieces must share to become one
    dtype: str
    used: list[tuple[int, int]] = field(default_factory=list)  # the first and last binding that uses each tensor

    def takes(self, other: _Storage) -> bool:
        """Whether the tensors of another one have room in it, none of them while one of its own is used."""
        apart = all(last < begin or end < first for first, last in self.used for begin, end in other.used)
        return self.like == other.like and self.dtype != other.dtype and self.size >= other.size and apart


def share_storages(module: tvm.IRModule) -> tvm.IRModule:
    """Put tensors of one type where tensors of another type were, if memory was planned and nothing branches."""
    for variable, function in list(module.functions_items()):
        if isinstance(function, relax.Function) and isinstance(function.body, relax.SeqExpr):
            module.update_func(variable, _sharing(function))
    return module


def _sharing(function: relax.Function) -> relax.Function:
    bindings = bindings_of(function)
    if not all(isinstance(each, relax.VarBinding) and not isinstance(each.value, relax.If) for each in bindings):
        return function
    storages, taken = _storages(bindings, function.body.body), dict[relax.Var, relax.Var]()
    for variable, storage in sorted(storages.items(), key=lambda item: -item[1].size):
        larger = (each for each, other in storages.items() if each not in taken and other.place < storage.place)
        found = next((each for each in larger if storages[each].takes(storage)), None)
        if found is not None:
            taken[variable] = found
            storages[found].used += storage.used
    if not taken:
        return function

    def moved(value: relax.Expr) -> relax.Expr:
        """A tensor in the storage that replaces its own; any other expression as it is."""
        if not is_call(value, _TENSOR):
            return value
        storage, *others = value.args
        return relax.Call(value.op, [taken.get(storage, storage), *others], value.attrs, value.ty_args)

    written = [relax.VarBinding(each.var, moved(each.value)) for each in bindings if each.var not in taken]
    body = relax.SeqExpr([relax.BindingBlock(written)], function.body.body)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def _storages(bindings: list[relax.VarBinding], result: relax.Expr) -> dict[relax.Var, _Storage]:
    """The pieces of memory that a function allocates, by the variables that hold them."""
    storages: dict[relax.Var, _Storage] = {}
    # By variable, the tensors whose memory it may refer to: the numbers of the bindings that placed them.
    behind: dict[relax.Var, set[int]] = {}
    last: dict[int, int] = {}
    owner: dict[int, relax.Var] = {}
    for place, binding in enumerate([*bindings, None]):
        value = result if binding is None else binding.value
        read = {tensor for each in relax.analysis.free_vars(value) for tensor in behind.get(each, ())}
        last.update(dict.fromkeys(read, place))
        if binding is None:
            break
        if is_call(value, _STORAGE):
            size, device, scope, dtype = value.args
            whole = math.prod(int(each) for each in size.values)
            storages[binding.var] = _Storage(place, whole, (str(device), str(scope)), str(dtype))
        elif is_call(value, _TENSOR):
            owner[place], last[place] = value.args[0], place
            behind[binding.var] = {place}
        else:
            behind[binding.var] = read
    for tensor, variable in owner.items():
        storages[variable].used.append((tensor, last[tensor]))
    return storages
