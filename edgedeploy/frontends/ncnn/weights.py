"""The weights of a `.bin` file: those of one layer after the other, without names and counts.

Weights of convolutions and the like begin with a tag, four bytes that say how they are stored; biases and everything
else are float32 without one. All of it is little-endian, and each part is filled up to a multiple of four bytes. The
tags are those of ncnn's `ModelBin` (src/modelbin.cpp).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.importing import Cursor

_FLOAT32 = (0, 0x0002C056)
_FLOAT16 = 0x01306B47
_BFLOAT16 = 0x01348B83
_INT8 = 0x000D4B38
_ALIGNMENT = 4

_MOST = 2**28  # of random weights; the largest networks that boards run have half of it


class StoredWeights:
    """Weights in the content of a file; `path` is for messages."""

    def __init__(self, path: Path, content: bytes) -> None:
        self._cursor = Cursor(path, content)
        self.layer_name = ""  # of the layer that reads, for messages

    def tagged(self, *shape: int, quantised: bool = False) -> np.ndarray:
        """The next weights that are stored with a tag, as float32; their first axis is that of outputs.

        With `quantised` they may be of 8 bits: then they are int8, and their scales come later.
        """
        part = f"layer {self.layer_name!r}"
        tag = self._cursor.integer("<u4", part)
        count = math.prod(shape)
        if tag in _FLOAT32:
            values = self._cursor.array("<f4", count, part)
        elif tag == _FLOAT16:
            values = self._cursor.array("<f2", count, part).astype("<f4")
        elif tag == _BFLOAT16:  # the upper half of a float32
            values = (self._cursor.array("<u2", count, part).astype("<u4") << 16).view("<f4")
        elif tag == _INT8 and quantised:
            values = self._cursor.array("<i1", count, part)
        elif tag == _INT8:
            raise ModelError(
                f"{self._cursor.path} has weights of 8 bits without a scale",
                why=f"those of {part}",
                hints=["check that it belongs to the .param file", "use the network in float, before ncnn2int8"],
            )
        else:  # any other tag: a table of 256 values, and for each weight its index there
            values = self._cursor.array("<f4", 256, part)[self._cursor.array("u1", count, part)]
        filling = -self._cursor.position % _ALIGNMENT
        self._cursor.array("u1", min(filling, self._cursor.left), part)
        if not np.isfinite(values).all():
            raise ModelError(
                f"{self._cursor.path} has weights that are not numbers",
                why=f"among those of {part}",
                hints=["check that it belongs to the .param file, and its checksum"],
            )
        return values.reshape(shape)

    def plain(self, *shape: int) -> np.ndarray:
        """The next weights that are stored as float32 without a tag."""
        return self._cursor.array("<f4", math.prod(shape), f"layer {self.layer_name!r}").reshape(shape)

    def scales(self, count: int) -> np.ndarray:
        """The next scales of quantised weights or blobs."""
        return self.plain(count)

    def check_end(self) -> None:
        """Check that nothing is left."""
        if self._cursor.left:
            raise ModelError(
                f"{self._cursor.path} does not fit the network",
                why=f"{self._cursor.left:,} bytes are left when all layers have their weights",
                hints=["check that it belongs to the .param file, and that both are of one version"],
            )


class RandomWeights:
    """Seeded weights, for which activations keep their size; `path` is for messages."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._random = np.random.default_rng(0)
        self._left = _MOST
        self.layer_name = ""  # of the layer that reads, for messages

    def tagged(self, *shape: int, quantised: bool = False) -> np.ndarray:
        """Normal, with the variance of He et al., "Delving Deep into Rectifiers" (2015)."""
        self._take(shape)
        return self._random.standard_normal(shape, np.float32) * np.float32(math.sqrt(2 / math.prod(shape[1:])))

    def plain(self, *shape: int) -> np.ndarray:
        """Uniform around one, as variances must be positive."""
        self._take(shape)
        return self._random.random(shape, np.float32) + np.float32(0.5)

    def scales(self, count: int) -> np.ndarray:
        """Scales by which four is nearly the largest number of 8 bits."""
        self._take([count])
        return np.full(count, 32, np.float32)

    def _take(self, shape: Sequence[int]) -> None:
        self._left -= math.prod(shape)
        if self._left < 0:
            raise ModelError(
                f"{self._path} has too many weights",
                why=f"more than {_MOST:,}, with those of layer {self.layer_name!r}",
            )


Weights = StoredWeights | RandomWeights
