"""A user's own network as an entry of the zoo: its files beside the entry, what they do not say guessed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import yaml
from pydantic import ValidationError

from edgedeploy.errors import InputError, ModelError
from edgedeploy.files import cannot_write, is_file, replacing
from edgedeploy.frontends.foreign import foreign
from edgedeploy.frontends.format import Shapes
from edgedeploy.frontends.formats import describing
from edgedeploy.network import Network
from edgedeploy.progress import SILENT, Progress
from edgedeploy.settings import user_folder
from edgedeploy.zoo.entry import MODELS, ModelInput, ZooFile, ZooModel
from edgedeploy.zoo.source import Source

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

# Label sets that so many classes belong to, mostly.
_LABELS = {1000: "imagenet", 1001: "imagenet-1001", 80: "coco", 20: "voc"}

# Fields that a network's files do not hold.
_GUESSED = ("task", "colour", "mean", "scale", "labels")


def own_models() -> Path:
    """The folder of the user's entries, whether or not it exists."""
    return user_folder() / MODELS.folder


def import_network(
    name: str,
    files: Sequence[Path],
    shapes: Shapes | None = None,
    *,
    replace: bool = False,
    progress: Progress = SILENT,
) -> Path:
    """Copy a network into the user's zoo, and write an entry for it.

    Args:
        name: the entry's name.
        files: the network's files, in any order; those that lie beside one and belong to it may be left out.
        shapes: shapes of inputs that the network leaves open.
        replace: whether an entry of this name, and its files, may be replaced.
        progress: is told about each step.

    Returns:
        The entry's file.

    Raises:
        InputError: the name cannot be one, or is taken.
        ModelError: the files are no network that can be imported.
        OutputError: the user's folder cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} cannot be a model's name", hints=["take letters, digits, dots, dashes, underscores"]
        )
    path = own_models() / f"{name}.yaml"
    if is_file(path) and not replace:
        raise InputError(f"there is a model {name!r} already", why=str(path), hints=["replace it with --force"])
    source = _source(name, files, shapes or {})
    with progress.stage("import"):
        network = source.read()
    copies = _copies(name, source)
    try:
        stated = [
            ZooFile(name=copy.name, sha256=digest, size=file.stat().st_size, bundled=True)
            for copy, file, digest in zip(copies, source.files, source.sha256, strict=True)
        ]
    except ValidationError as error:
        raise ModelError(
            f"{source.file} keeps weights in a file that cannot lie beside an entry",
            why=error.errors()[0]["msg"],
            hints=["save the network again, with all weights in one file"],
        ) from error
    entry = ZooModel(
        task=_task(network),
        description=f"{source.format.name} network, imported from {source.file.name}",
        licence="none stated",
        files=stated,
        input=_input(network),
        outputs=[spec.name for spec in network.outputs],
        labels=_labels(network),
    )
    before = MODELS.load(name).files if is_file(path) else []
    for copy, file in zip(copies, source.files, strict=True):
        _copy(file, copy)
    with replacing(path) as temporary:
        temporary.write_text(_document(entry), encoding="utf-8")
    for old in {file.name for file in before if file.bundled} - {copy.name for copy in copies}:
        (path.parent / old).unlink(missing_ok=True)
    return path


def forget(name: str) -> list[Path]:
    """Remove an entry of the user's own, with the files that were copied for it; what was removed.

    Raises:
        OutputError: the user's folder cannot be written.
    """
    path = own_models() / f"{name}.yaml"
    removed = []
    try:
        for each in [path, *(path.parent / file.name for file in MODELS.load(str(path)).files if file.bundled)]:
            if is_file(each):
                each.unlink()
                removed.append(each)
    except OSError as error:
        raise cannot_write(path, error) from error
    return removed


def _source(name: str, files: Sequence[Path], shapes: Shapes) -> Source:
    files = list(dict.fromkeys(path.resolve() for path in files)) if len(files) > 1 else files
    if len(files) == 1:
        return Source.of(files[0], shapes, name=name)
    described = []
    for path in files:
        with suppress(ModelError):
            described.append(describing(path))
    descriptions = {path: found for found, path in described}
    if not descriptions and (error := next(filter(None, map(foreign, files)), None)):
        raise error
    if len(descriptions) != 1:
        raise ModelError(
            "the files are not those of one network",
            why=f"{len(descriptions)} of them describe one: {', '.join(map(str, descriptions))}"
            if descriptions
            else None,
            hints=["import each network by itself"],
        )
    [(path, found)] = descriptions.items()
    others = [each for each in files if each != path]
    # Weights in a file of their own may be named and lie as they like; all else is known by its name.
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
    """Where the files are to lie: under the entry's name, but for those that the network itself names."""
    copies = []
    for index, file in enumerate(source.files):
        named = index < len(source.format.suffixes)
        copies.append(own_models() / (name + source.format.suffixes[index] if named else file.name))
    return copies


def _copy(file: Path, copy: Path) -> None:
    if is_file(copy) and file.samefile(copy):
        return
    with replacing(copy) as temporary:
        shutil.copyfile(file, temporary)


def _task(network: Network) -> str:
    if network.heads:
        return "object detection"
    shapes = [[size for size in spec.shape if size > 1] for spec in network.outputs]
    return "classification" if len(shapes) == 1 and len(shapes[0]) == 1 else "unknown"


def _labels(network: Network) -> str | None:
    counts = [head.classes for head in network.heads] or [max(spec.shape, default=0) for spec in network.outputs]
    return _LABELS.get(counts[0] or 0) if _task(network) != "unknown" else None


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


def _document(entry: ZooModel) -> str:
    """The entry in YAML, with a comment where something is only a guess."""
    text = yaml.safe_dump(
        entry.model_dump(exclude_none=True), sort_keys=False, default_flow_style=None, width=1000, allow_unicode=True
    )
    lines = [
        "# Written by `edgedeploy models import`; what a network's files do not say is guessed: please correct it."
    ]
    for line in text.splitlines():
        guessed = line.strip().split(":")[0] in _GUESSED
        lines.append(f"{line}  # guessed" if guessed else line)
    return "\n".join(lines) + "\n"
