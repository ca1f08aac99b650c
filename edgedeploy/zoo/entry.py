"""Entries of the zoo, as `models/*.yaml` states them, and label sets, one class a line in `models/labels/NAME.txt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgedeploy.base.catalog import Catalog, named_file, unknown_name
from edgedeploy.base.documents import Record
from edgedeploy.base.files import sha256_of
from edgedeploy.errors import ConfigurationError
from edgedeploy.package.usage import ModelInput

# Networks whose form edgedeploy knows itself: see edgedeploy/frontends/architectures.
Architecture = Literal[
    "convnext_tiny", "efficientdet-d0", "efficientdet-d1", "efficientdet-d2", "inception_v3", "mobilenet_v2",
    "mobilenet_v3_large", "mobilenet_v3_small", "nanodet-m", "resnet18", "resnet34", "resnet50", "resnet101",
    "vgg16", "yolov3", "yolox-nano", "yolox-tiny",
]  # fmt: skip


class WheelFile(Record):
    """A wheel of a package index."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$")]
    # The wheel's file name, which states its platform; without it, the wheel is for any. No member depends on the
    # machine that runs edgedeploy: the wheel of one platform is fetched everywhere.
    filename: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl$")] | None = None
    # SHA-256 of the wheel, lower-case hexadecimal, if it is checked
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None

    def __str__(self) -> str:
        return f"the wheel {self.name} {self.version}"

    @model_validator(mode="after")
    def _filename_is_of_the_version(self) -> WheelFile:
        from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
        from packaging.version import InvalidVersion, Version

        try:
            version = Version(self.version)
            if self.filename is None:
                return self
            found = parse_wheel_filename(self.filename)
        except (InvalidVersion, InvalidWheelFilename) as error:
            raise ValueError(str(error)) from error
        if found[:2] != (canonicalize_name(self.name), version):
            raise ValueError(f"{self.filename} is not a wheel of {self.name} {self.version}")
        return self

    def fits(self, filename: str) -> bool:
        """Whether the wheel of this version with that file name is the right one."""
        return filename == self.filename if self.filename else filename.endswith("-none-any.whl")

    @property
    def pip_options(self) -> list[str]:
        """Options that make pip choose this wheel on any machine; see PEP 425 about tags."""
        from packaging.utils import parse_wheel_filename

        # A file name may have several of each: `py2.py3`, or the old and the new name of a manylinux platform.
        tags = parse_wheel_filename(self.filename or "any-1-py3-none-any.whl")[3]
        interpreter = max(tag.interpreter for tag in tags)
        options = [f"--implementation={interpreter[:2]}", f"--python-version={interpreter[2:]}"]
        options += [f"--abi={abi}" for abi in sorted({tag.abi for tag in tags})]
        return options + [f"--platform={platform}" for platform in sorted({tag.platform for tag in tags})]


class Wheel(WheelFile):
    """A wheel, and the path of a file inside it."""

    member: Annotated[str, Field(min_length=1)]


class ZooFile(Record):
    """A file that is identified by its content."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # SHA-256 of its content, lower-case hexadecimal
    size: Annotated[int, Field(gt=0)]
    # Its download, pinned to a commit; absent if it has none of its own
    url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    wheel: Wheel | None = None
    # Whether it is next to the entry: inside edgedeploy itself, or as a network of the user's own
    bundled: bool = False
    note: str | None = None  # where the file comes from, if it has no download

    @model_validator(mode="after")
    def _one_download(self) -> ZooFile:
        if self.url and self.wheel:
            raise ValueError("state url or wheel, not both")
        return self

    @property
    def has_download(self) -> bool:
        """Whether it can be downloaded."""
        return bool(self.url or self.wheel)


class ZooModel(Record):
    """One network of the zoo."""

    task: str  # such as `classification`, `face detection`
    description: str
    licence: str
    files: list[ZooFile] = []  # the network's files; the first one is the network itself
    # An architecture that edgedeploy builds with random weights: for networks without a public file of weights, and for
    # measurements of speed without the files
    architecture: Architecture | None = None
    weights: Literal["file", "none"] = "file"  # `none` if the files describe the network without its weights
    # Commands that give users such a network of their own, if the zoo has neither its files nor its architecture: the
    # entry states how its input is prepared
    yours: list[str] = []
    # An entry with the same weights, whose files are used if these are neither on this machine nor have a download
    same_as: str | None = None
    input: ModelInput
    outputs: list[str] = []
    labels: str | None = None  # the label set of its classes, a file of `models/labels`

    @model_validator(mode="after")
    def _files_or_architecture(self) -> ZooModel:
        if not self.files and not self.architecture and not self.yours:
            raise ValueError("state files, an architecture, or how users come to a network of their own")
        return self

    @property
    def has_weights(self) -> bool:
        """Whether its files hold weights; otherwise it can only be built with random ones."""
        return bool(self.files) and self.weights == "file"

    @property
    def has_form(self) -> bool:
        """Whether it can be built, at least with random weights."""
        return bool(self.files or self.architecture)


MODELS = Catalog("model", "models", ZooModel, listing="edgedeploy models")


def known_file(path: Path, task: str) -> str | None:
    """The zoo's entry for a task whose network is this file, or None."""
    size, digest = path.stat().st_size, ""
    for name in MODELS.names():
        try:
            entry: ZooModel = MODELS.load(name)
        except ConfigurationError:
            continue
        if entry.task == task and entry.files and entry.files[0].size == size:
            digest = digest or sha256_of(path)
            if entry.files[0].sha256 == digest:
                return name
    return None


def label_sets() -> list[str]:
    """The names of all label sets, sorted."""
    return sorted({path.stem for folder in MODELS.folders() for path in (folder / "labels").glob("*.txt")})


def load_labels(name: str) -> list[str]:
    """The class names of a label set, in the network's order; `name` is its name, or a path that ends in .txt.

    Label sets are found like entries: by path, in `./models/labels`, the user's configuration folder, edgedeploy's own.
    """
    path = named_file("label", name, (folder / "labels" for folder in MODELS.folders()), ".txt")
    if path is None:
        hint = "give a path that ends in .txt, or put one class name per line into ./models/labels/NAME.txt"
        raise unknown_name("label set", name, label_sets(), hints=[hint])
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}", why=str(error)) from error
    labels = [line.strip() for line in lines]
    while labels and not labels[-1]:
        labels.pop()
    if not labels:
        raise ConfigurationError(f"{path} has no labels", hints=["write one class name per line"])
    if "" in labels:
        raise ConfigurationError(
            f"{path}:{labels.index('') + 1}: the line is empty",
            why="the line is the number of the class, so that an empty one would shift all after it",
        )
    return labels
