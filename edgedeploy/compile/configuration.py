"""Configurations: the ways to compute a layer that differ in speed only. Each is plain data, and can be recorded.

Each backend has forms of its own. A configuration is chosen by a backend's model, or by measuring candidates on the
board (`edgedeploy tune`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass
from operator import attrgetter

from typing_extensions import override

from edgedeploy.compile.tiles import Tile
from edgedeploy.documents import Record


class Configuration(Record, ABC):
    """What all configurations share: in which form a layer is computed."""

    form: str

    @classmethod
    def gene_names(cls) -> list[str]:
        """The numbers that a search varies, by their fields, such as `tile.rows`.

        Raises:
            TypeError: a field is no number: no search would see it.
        """
        names: list[str] = []
        for name, field in cls.model_fields.items():
            if isinstance(field.annotation, type) and is_dataclass(field.annotation):
                names += [f"{name}.{part.name}" for part in fields(field.annotation)]
            elif field.annotation in (int, bool):
                names.append(name)
            elif name != "form":
                raise TypeError(f"{cls.__name__}.{name} is no number")
        return names

    @property
    def genes(self) -> dict[str, int]:
        """The values of `gene_names`."""
        return {name: int(attrgetter(name)(self)) for name in self.gene_names()}

    @property
    @abstractmethod
    def register_tile(self) -> Tile:
        """Whose sums are in registers at the same time."""


class Tiled(Configuration):
    """What those share that state their register tile."""

    tile: Tile

    @property
    @override
    def register_tile(self) -> Tile:
        return self.tile

    def __str__(self) -> str:
        return str(self.tile)
