"""The samples that a network is calibrated and compared with: images below a folder, a video, or arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from edgedeploy.base.files import digest_of, is_file, is_folder
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import InputError
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.runtime.arrays import read_arrays
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.image import is_image, read_image
from edgedeploy.vision.source import open_source

Item = TypeVar("Item")

FEW = 10  # fewer than this determine the ranges of activations badly

_ARRAYS = (".npz", ".npy")

# How an image, uint8, height x width x 3, B G R, becomes a network's inputs.
Feed = Callable[[np.ndarray], tuple[Tensors, Frame]]


@dataclass(frozen=True)
class Sample:
    """The inputs of one inference by name; `frame` is the image's place in them, None for arrays."""

    file: Path
    tensors: Tensors
    frame: Frame | None = None


@dataclass(frozen=True)
class Samples:
    """Inputs of a network, read one after the other in each iteration.

    `folder`, which may be a file, is what the user named; `items` are chosen files, or ascending numbers of images.
    """

    folder: Path
    items: Sequence[Any]
    read: Callable[[Sequence[Any]], Iterator[Sample]]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Sample]:
        return self.read(self.items)

    def identity(self) -> str:
        """A hash of the files' names and contents."""
        return _digest(self.folder, self.items)

    def some(self, most: int) -> Samples:
        """At most `most` of them, evenly chosen."""
        return replace(self, items=evenly(self.items, most))


def _of_video(feed: Feed, path: Path, numbers: Sequence[int]) -> Iterator[Sample]:
    wanted = set(numbers)
    with open_source(path) as source:
        for shot in source.shots:
            if shot.index in wanted:
                yield Sample(shot.file, *feed(shot.image))
            if shot.index >= numbers[-1]:
                return


def array_samples(source: Path, files: Sequence[Path], inputs: Sequence[TensorSpec]) -> Samples:
    """Arrays of files: a `.npz` with one array for each input, by name; for networks with one input also a `.npy`."""

    def read(files: Sequence[Path]) -> Iterator[Sample]:
        for file in files:
            arrays = read_arrays(file) if file.suffix == ".npz" else {inputs[0].name: _array(file)}
            yield Sample(file, _fitting(file, arrays, inputs))

    return Samples(source, files, read)


def find_samples(
    path: Path,
    inputs: Sequence[TensorSpec],
    feed: Feed | None,
    most: int,
    progress: Progress = SILENT,
    *,
    network: Path | None = None,
) -> Samples:
    """At most `most` samples of a path: images below a folder, at any depth, a video, or `.npz` and `.npy` files.

    `feed` is None if the network takes no images, or this is unknown; `network` is for hints.
    """
    _require(path)
    files = _files_below(path) if is_folder(path) else [path]
    if arrays := [file for file in files if file.suffix in _ARRAYS]:
        return array_samples(path, evenly(arrays, most), inputs)
    images = [file for file in files if _begins_as_image(file)]
    if not is_folder(path) and not images:
        known = _known(feed, path, network)
        with open_source(path) as source:
            length = source.length or sum(1 for _ in source.shots)
        return Samples(path, evenly(range(length), most), partial(_of_video, known, path))
    if not images:
        names = ", ".join(sorted({file.suffix or file.name for file in files})[:5])
        raise InputError(
            f"there is no image and no .npz file below {path}",
            why=f"there are files of {names}" if files else "it is empty",
            hints=[
                "give a folder of images, in it or in folders below it",
                "for networks that take no images, such as sounds: write inputs with numpy.savez, one file for each "
                "inference",
            ],
        )
    known = _known(feed, path, network)
    sound = [file for file in evenly(images, most) if _is_sound(file, progress)]
    if not sound:
        raise InputError(f"no image below {path} can be read", hints=["look at the files: all of them are damaged"])
    if len(images) > most:
        progress.note(f"{most} of {len(images)} images are taken, evenly chosen; --images takes more")
    return Samples(path, sound, lambda files: (Sample(file, *known(read_image(file))) for file in files))


def identity_of(path: Path) -> str:
    """A hash of the names and contents of all files below a folder, or of a file, which must exist."""
    _require(path)
    return _digest(path, _files_below(path))


def _digest(path: Path, files: Sequence[Path]) -> str:
    return digest_of(files, path) if is_folder(path) else digest_of([path], path.parent)


def image_files(folder: Path) -> list[Path]:
    """The images below a folder, sorted by path."""
    return [file for file in _files_below(folder) if _begins_as_image(file)]


def evenly(items: Sequence[Item], most: int) -> list[Item]:
    """At most `most` of some items, evenly chosen."""
    count = min(most, len(items))
    return [items[index * len(items) // count] for index in range(count)]


def no_numbers(what: str) -> InputError:
    """The error for values that are infinite or NaN."""
    return InputError(
        f"{what} has values that are infinite or no numbers",
        hints=["look at the inputs: images that are damaged, or arrays with such values"],
    )


def _require(path: Path) -> None:
    if not is_folder(path) and not is_file(path):
        raise InputError(f"there is no folder {path}", hints=["name a folder with images, or with .npz files"])


def _known(feed: Feed | None, path: Path, network: Path | None) -> Feed:
    if feed is None:
        file = network or Path("FILE")
        raise InputError(
            f"it is unknown how images of {path} become inputs of this network",
            why="no demo uses it, which would define size, colours, mean and scale",
            hints=[
                f"define it once: `edgedeploy models import {file} --name {file.stem}` writes a file; correct its "
                f"colour, mean, scale, task and labels, and quantise `{file.stem}`, by that name",
                "or name a demo that prepares images as yours are: --demo classification for 1000 classes of ImageNet, "
                "--demo yolo; `edgedeploy demo` lists them",
                "or give a folder of .npz files, each with one array for each input, by name",
            ],
        )
    return feed


def _files_below(folder: Path) -> list[Path]:
    try:
        return sorted(
            file
            for file in folder.rglob("*")
            if not any(part.startswith(".") for part in file.relative_to(folder).parts) and is_file(file)
        )
    except OSError as error:
        raise InputError(f"cannot read the folder {folder}", why=error.strerror or str(error)) from error


def _begins_as_image(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return is_image(stream)
    except OSError:
        return False


def _is_sound(file: Path, progress: Progress) -> bool:
    try:
        read_image(file)
    except InputError as error:
        progress.note(f"passed over: {error.cause}")
        return False
    return True


def _array(file: Path) -> np.ndarray:
    try:
        with file.open("rb") as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{file} is not a .npy file of a plain array", why=str(error)) from error


def _fitting(file: Path, arrays: Mapping[str, np.ndarray], inputs: Sequence[TensorSpec]) -> Tensors:
    for spec in inputs:
        if spec.name not in arrays:
            raise InputError(f"{file} has no array {spec.name!r}", why=f"there are {', '.join(arrays) or 'none'}")
        if misfit := spec.misfit(arrays[spec.name]):
            raise InputError(f"{file}: {spec.name!r} does not fit the network", why=misfit)
        if arrays[spec.name].dtype.kind == "f" and not np.isfinite(arrays[spec.name]).all():
            raise no_numbers(f"{file}: {spec.name!r}")
    if surplus := arrays.keys() - {spec.name for spec in inputs}:
        raise InputError(
            f"{file} has an array {min(surplus)!r} that is not an input",
            why=f"inputs are {', '.join(spec.name for spec in inputs)}",
        )
    return arrays
