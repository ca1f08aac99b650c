"""The form in which OpenCL devices compute layers."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Literal

from edgedeploy.board import Positive
from edgedeploy.compile.configuration import Tiled


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


class WorkItem(Tiled):
    """A layer on an OpenCL device.

    Attributes:
        tile: what a work-item computes, its sums being in registers at the same time; the rows of a dense layer's
            result are columns of the tile.
        vector: values that it reads, multiplies and adds at a time.
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
