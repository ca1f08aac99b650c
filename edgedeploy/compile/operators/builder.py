"""Functions of TensorIR that are written loop by loop, with vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from edgedeploy.base.documents import Record

Vector = tuple[int, int]  # the begin and the length of a vector in a tile


class Parameter(NamedTuple):
    """A tensor that a function reads or writes."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def function(
    name: str,
    # An attribute of the function, which also names its block, and its value, stored as JSON.
    described: tuple[str, Record],
    read: Sequence[Parameter],
    written: Sequence[Parameter],
    tasks: int,
    # Writes the body of the loop, from the buffers by name and the loop's variable.
    write_task: Callable[[dict[str, Any], Any], None],
    *,
    parallel: bool,
) -> tirx.PrimFunc:
    """A function of one loop over tasks, which run on all threads if it is `parallel`."""
    attribute, record = described
    with IRBuilder() as builder, T.prim_func(private=True, s_tir=True):
        T.func_name(name)
        # Without `noalias` TVM assumes for all functions of the module that their tensors may overlap.
        T.func_attr({attribute: record.model_dump_json(), "tirx.noalias": True})
        parameters = (*read, *written)
        buffers = {each.name: T.arg(each.name, T.buffer(each.shape, each.dtype, layout=None)) for each in parameters}
        with T.sblock("root"), T.sblock(attribute.rpartition(".")[2]):
            T.reads(*(_whole(buffers, each) for each in read))
            T.writes(*(_whole(buffers, each) for each in written))
            with (T.parallel if parallel else T.serial)(tasks) as task:
                write_task(buffers, task)
    return builder.get()


def _whole(buffers: dict[str, Any], parameter: Parameter) -> Any:
    return buffers[parameter.name][tuple(slice(0, size) for size in parameter.shape)]


def vectors(width: int, lanes: int) -> list[Vector]:
    """A tile in whole vectors, and the rest in shorter ones of powers of two."""
    found, first = [], 0
    while first < width:
        length = min(lanes, 1 << (width - first).bit_length() - 1)
        found.append((first, length))
        first += length
    return found


def lanes_of(length: int) -> Any:
    """A loop over a vector's values."""
    return (T.vectorized if length > 1 else T.serial)(length)


def in_vectors(count: int, lanes: int) -> Iterator[Any]:
    """Indices of `count` values, by vectors; the body of the Python loop over them is written once for each length."""
    whole = count // lanes
    if whole:
        with T.serial(whole) as vector, lanes_of(lanes) as lane:
            yield vector * lanes + lane
    for first, length in vectors(count % lanes, lanes):
        with lanes_of(length) as lane:
            yield whole * lanes + first + lane
