"""Configurations: forms of a layer that differ in speed only. Each is plain data, and can be recorded.

Each backend has forms of its own. A configuration is chosen by a backend's model, or by measuring candidates on the
board (`edgedeploy tune`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from operator import attrgetter

import tvm
from tvm_ffi import structural_hash
from typing_extensions import override

from edgedeploy.base.documents import Record
from edgedeploy.compile.tiles import Tile


class Configuration(Record, ABC):
    """The base of all configurations; `form` is how a layer is computed."""

    form: str

    @classmethod
    def gene_names(cls) -> list[str]:
        """The numbers that a search varies, by their fields, such as `tile.rows`."""
        names: list[str] = []
        for name, field in cls.model_fields.items():
            if isinstance(field.annotation, type) and is_dataclass(field.annotation):
                names += [f"{name}.{part.name}" for part in fields(field.annotation)]
            elif field.annotation in (int, bool):
                names.append(name)
            elif name != "form":  # no search would see it
                raise TypeError(f"{cls.__name__}.{name} is not a number")
        return names

    @property
    def genes(self) -> dict[str, int]:
        """The values of `gene_names`."""
        return {name: int(attrgetter(name)(self)) for name in self.gene_names()}

    @property
    @abstractmethod
    def register_tile(self) -> Tile:
        """The tile whose sums are in registers at the same time."""


class Tiled(Configuration):
    """A configuration that states its register tile."""

    tile: Tile

    @property
    @override
    def register_tile(self) -> Tile:
        return self.tile

    def __str__(self) -> str:
        return str(self.tile)


# From a function's workload to the best measured configuration of its layer; None if nothing is known.
Tuned = Callable[[tvm.IRModule], Configuration | None]


def untuned(workload: tvm.IRModule) -> None:
    """The `Tuned` that knows nothing."""


def workload_of(function: tvm.tirx.PrimFunc) -> tvm.IRModule:
    """A function as tuning records know it: alone, called `main`, without the attributes of passes."""
    for name in dict(function.attrs):
        function = function.without_attr(name)
    return tvm.IRModule({"main": function.with_attr({"global_symbol": "main", "tirx.noalias": True})})


def workload_hash(workload: tvm.IRModule) -> str:
    """The structural hash of a workload in tuning records: 16 hexadecimal digits, the same in every process."""
    return format(int(structural_hash(workload)) & (2**64 - 1), "016x")
