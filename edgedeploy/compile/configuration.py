"""Configurations: the ways to compute a layer that differ in speed only. Each is plain data, and can be recorded.

Each backend has forms of its own. A configuration is chosen by a backend's model, or by measuring candidates on the
board (`edgedeploy tune`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import astuple, is_dataclass

from typing_extensions import override

from edgedeploy.compile.tiles import Tile
from edgedeploy.documents import Record


class Configuration(Record, ABC):
    """What all configurations share: in which form a layer is computed."""

    form: str

    @property
    def numbers(self) -> list[int]:
        """Every number in it, in the order of its fields: as many for all of one form."""
        found: list[int] = []
        for name in type(self).model_fields:
            value = getattr(self, name)
            if is_dataclass(value):
                found += [int(part) for part in astuple(value)]  # type: ignore[arg-type]
            elif not isinstance(value, str):
                found.append(int(value))
        return found

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
