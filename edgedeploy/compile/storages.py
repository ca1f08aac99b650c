"""Tensors of different types in the same memory.

TVM plans which tensors of a network take turns in one piece of memory, those of each type by themselves. A quantised
network's last tensors are floats, for which room is left where its first, largest bytes were.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax

from edgedeploy.compile.expressions import is_call

# TVM's operators that ask for memory, and that make a tensor of it.
_STORAGE, _TENSOR = "relax.memory.alloc_storage", "relax.memory.alloc_tensor"


@dataclass
class _Storage:
    """A piece of memory.

    Attributes:
        place: the number of the binding that asks for it.
        size: in bytes.
        like: what pieces that may be one have in common: where they are.
        dtype: of its tensors.
        used: from which binding to which last one each of its tensors is used.
    """

    place: int
    size: int
    like: tuple[str, ...]
    dtype: str
    used: list[tuple[int, int]] = field(default_factory=list)

    def takes(self, other: _Storage) -> bool:
        """Whether the tensors of another one find room in it, none of them while one of its own is used."""
        apart = all(last < begin or end < first for first, last in self.used for begin, end in other.used)
        return self.like == other.like and self.dtype != other.dtype and self.size >= other.size and apart


def share_storages(module: tvm.IRModule) -> tvm.IRModule:
    """Let tensors of one type lie where those of another one lay, where memory was planned and nothing branches.

    Networks of one type stay as they were.
    """
    for variable, function in list(module.functions_items()):
        if isinstance(function, relax.Function) and isinstance(function.body, relax.SeqExpr):
            module.update_func(variable, _sharing(function))
    return module


def _sharing(function: relax.Function) -> relax.Function:
    bindings = [binding for block in function.body.blocks for binding in block.bindings]
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
    written = [
        relax.VarBinding(each.var, _from(each.value, taken) if is_call(each.value, _TENSOR) else each.value)
        for each in bindings
        if each.var not in taken
    ]
    body = relax.SeqExpr([relax.BindingBlock(written)], function.body.body)
    return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


def _storages(bindings: list[relax.VarBinding], result: relax.Expr) -> dict[relax.Var, _Storage]:
    """The pieces of memory that a function asks for, by the variables that hold them."""
    storages: dict[relax.Var, _Storage] = {}
    # By variable, the tensors whose memory it may stand for: the bindings that made them.
    behind: dict[relax.Var, set[int]] = {}
    last: dict[int, int] = {}
    owner: dict[int, relax.Var] = {}
    for place, binding in enumerate([*bindings, None]):
        value = result if binding is None else binding.value
        read = {tensor for each in _variables(value) for tensor in behind.get(each, ())}
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


def _variables(value: relax.Expr) -> list[relax.Var]:
    found: list[Any] = []
    relax.analysis.post_order_visit(value, found.append)
    return [each for each in found if isinstance(each, relax.Var)]


def _from(tensor: relax.Call, taken: dict[relax.Var, relax.Var]) -> relax.Call:
    """A tensor in the storage that takes the place of its own."""
    storage, *others = tensor.args
    return relax.Call(tensor.op, [taken.get(storage, storage), *others], tensor.attrs, tensor.ty_args)
