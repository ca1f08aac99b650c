"""Arrays by name: generated, read from and written to `.npz` files."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from edgedeploy.base.files import replacing
from edgedeploy.errors import InputError
from edgedeploy.model.tensors import Tensors, TensorSpec


def fill(spec: TensorSpec, mode: str, seed: int = 0) -> np.ndarray:
    """An array for an input: zeros, ones, or random values, the same each time.

    Floats are uniform in [0, 1) for `random`, and standard normal for `normal`; integers are uniform in [0, 127)
    for both, those of quantised inputs in the whole range of their type. Indices stay below the size of their axis.
    """
    if mode == "zeros":
        return np.zeros(spec.shape, spec.dtype)
    if mode == "ones":
        return np.full(spec.shape, 0 if spec.below == 1 else 1, spec.dtype)
    generator = np.random.default_rng(seed)
    if np.dtype(spec.dtype).kind == "f" and spec.below is None:
        values = generator.standard_normal(spec.shape) if mode == "normal" else generator.random(spec.shape)
        return values.astype(spec.dtype)
    dtype = np.dtype(spec.dtype)
    most = np.iinfo(dtype).max if dtype.kind in "iu" else 1 << 24
    if spec.steps is not None:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, spec.shape, dtype, endpoint=True)
    below = 2 if dtype.kind == "b" else min(spec.below or 127, most)
    return np.asarray(generator.integers(0, below, spec.shape)).astype(dtype)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a `.npz` file."""
    try:
        with path.open("rb") as stream:
            if not stream.read(8).startswith((b"PK", np.lib.format.MAGIC_PREFIX)):
                raise ValueError("it has another format")  # numpy would advise to trust it
            stream.seek(0)
            archive = np.load(stream, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise InputError(
                    f"{path} holds one array without a name",
                    hints=["write it with numpy.savez(path, INPUT_NAME=array)"],
                )
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}") from error
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            f"{path} is not a .npz file of plain arrays",
            why=str(error),
            hints=["write it with numpy.savez(path, INPUT_NAME=array)"],
        ) from error


def write_arrays(path: Path, arrays: Tensors) -> None:
    """Write arrays to a `.npz` file, keys unchanged, with any suffix."""
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        # numpy.savez would take a name such as `file` for its own argument.
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def top_values(array: np.ndarray, count: int) -> list[dict[str, float | int]]:
    """The `count` largest values, largest first, each with its index in the flattened array."""
    flat = array.reshape(-1)
    order = np.argsort(-flat.astype(np.float64), kind="stable")[:count]
    return [{"value": float(flat[index]), "index": int(index)} for index in order]
