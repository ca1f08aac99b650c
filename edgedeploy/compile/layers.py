"""Layers that have configurations to choose from: convolutions and products with constant weights."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, TypeAdapter
from tvm import te
from typing_extensions import override

from edgedeploy.base.documents import Record
from edgedeploy.compile.ir.types import LayerTypes
from edgedeploy.compile.operators import direct
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.operators.product import MATMUL, product, stacked_product
from edgedeploy.compile.tiles import ONE_BY_ONE, Tile

Form = Callable[[te.Tensor, te.Tensor], te.Tensor]  # from the layer's data and its weights to its result


class AnchorOp(Record, ABC):
    """A layer with weights: `name` is that of its function, alone or fused; `data` and `weights` are shapes.

    `constant` weights are known when the network is built, and may be packed.
    """

    name: ClassVar[str]
    data: tuple[int, ...]
    weights: tuple[int, ...]
    types: LayerTypes
    constant: bool

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Rows and columns of the result's pixels; a dense layer's is one row of them."""

    @property
    def batch(self) -> int:
        """The number of feature maps."""
        return self.data[0]

    @property
    def operations(self) -> int:
        """Arithmetic operations, a multiply-add being two, when it is computed directly."""
        return 2 * self.batch * math.prod(self.size) * self.terms * self.channels

    @property
    def channels(self) -> int:
        """Of the result; a dense layer's are its columns."""
        return self.weights[-1]

    @property
    def terms(self) -> int:
        """The number of products in each value of the result."""
        return math.prod(self.weights[:-1])

    @abstractmethod
    def in_tiles(self, tile: Tile, **others: Any) -> Form:
        """The layer as sums over the tiles of a template; `others` are further arguments of its operator."""

    def canonical(self) -> Form:
        """The layer as a textbook defines it: for other schedulers, and to recognise it in tuning records."""
        return self.in_tiles(ONE_BY_ONE)


class _Convolution(AnchorOp):
    """The base of convolutions, of data n x height x width x channels unless a subclass differs."""

    window: Window

    @property
    def _data(self) -> tuple[int, int, int]:
        """Rows, columns and channels of the data."""
        _, rows, columns, channels = self.data
        return rows, columns, channels

    @property
    @override
    def size(self) -> tuple[int, int]:
        return self.window.output_size(*self._data[:2])

    @property
    def groups(self) -> int:
        """Groups of channels, each with its own inputs."""
        return self._data[2] // self.inputs

    @property
    def inputs(self) -> int:
        """Input channels of one group."""
        return self.weights[2]

    @property
    def outputs(self) -> int:
        """Output channels of one group."""
        return self.weights[3] // self.groups

    @override
    def in_tiles(self, tile: Tile, **others: Any) -> Form:
        window, groups, types = self.window, self.groups, self.types
        return partial(direct.convolution, window=window, groups=groups, types=types, tile=tile, **others)


class Convolution(_Convolution):
    """A convolution in NHWC, HWIO."""

    name = direct.DENSE
    kind: Literal["convolution"] = "convolution"


class FirstConvolution(_Convolution):
    """A convolution from NCHW into NHWC: a network's first layer."""

    name = f"{direct.DENSE}_nchw"
    kind: Literal["first convolution"] = "first convolution"

    @property
    @override
    def _data(self) -> tuple[int, int, int]:
        _, channels, rows, columns = self.data
        return rows, columns, channels

    @override
    def in_tiles(self, tile: Tile, lanes: int = 1, **others: Any) -> Form:
        return super().in_tiles(tile, lanes=lanes, **others)


class DepthwiseConvolution(_Convolution):
    """A convolution in NHWC, HWIO, of as many groups as channels."""

    name = direct.DEPTHWISE
    kind: Literal["depthwise convolution"] = "depthwise convolution"


class Product(AnchorOp):
    """The base of products of matrices."""

    name = MATMUL


class Dense(Product):
    """Rows x terms times terms x columns; the rows may have several dimensions, the weights are constants.

    It is also a convolution of one group with a kernel of one pixel, on a feature map of one row.
    """

    window: ClassVar[Window] = Window((1, 1), (1, 1), (1, 1), (0, 0, 0, 0))
    groups: ClassVar[int] = 1
    batch: ClassVar[int] = 1
    kind: Literal["dense"] = "dense"

    @property
    @override
    def size(self) -> tuple[int, int]:
        return 1, math.prod(self.data[:-1])

    @override
    def in_tiles(self, tile: Tile, **others: Any) -> Form:
        return partial(product, columns=self.weights[1], types=self.types, tile_rows=tile.columns, **others)


class BatchMatmul(Product):
    """Products of two broadcast stacks of matrices, as in attention; transposed ones are columns x terms."""

    kind: Literal["batch matmul"] = "batch matmul"
    transposed: bool

    @property
    @override
    def batch(self) -> int:
        return math.prod(np.broadcast_shapes(self.data[:-2], self.weights[:-2]))

    @property
    @override
    def size(self) -> tuple[int, int]:
        return 1, self.data[-2]

    @property
    @override
    def channels(self) -> int:
        return self.weights[-2 if self.transposed else -1]

    @property
    @override
    def terms(self) -> int:
        return self.data[-1]

    @override
    def in_tiles(self, tile: Tile, **others: Any) -> Form:
        return partial(stacked_product, types=self.types, tile=tile, transposed=self.transposed, **others)


AnyAnchorOp = Convolution | FirstConvolution | DepthwiseConvolution | Dense | BatchMatmul

LAYER: TypeAdapter[AnyAnchorOp] = TypeAdapter(Annotated[AnyAnchorOp, Field(discriminator="kind")])
