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
    """A convolution as products of transformed tiles of the feature map."""

    form: Literal["winograd"] = "winograd"
    size: Annotated[int, Field(ge=2, le=4, multiple_of=2)]  # outputs of a tile, in rows and in columns (m)
    band: Positive  # rows of tiles that are transformed, multiplied and transformed back together
    product: Tile  # the matrix products' register tile, whose pixels are tiles of the feature map
    # Each thread multiplies all tiles by a part of the weights, and all tiles are one band: for weights that exceed the
    # L2 cache. Otherwise each thread takes bands, and all of the weights.
    shared: bool
    # The outer loop runs over the elements of transformed tiles, each a matrix product with all of its weights.
    # Otherwise it runs over tiles of channels, and all elements are read again for the next of these.
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
    """A convolution that filters each channel by itself; its tile has one row."""

    form: Literal["depthwise"] = "depthwise"
    rows_per_task: Positive
    tasks_deep: Positive  # the parts that channels are divided into among threads
    tasks_across: Positive = 1  # and columns
    copied: bool  # a task first copies its input with the padding; otherwise kernel elements check if they are padding
    vector: Annotated[int, Field(ge=1)] = 1  # channels that are multiplied together; 1 for as many as fit a register
    floats: bool = False  # whether products of integers are summed up in float32; copies are of floats then


class Columns(Tiled):
    """As `Depthwise`, of integers, by words of the rows of a column; `vector` are the channels of a step."""

    form: Literal["columns"] = "columns"
    vector: Positive
    rows_per_task: Positive
    tasks_deep: Positive


class Steps(Tiled):
    """A convolution or product of integers as sums of steps of `depth` input and `vector` output channels.

    `by_channels` is as in `WeightOrder`, `rows_per_task` as in `Direct`.
    """

    form: Literal["steps"] = "steps"
    depth: Positive
    vector: Positive
    by_channels: bool
    rows_per_task: Positive


class Product(Configuration):
    """A product of matrices; columns beyond the result's are computed as a part of the `whole`, and cropped."""

    form: Literal["product"] = "product"
    whole: Positive
    rows: Positive
    columns: Positive

    @property
    @override
    def register_tile(self) -> Tile:
        return Tile(1, self.rows, self.columns)

    def __str__(self) -> str:
        return f"{self.rows} rows x {self.columns} columns"
