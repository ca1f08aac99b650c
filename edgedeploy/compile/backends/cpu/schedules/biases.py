"""Sums of integers that begin with their biases: one instruction less for each vector of results.

Sums of pairs (`pairs`) do not: LLVM adds their few terms to each other first, which one more would hinder.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlockRealize, Schedule

from edgedeploy.compile.backends.cpu.statements import replaced, with_block
from edgedeploy.compile.operators.direct import CROP
from edgedeploy.compile.schedules.kernel import Kernel


@dataclass(frozen=True)
class _Addition:
    """A block that adds a bias to sums: its name, how it reads the sums, and the parameter that it adds."""

    block: str
    sums: Any
    bias: Any


def begin_with_bias(kernel: Kernel, anchor: str, channel: Callable[..., Any]) -> None:
    """Let sums begin with a parameter that has one value for each channel and is added to them later.

    int32 sums wrap, so that the order of their terms changes nothing.

    Args:
        kernel: the function, of which nothing was scheduled yet.
        anchor: the block that sums up; its dimensions from the fourth on are channels.
        channel: from the indices of a sum to its channel.
    """
    found = _addition(kernel, anchor)
    if found is None:
        return

    def changed(statement: Any) -> Any:
        if not isinstance(statement, SBlockRealize):
            return statement
        block, init = statement.block, statement.block.init
        if block.name_hint == anchor:
            place = [0] * (len(found.bias.ty.shape) - 1) + [channel(*init.indices)]
            begins = tirx.BufferStore(init.buffer, tirx.BufferLoad(found.bias, place), init.indices)
            return with_block(statement, block.body, begins)
        if block.name_hint == found.block:
            return with_block(statement, tirx.BufferStore(block.body.buffer, found.sums, block.body.indices), init)
        return statement

    function = kernel.schedule.mod["main"]
    kernel.schedule = Schedule(function.with_body(replaced(function.body, changed)))


def _addition(kernel: Kernel, anchor: str) -> _Addition | None:
    """What adds a bias to the sums, or to those that are not cropped; None if others read them too."""
    schedule, block = kernel.schedule, kernel.block(anchor)
    channels = math.prod(int(size) for size in schedule.get(block).writes[0].source.ty.shape[3:])
    readers = schedule.get_consumers(block)
    if len(readers) == 1 and schedule.get(readers[0]).name_hint == CROP:
        [block] = readers
        readers = schedule.get_consumers(block)
    if len(readers) != 1:
        return None
    [adding] = readers
    store, buffer = schedule.get(adding).body, schedule.get(block).writes[0].source
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
        return None
    sums, bias = store.value.a, store.value.b
    if not all(isinstance(each, TensorLoad) for each in (sums, bias)) or not sums.source.same_as(buffer):
        return None
    *others, last = (int(size) for size in bias.source.ty.shape)
    if last != channels or math.prod(others) != 1 or not bias.indices[-1].same_as(store.indices[-1]):
        return None
    is_parameter = any(bias.source.same_as(each) for each in kernel.function.params)
    return _Addition(str(schedule.get(adding).name_hint), sums, bias.source) if is_parameter else None
