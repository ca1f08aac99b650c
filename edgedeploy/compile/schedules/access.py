"""How a block accesses its buffers: which loops run through memory without a break, and which cross it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

from tvm.ir import Call, TensorLoad
from tvm.tirx import EQ, GE, GT, LE, LT, NE, And, Cast, IntImm, Not, Or, Select, Sub
from tvm.tirx.analysis import undefined_vars
from tvm_ffi import structural_walk

from edgedeploy.compile.schedules.kernel import Kernel


def fuse_contiguous(kernel: Kernel, block: Any) -> list[list[int]]:
    """Fuse the loops around an elementwise block that are contiguous in every buffer.

    A loop is fused with the one inside it if each buffer either has both variables in neighbouring dimensions, the
    inner one for the whole of its dimension, or has neither. Returns the indices of the former loops in each.
    """
    schedule = kernel.schedule
    loops, extents = schedule.get_loops(block), kernel.extents(block)
    variables = [variable.var for variable in schedule.get(block).iter_vars]
    if len(variables) != len(loops):
        return [[index] for index in range(len(loops))]
    accesses = _accesses(kernel, block)
    long = [index for index, extent in enumerate(extents) if extent > 1]
    groups: list[list[int]] = []
    for index in long:
        if groups and all(
            _walks_as_one(shape, indices, variables[groups[-1][-1]], variables[index], extents[index])
            for shape, indices in accesses
        ):
            groups[-1].append(index)
        else:
            groups.append([index])
    starts = [0, *(group[0] for group in groups[1:]), len(loops)]  # loops of one iteration join the loop before them
    members = [list(range(first, last)) for first, last in itertools.pairwise(starts)]
    for group in members:
        if len(group) > 1:
            schedule.fuse(*(loops[index] for index in group))
    return members


def strided_loop(kernel: Kernel, block: Any) -> int | None:
    """The loop, by index, that runs along the memory of a buffer that the innermost loop crosses, as in a transpose."""
    schedule = kernel.schedule
    extents = kernel.extents(block)
    variables = [variable.var for variable in schedule.get(block).iter_vars]
    if len(variables) != len(extents):
        return None
    inner = max((index for index, extent in enumerate(extents) if extent > 1), default=None)
    for _, indices in _accesses(kernel, block):
        if inner is None or not indices or not any(_uses(each, variables[inner]) for each in indices[:-1]):
            continue
        for index, variable in enumerate(variables):
            if index != inner and extents[index] > 1 and indices[-1].same_as(variable):
                return index
    return None


def runs_along_memory(kernel: Kernel, block: Any, loop: int) -> bool:
    """Whether a loop, by index, runs along the last dimension of a buffer that a block reads."""
    variable = kernel.schedule.get(block).iter_vars[loop].var
    reads = [indices for _, indices in _accesses(kernel, block)][: len(kernel.schedule.get(block).reads)]
    return any(bool(indices) and indices[-1].same_as(variable) for indices in reads)


def _accesses(kernel: Kernel, block: Any) -> list[tuple[list[int], list[Any]]]:
    """Shape and indices of all regions that a block reads and writes, without the dimensions of one element."""
    found, statement = [], kernel.schedule.get(block)
    for region in [*statement.reads, *statement.writes]:
        shape = [int(size) for size in region.source.ty.shape]
        indices = [each.min for each in region.region]
        kept = [position for position, size in enumerate(shape) if size > 1]
        found.append(([shape[position] for position in kept], [indices[position] for position in kept]))
    return found


def _walks_as_one(shape: list[int], indices: list[Any], outer: Any, inner: Any, extent: int) -> bool:
    users = [position for position, index in enumerate(indices) if _uses(index, outer) or _uses(index, inner)]
    if not users:
        return True
    if len(users) != 2 or users[1] != users[0] + 1 or shape[users[1]] != extent:
        return False
    return bool(indices[users[0]].same_as(outer) and indices[users[1]].same_as(inner))


def _uses(index: Any, variable: Any) -> bool:
    return not isinstance(index, IntImm) and any(each.same_as(variable) for each in undefined_vars(index))


def boundaries(kernel: Kernel, block: Any) -> list[int]:
    """The places along its innermost loop at which a block continues with another buffer, as in a concat."""
    statement = kernel.schedule.get(block)
    innermost = statement.iter_vars[-1].var
    indices = (each.min for region in statement.reads for each in region.region)
    found = (each.b for each in indices if isinstance(each, Sub) and each.a.same_as(innermost))
    return sorted({int(each.value) for each in found if isinstance(each, IntImm)})


def computes_indices(kernel: Kernel, block: Any) -> bool:
    """Whether elements may come from anywhere in a buffer: TVM 0.27 mixes types if it partitions loops around them."""
    return any(
        isinstance(part, TensorLoad | Cast)
        for load in _expressions(kernel.schedule.get(block).body)
        if isinstance(load, TensorLoad)
        for index in load.indices
        for part in _expressions(index)
    )


def is_partitioned_alike(kernel: Kernel, block: Any, loops: Sequence[int]) -> bool:
    """Whether conditions along loops, by index, change at the same places in every iteration of a block's other loops.

    Otherwise TVM 0.27 must not partition the loops: of the two ends of a part, which depend on an outer loop, it bounds
    one and forgets the other, and overwrites values beyond the loop's end that another thread has written by then.
    """
    statement = kernel.schedule.get(block)
    if any(index >= len(statement.iter_vars) for index in loops):  # loops that are not a dimension each
        return False
    inside = [statement.iter_vars[index].var for index in loops]
    variables = [each.var for each in statement.iter_vars if int(each.dom.extent) > 1]
    for condition in (each for each in _expressions(statement.body) if isinstance(each, LT | LE | GT | GE | EQ | NE)):
        used = [each for each in variables if _uses(condition, each)]
        own = [each for each in used if any(each.same_as(one) for one in inside)]
        if own and len(own) < len(used):
            return False
    return True


def computes_with_conditions(kernel: Kernel, block: Any) -> bool:
    """Whether a block selects values by a condition, or turns conditions into numbers; branches do not count."""
    return any(
        isinstance(each, Select) or (isinstance(each, Cast) and str(each.value.ty.dtype).startswith("bool"))
        for each in _expressions(kernel.schedule.get(block).body)
    )


def combines_stored_conditions(kernel: Kernel, block: Any) -> bool:
    """Whether a block combines conditions that it reads from memory: LLVM has vectors of bytes of these, not bits."""
    return any(
        str(operand.ty.dtype).startswith("bool") and isinstance(operand, TensorLoad)
        for each in _expressions(kernel.schedule.get(block).body)
        for operand in _combined(each)
    )


def _combined(expression: Any) -> Sequence[Any]:
    if isinstance(expression, And | Or):
        return expression.a, expression.b
    if isinstance(expression, Not):
        return (expression.a,)
    is_bitwise = isinstance(expression, Call) and getattr(expression.op, "name", "").startswith("tirx.bitwise_")
    return expression.args if is_bitwise else ()


def calls(statement: Any, functions: Collection[str]) -> bool:
    """Whether a statement calls one of these functions of TIR, such as "exp"."""
    called = (getattr(each.op, "name", "") for each in _expressions(statement) if isinstance(each, Call))
    return any(name.removeprefix("tirx.") in functions for name in called)


def _expressions(whole: Any) -> list[Any]:
    """A statement's or an expression's parts, itself among them."""
    found: list[Any] = []
    structural_walk(whole, found.append, order="pre")
    return found
