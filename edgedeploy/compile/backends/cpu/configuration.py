"""The forms in which CPUs compute layers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import override

from edgedeploy.compile.configuration import Configuration, Tiled
from edgedeploy.compile.tiles import Tile, WeightOrder, round_up
from edgedeploy.target.board import Positive


class Direct(Tiled):
    """A convolution as sums over its kernel elements; a thread takes `rows_per_task` rows of tiles at a time."""

    form: Literal["direct"] = "direct"
    order: WeightOrder = WeightOrder()
    rows_per_task: Positive


class Winograd(Configuration):
    """A convolution as products of transformed tiles of the feature map.

    Attributes:
        size: outputs of a tile, in rows and in columns (m).
        band: rows of tiles that are transformed, multiplied and transformed back together.
        product: the matrix products' register tile; its pixels are tiles of the feature map.
        shared: each thread multiplies all tiles by a part of the weights, and all tiles are one band: for weights
            that exceed the L2 cache. Otherwise each thread takes bands, and all of the weights.
        by_element: the outer loop runs over the elements of transformed tiles, each a matrix product with all of its
            weights. Otherwise it runs over tiles of channels, and all elements are read again for the next of these.
    """

    form: Literal["winograd"] = "winograd"
    size: Annotated[int, Field(ge=2, le=4, multiple_of=2)]
    band: Positive
    product: Tile
    shared: bool
    by_element: bool = False

    @property
    def values(self) -> int:
        """Inputs of a tile, in rows and in columns (m + 2)."""
        return self.size + 2

    def tiles(self, width: int) -> int:
        """Tiles of a band, in whole register tiles."""
        return round_up(self.band * -(-width // self.size), self.product.columns)

    @property
    @override
    def register_tile(self) -> Tile:
        return self.product

    def __str__(self) -> str:
        return f"F({self.size}x{self.size}), {self.product.columns} tiles x {self.product.channels} channels"


class Depthwise(Tiled):
    """A convolution that filters each channel by itself; its tile has one row.

    Attributes:
        rows_per_task: rows that a thread takes at a time.
        tasks_deep, tasks_across: the parts that channels and columns are divided into among threads.
        copied: a task first copies its input with the padding; otherwise every kernel element checks whether it is
            padding.
        vector: channels that are multiplied together; 1 for as many as sums fit a register.
        floats: whether products of integers are summed up in float32; copies are of floats then.
    """

    form: Literal["depthwise"] = "depthwise"
    rows_per_task: Positive
    tasks_deep: Positive
    tasks_across: Positive = 1
    copied: bool
    vector: Annotated[int, Field(ge=1)] = 1
    floats: bool = False


class Columns(Tiled):
    """As `Depthwise`, of integers, by words of the rows of a column; `vector` are the channels of a step."""

    form: Literal["columns"] = "columns"
    vector: Positive
    rows_per_task: Positive
    tasks_deep: Positive


class Steps(Tiled):
    """A convolution or product of integers as sums of steps.

    Attributes:
        depth, vector: input and output channels of a step.
        by_channels: whether all pixels use a tile's weights before the next tile's, as in `WeightOrder`.
        rows_per_task: rows of tiles that a thread takes at a time.
    """

    form: Literal["steps"] = "steps"
    depth: Positive
    vector: Positive
    by_channels: bool
    rows_per_task: Positive


class Product(Configuration):
    """A product of matrices.

    Attributes:
        whole: columns that are computed; those beyond the result's are cropped.
        rows, columns: of the register tile.
    """

    form: Literal["product"] = "product"
    whole: Positive
    rows: Positive
    columns: Positive

    @property
    @override
    def register_tile(self) -> Tile:
        """Whose sums are in registers at the same time."""
        return Tile(1, self.rows, self.columns)

    def __str__(self) -> str:
        return f"{self.rows} rows x {self.columns} columns"
