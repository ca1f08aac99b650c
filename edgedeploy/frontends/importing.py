"""What importing through TVM's frontends has in common."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from edgedeploy.errors import InputError, ModelError, NotInstalledError, last_line
from edgedeploy.frontends.format import Shapes, check_given_shapes
from edgedeploy.tensors import TensorSpec


@contextlib.contextmanager
def importing(path: Path, hints: Sequence[str]) -> Iterator[None]:
    """Keep what TVM prints and warns of to itself, and turn its errors into ours.

    Args:
        path: the network's file, for messages.
        hints: what to try where the importer fails.
    """
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    except ModelError as error:
        raise ModelError(f"{path}: {error.what}", why=error.why, hints=error.hints or hints) from error
    except Exception as error:
        raise ModelError(f"{path} cannot be imported", why=last_line(error), hints=hints) from error


def require_packages(path: Path, packages: Sequence[str], extra: str) -> None:
    """Refuse a network whose format needs packages that are not installed.

    Args:
        path: the network's file, for messages.
        packages: names that packages are installed by.
        extra: of edgedeploy's, which brings them.
    """
    for package in packages:
        try:
            metadata.version(package)
        except metadata.PackageNotFoundError as error:
            raise NotInstalledError(
                f"{path} cannot be imported",
                why=f"the Python package {package} is needed for it, and not installed",
                hints=[f"pip install 'edgedeploy[{extra}]'"],
            ) from error


def specifications(
    path: Path, function: Any, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Inputs and outputs of a Relax function under the network's own names for them."""
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


def check_shapes(path: Path, inputs: Sequence[TensorSpec], wanted: Shapes) -> None:
    """Refuse other shapes than those that a file fixes."""
    stated = {spec.name: spec.shape for spec in inputs}
    check_given_shapes(path, wanted, list(stated))
    for name, shape in wanted.items():
        if list(shape) != stated[name]:
            raise InputError(
                f"{path}: the shape of input {name!r} cannot be changed",
                why=f"{','.join(map(str, shape))} was given, the file says {','.join(map(str, stated[name]))}",
                hints=["convert or export the network again for the shape that you need"],
            )


def _specification(name: str, kind: Any) -> TensorSpec:
    return TensorSpec(name=name, shape=[int(size) for size in kind.shape], dtype=str(kind.dtype))
