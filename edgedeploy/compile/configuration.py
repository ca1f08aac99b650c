"""Configurations: the ways to compute a layer that differ in speed only. Each is plain data, and can be recorded.

A configuration is chosen by a model of the board (`layers/`), or by measuring candidates on it (`edgedeploy tune`).
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from edgedeploy.board import Positive
from edgedeploy.compile.tiles import Tile, WeightOrder, round_up
from edgedeploy.documents import Record


class _Form(Record):
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


class _Tiled(_Form):
    """What those share that state their register tile."""

    tile: Tile

    @property
    def register_tile(self) -> Tile:
        """Whose sums are in registers at the same time."""
        return self.tile


class Direct(_Tiled):
    """A convolution as sums over its taps.

    Attributes:
        tile: whose sums are in registers at the same time.
        order: in which the weights are used.
        rows_per_task: rows of tiles that a thread takes at a time.
    """

    form: Literal["direct"] = "direct"
    order: WeightOrder = WeightOrder()
    rows_per_task: Positive

    def __str__(self) -> str:
        return str(self.tile)


class Winograd(_Form):
    """A convolution as products of transformed tiles of the picture.

    Attributes:
        size: outputs of a tile, in rows and in columns (m).
        band: rows of tiles that are transformed, multiplied and transformed back together.
        product: pixels and channels of the matrix products' register tile; its pixels are tiles of the picture.
        shared: each thread multiplies all tiles by a part of the weights, and all tiles are one band: for weights
            that exceed the second cache. Otherwise each thread takes bands, and all of the weights.
    """

    form: Literal["winograd"] = "winograd"
    size: Annotated[int, Field(ge=2, le=4, multiple_of=2)]
    band: Positive
    product: Tile
    shared: bool

    @property
    def values(self) -> int:
        """Inputs of a tile, in rows and in columns (m + 2)."""
        return self.size + 2

    def tiles(self, width: int) -> int:
        """Tiles of a band, in whole register tiles."""
        return round_up(self.band * -(-width // self.size), self.product.columns)

    @property
    def register_tile(self) -> Tile:
        """Whose sums are in registers at the same time."""
        return self.product

    def __str__(self) -> str:
        return f"F({self.size}x{self.size}), {self.product.columns} tiles x {self.product.channels} channels"


class Depthwise(_Tiled):
    """A convolution that filters each channel by itself.

    Attributes:
        tile: one row of pixels, whose sums are in registers at the same time.
        rows_per_task: rows that a thread takes at a time.
        tasks_deep: in how many parts the channels are dealt out to threads.
        copied: a task first copies with its padding what it reads; otherwise every tap asks whether it is padding.
    """

    form: Literal["depthwise"] = "depthwise"
    rows_per_task: Positive
    tasks_deep: Positive
    copied: bool

    def __str__(self) -> str:
        return str(self.tile)


class Product(_Form):
    """A product of matrices.

    Attributes:
        whole: columns that are computed, those beyond the result's being cropped.
        rows, columns: of the tile whose sums are in registers at the same time.
    """

    form: Literal["product"] = "product"
    whole: Positive
    rows: Positive
    columns: Positive

    @property
    def register_tile(self) -> Tile:
        """Whose sums are in registers at the same time."""
        return Tile(1, self.rows, self.columns)

    def __str__(self) -> str:
        return f"{self.rows} rows x {self.columns} columns"


@dataclass(frozen=True)
class WorkGroup:
    """Work-items of an OpenCL device that run together, by the tiles of the result that they compute."""

    rows: Positive
    columns: Positive
    channels: Positive

    @property
    def items(self) -> int:
        """How many there are."""
        return math.prod(astuple(self))

    def __str__(self) -> str:
        return f"{self.rows} x {self.columns} x {self.channels}"


class WorkItem(_Tiled):
    """A layer on an OpenCL device.

    Attributes:
        tile: what a work-item computes, its sums being in registers at the same time; the rows of a dense layer's
            result are columns of the tile.
        vector: float32 values that it reads, multiplies and adds at a time.
        group: work-items of a work-group.
    """

    form: Literal["work-item"] = "work-item"
    vector: Positive
    group: WorkGroup

    @property
    def sums(self) -> int:
        """Vectors of sums of a tile."""
        return self.tile.rows * self.tile.columns * self.tile.channels // self.vector

    def __str__(self) -> str:
        return f"{self.tile} by {self.vector}, groups of {self.group}"


Configuration = Direct | Winograd | Depthwise | Product | WorkItem

CONFIGURATION: TypeAdapter[Configuration] = TypeAdapter(Annotated[Configuration, Field(discriminator="form")])


def known_configuration(recorded: object) -> Configuration | None:
    """The configuration that was recorded as plain data; None if this version knows no such form."""
    try:
        return CONFIGURATION.validate_python(recorded)
    except ValueError:
        return None
