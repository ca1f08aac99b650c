"""Parts that importers of several formats share: untrusted files, TVM's frontends, and padding."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.base.extras import missing_package
from edgedeploy.errors import ModelError, last_line
from edgedeploy.model.tensors import TensorSpec


@contextlib.contextmanager
def importing(path: Path, hints: Sequence[str]) -> Iterator[None]:
    """Hide TVM's output and warnings, and turn its errors into ours, with hints unless they have some."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    except ModelError as error:
        raise ModelError(f"{path}: {error.what}", why=error.why, hints=error.hints or hints) from error
    except Exception as error:
        raise ModelError(f"{path} cannot be imported", why=last_line(error), hints=hints) from error


def failure(operator: str, node: str, error: Exception, hints: Sequence[str]) -> ModelError:
    """The error that a node cannot be imported, because of another error."""
    why = error.cause if isinstance(error, ModelError) else last_line(error)
    return ModelError(f"operator {operator} cannot be imported", why=f"node {node!r}: {why}", hints=hints)


def require_packages(path: Path, packages: Sequence[str], extra: str) -> None:
    """Refuse a network in `path` whose format needs packages of an extra of edgedeploy that are not installed."""
    for package in packages:
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError as error:
            raise missing_package(f"{path} cannot be imported", package, extra) from error


def specifications(
    path: Path, function: Any, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Inputs and outputs of a Relax function under the network's own names."""
    returned = function.ret_ty
    fields = list(returned.fields) if hasattr(returned, "fields") else [returned]
    try:
        given = [_specification(name, variable.ty) for name, variable in zip(inputs, function.params, strict=True)]
        made = [_specification(name, field) for name, field in zip(outputs, fields, strict=True)]
    except (AttributeError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path}: an output's shape depends on the input's values",
            why=last_line(error),
            hints=["export it with fixed shapes"],
        ) from error
    for spec in made:
        if 0 in spec.shape:
            sizes = ",".join(map(str, spec.shape))
            raise ModelError(f"{path}: output {spec.name!r} has no values", why=f"its shape is {sizes}")
    return given, made


def _specification(name: str, kind: Any) -> TensorSpec:
    return TensorSpec(name=name, shape=[int(size) for size in kind.shape], dtype=str(kind.dtype))


def read_bytes(path: Path, most: int = -1) -> bytes:
    """The content of an untrusted file, or its first `most` bytes."""
    try:
        with path.open("rb") as stream:
            return stream.read(most)
    except OSError as error:
        raise ModelError(f"cannot read {path}", why=error.strerror or str(error)) from error


class Cursor:
    """A position in an untrusted file's content, in bytes, which each read checks and moves on."""

    def __init__(self, path: Path, content: bytes, position: int = 0) -> None:
        self.path = path
        self.position = position
        self._content = content

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self._content) - self.position

    def array(self, dtype: str | np.dtype, count: int, what: str) -> np.ndarray:
        """The next `count` values, of a dtype with its byte order: a view of the content. Errors name `what`."""
        kind = np.dtype(dtype)
        if count < 0 or self.position < 0 or count * kind.itemsize > self.left:
            needed = f"{what} needs {count * kind.itemsize:,} bytes at {self.position:,}"
            raise ModelError(
                f"{self.path} is not complete",
                why=f"{needed}, and {max(self.left, 0):,} are left",
                hints=["check the file's size and checksum; it may be truncated, or belong to another network"],
            )
        values = np.frombuffer(self._content, kind, count, self.position)
        self.position += count * kind.itemsize
        return values

    def integer(self, dtype: str, what: str) -> int:
        """The next value, an integer; see `array`."""
        return int(self.array(dtype, 1, what)[0])


def same_padding(sizes: Sequence[int], extents: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Padding for ceil(size / stride) windows: TensorFlow's SAME; negative for gaps. All are lists over the axes.

    Extents of windows include gaps by dilation.
    """
    rows = zip(sizes, extents, strides, strict=True)
    return [(size - 1) // stride * stride + extent - size for size, extent, stride in rows]


def halves(totals: Sequence[int], *, lower: bool = False) -> tuple[list[int], list[int]]:
    """Padding before and after, the odd one after unless `lower`; none if it is negative."""
    small = [max(total, 0) // 2 for total in totals]
    large = [max(total, 0) - less for total, less in zip(totals, small, strict=True)]
    return (large, small) if lower else (small, large)
