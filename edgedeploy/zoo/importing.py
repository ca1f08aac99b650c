"""A user's own network as an entry of the zoo, with copies of its files; missing information is guessed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError

from edgedeploy.base.catalog import unknown_name
from edgedeploy.base.documents import first_fault
from edgedeploy.base.files import is_file, replacing, write_text, writing
from edgedeploy.base.progress import Progress
from edgedeploy.base.settings import user_folder
from edgedeploy.errors import InputError, ModelError
from edgedeploy.frontends.format import Format, Shapes
from edgedeploy.frontends.formats import describing, foreign
from edgedeploy.model.network import Network
from edgedeploy.model.tensors import shown
from edgedeploy.package.usage import ModelInput
from edgedeploy.zoo.entry import MODELS, ZooFile, ZooModel, load_labels
from edgedeploy.zoo.source import Source

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

# The usual label sets by number of classes.
_LABELS = {1000: "imagenet", 1001: "imagenet-1001", 80: "coco", 20: "voc"}

# Fields that are not in a network's files.
_GUESSED = {"task", "colour", "mean", "scale", "labels"}

# Common means and standard deviations of pixels from 0 to 1.
PRESETS = {"imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))}


@dataclass(frozen=True)
class Stated:
    """The user's information about a network; the rest is guessed."""

    task: str | None = None  # one of the tasks in the zoo
    labels: str | None = None  # the label set of its classes, or a file with one class a line, which is copied
    # Mean and standard deviation of each channel, or one for all: of pixels from 0 to 1, or from 0 to 255 if any value
    # exceeds 1. The defaults are 0 and 1 if the other one is stated.
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None

    @property
    def fields(self) -> set[str]:
        """The fields of the entry that are not guessed."""
        of_pixels = {"mean", "scale"} if self.mean or self.std else set()
        return of_pixels | {name for name in ("task", "labels") if getattr(self, name)}

    def check(self) -> None:
        """Refuse impossible values before the network's files are read."""
        if self.task and self.task not in (tasks := sorted({MODELS.load(each).task for each in MODELS.names()})):
            raise unknown_name("task", self.task, tasks, "edgedeploy models")
        if self.labels:
            load_labels(self.labels)
        if self.std and min(self.std) <= 0:
            raise InputError("--std is not above 0", why="pixels are divided by it")

    def of(self, guessed: ModelInput) -> ModelInput:
        """The input with the stated mean and standard deviation."""
        if not self.mean and not self.std:
            return guessed
        if len(guessed.shape) != 4:
            raise InputError(
                "--mean, --std and --preset are for images",
                why=f"the shape of input {guessed.name!r} is {shown(guessed.shape)}",
            )
        values = {}
        for name, stated in (("mean", self.mean or [0.0]), ("std", self.std or [1.0])):
            if len(stated) not in (1, len(guessed.mean)):
                why = f"input {guessed.name!r} has {len(guessed.mean)}, and {len(stated)} values are given"
                raise InputError(f"--{name} needs a value for each channel, or one for all", why=why)
            values[name] = list(stated) * (len(guessed.mean) // len(stated))
        unit = 255 if max(map(abs, values["mean"] + values["std"])) <= 1 else 1
        pixels = {
            "mean": [unit * each for each in values["mean"]],
            "scale": [1 / (unit * each) for each in values["std"]],
        }
        return guessed.model_copy(update=pixels)


def own_models() -> Path:
    """The folder of the user's entries, which may not exist."""
    return user_folder() / MODELS.folder


def import_network(
    name: str, files: Sequence[Path], shapes: Shapes, stated: Stated, *, replace: bool, progress: Progress
) -> Path:
    """Copy a network into the user's zoo, and write an entry for it, whose file is returned.

    Args:
        files: the network's files in any order; those in the same folder that it names may be left out.
        replace: whether an entry of this name, and its files, may be replaced.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be a model's name", hints=["take letters, digits, dots, dashes, underscores"]
        )
    path = own_models() / f"{name}.yaml"
    if is_file(path) and not replace:
        raise InputError(f"there is a model {name!r} already", why=str(path), hints=["replace it with --force"])
    stated.check()
    source = _source(name, files, shapes)
    with progress.stage("import"):
        network = source.read()
    copies = _copies(name, source)
    try:
        stated_files = [
            ZooFile(name=copy.name, sha256=digest, size=file.stat().st_size, bundled=True)
            for copy, file, digest in zip(copies, source.files, source.sha256, strict=True)
        ]
    except ValidationError as error:
        raise ModelError(
            f"{source.file} has weights in a file whose name an entry cannot have",
            why=first_fault(error),
            hints=["save the network again, with all weights in one file"],
        ) from error
    entry = ZooModel(
        task=stated.task or _task(network),
        description=f"{source.format.name} network, imported from {source.file.name}",
        licence="none stated",
        files=stated_files,
        input=stated.of(_input(network)),
        outputs=[spec.name for spec in network.outputs],
        labels=_labels(network, name, stated.labels),
    )
    before = MODELS.load(name).files if is_file(path) else []
    for copy, file in zip(copies, source.files, strict=True):
        if not (is_file(copy) and file.samefile(copy)):
            with replacing(copy) as temporary:
                shutil.copyfile(file, temporary)
    write_text(path, _document(entry, _GUESSED - stated.fields))
    if stated.labels and entry.labels == name:
        write_text(path.parent / "labels" / f"{name}.txt", "\n".join([*load_labels(stated.labels), ""]))
    for old in {file.name for file in before if file.bundled} - {copy.name for copy in copies}:
        (path.parent / old).unlink(missing_ok=True)
    return path


def forget(name: str) -> list[Path]:
    """Remove an entry of the user's own with its copied files; returns the removed files."""
    path = own_models() / f"{name}.yaml"
    removed = []
    with writing(path):
        entry = MODELS.load(str(path))
        copies = [path.parent / file.name for file in entry.files if file.bundled]
        labels = [path.parent / "labels" / f"{name}.txt"] if entry.labels == name else []
        for each in [path, *copies, *labels]:
            if is_file(each):
                each.unlink()
                removed.append(each)
    return removed


def _source(name: str, files: Sequence[Path], shapes: Shapes) -> Source:
    files = list(dict.fromkeys(path.resolve() for path in files)) if len(files) > 1 else files
    if len(files) == 1:
        return Source.of(files[0], shapes, name=name)
    descriptions: dict[Path, Format] = {}
    for file in files:
        with suppress(ModelError):
            found, path = describing(file)
            descriptions[path] = found
    if not descriptions and (error := next(filter(None, map(foreign, files)), None)):
        raise error
    if len(descriptions) != 1:
        described = f"{len(descriptions)} of them describe one: {', '.join(map(str, descriptions))}"
        raise ModelError(
            "the files are not those of one network",
            why=described if descriptions else None,
            hints=["import each network by itself"],
        )
    [(path, found)] = descriptions.items()
    others = [each for each in files if each != path]
    # A separate file of weights may have any name and folder; other files are found by name.
    known = others[:1] if len(found.suffixes) > 1 else [file.resolve() for file in found.files(path)]
    strangers = [str(each) for each in others if each not in known]
    if strangers:
        raise ModelError(
            "the files are not those of one network",
            why=f"{path} is a {found.name} network without {', '.join(strangers)}",
            hints=["name its own files only"],
        )
    return Source(name, found, (path, *others), dict(shapes))


def _copies(name: str, source: Source) -> list[Path]:
    """The paths of the copies: with the entry's name, except for files that the network names."""
    suffixes = source.format.suffixes
    names = (name + suffixes[k] if k < len(suffixes) else file.name for k, file in enumerate(source.files))
    return [own_models() / each for each in names]


def _task(network: Network) -> str:
    if network.heads:
        return "object detection"
    shapes = [[size for size in spec.shape if size > 1] for spec in network.outputs]
    return "classification" if len(shapes) == 1 and len(shapes[0]) == 1 else "unknown"


def _labels(network: Network, name: str, stated: str | None) -> str | None:
    """The label set of an entry: the stated one, under the entry's name if it is a file, or a guess."""
    counts = [head.classes for head in network.heads] or [max(spec.shape, default=0) for spec in network.outputs]
    classes = counts[0] if _task(network) != "unknown" else None
    if not stated:
        return _LABELS.get(classes or 0)
    names = load_labels(stated)
    if classes and len(names) != classes:
        raise InputError(
            f"--labels {stated} does not fit", why=f"it names {len(names)} classes, the network has {classes}"
        )
    return name if stated.endswith(".txt") else stated


def _input(network: Network) -> ModelInput:
    """The first input; values from 0 to 255 become 0 to 1 if it is an image."""
    spec = network.inputs[0]
    images = len(spec.shape) == 4
    nhwc = images and spec.shape[1] not in (1, 3) and spec.shape[3] in (1, 3)
    channels = (spec.shape[3] if nhwc else spec.shape[1]) if images else 1
    count = 3 if channels == 3 else 1
    return ModelInput(
        name=spec.name,
        shape=spec.shape,
        layout="NHWC" if nhwc else "NCHW",
        colour="RGB" if count == 3 else "GRAY",
        mean=[0.0] * count,
        scale=[1 / 255] * count,
    )


def _document(entry: ZooModel, guessed: Container[str]) -> str:
    """The entry in YAML, with a comment where something is only a guess."""
    text = yaml.safe_dump(
        entry.model_dump(exclude_none=True), sort_keys=False, default_flow_style=None, width=1000, allow_unicode=True
    )
    about = "# Written by `edgedeploy models import`; what a network's files do not say is guessed: please correct it."
    lines = (f"{line}  # guessed" if line.strip().split(":")[0] in guessed else line for line in text.splitlines())
    return "\n".join([about, *lines, ""])
