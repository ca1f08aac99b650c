"""Where the weights of a Darknet network come from: its file, or a seeded generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.binary import Cursor, read_bytes
from edgedeploy.frontends.darknet.graph import Parameter

_HINTS = ("check the file's size and checksum", "check that the cfg file belongs to it: same filters, same classes")


class FileWeights:
    """Weights of a file.

    It begins with the version, major, minor and revision as int32, and with the number of images seen in training:
    int64 from version 0.2 on, int32 before, and if a part of the version exceeds 1000, which means that matrices
    are transposed. Then there are float32 values, layer by layer (`load_weights` in src/parser.c).
    """

    def __init__(self, path: Path, parameters: Sequence[Parameter], description: str) -> None:
        self._cursor = Cursor(path, read_bytes(path))
        major, minor, _ = self._cursor.array("<i4", 3, "the version").tolist()
        self._transposed = major > 1000 or minor > 1000
        early = major * 10 + minor < 2 or major >= 1000 or minor >= 1000
        self._cursor.integer("<i4" if early else "<i8", "the number of images seen")
        self._without_optional = self._check(parameters, description)

    def take(self, parameter: Parameter) -> np.ndarray:
        """The next parameter of the file, float32."""
        if parameter.optional and self._without_optional:
            return np.zeros(parameter.shape, np.float32)
        values = self._cursor.array("<f4", parameter.count, f"[{parameter.section.kind}]")
        if not np.isfinite(values).all() or (parameter.role == "variance" and values.min() < 0):
            raise parameter.section.error(
                f"its weights in {self._cursor.path.name} are no weights",
                why=f"there is a {parameter.role} that is not finite, or a variance below zero",
                hints=list(_HINTS),
            )
        if parameter.role == "matrix" and self._transposed:
            return values.reshape(parameter.shape[::-1]).T
        return values.reshape(parameter.shape)

    def _check(self, parameters: Sequence[Parameter], description: str) -> bool:
        """Whether the file leaves out optional parameters."""
        needed = 4 * sum(parameter.count for parameter in parameters)
        optional = 4 * sum(parameter.count for parameter in parameters if parameter.optional)
        left = self._cursor.left
        if left in (needed, needed - optional):
            return left < needed
        what = "is not complete" if left < needed else "has weights that no layer needs"
        raise ModelError(
            f"{self._cursor.path} {what}",
            why=f"the layers of {description} need {needed:,} bytes, and there are {left:,}",
            hints=_HINTS,
        )


class RandomWeights:
    """Seeded weights under which values neither vanish nor explode, however deep the network is.

    Kernels and matrices are normal, with the variance gain / inputs (He et al., 2015, arXiv:1502.01852). Batch
    normalisation is close to the identity.
    """

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)

    def take(self, parameter: Parameter) -> np.ndarray:
        """The next parameter, float32."""
        if parameter.role in ("scale", "variance"):
            return self._random.uniform(0.8, 1.2, parameter.shape).astype(np.float32)
        deviation = 0.1
        if parameter.role in ("kernel", "matrix"):
            deviation = math.sqrt(parameter.gain / math.prod(parameter.shape[1:]))
        return self._random.standard_normal(parameter.shape, np.float32) * np.float32(deviation)
