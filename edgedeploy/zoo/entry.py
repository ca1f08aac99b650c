"""One entry of the zoo, as `models/*.yaml` states it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgedeploy.catalog import Catalog
from edgedeploy.documents import Record

# Networks whose form edgedeploy knows itself: see edgedeploy/frontends/architectures.
Architecture = Literal[
    "efficientdet-d0",
    "efficientdet-d1",
    "efficientdet-d2",
    "nanodet-m",
    "resnet18",
    "resnet50",
    "yolov3",
    "yolox-nano",
    "yolox-tiny",
]


class ZooFile(Record):
    """A file that is known by its content.

    Attributes:
        name: its name in the cache; a plain file name.
        sha256: SHA-256 of its content, lower-case hexadecimal.
        size: its size in bytes.
        url: where it is downloaded from, pinned to a commit; absent if it has no download of its own.
        bundled: whether it lies beside the entry: inside edgedeploy itself, or as a network of the user's own.
        note: where the file comes from, if it has no download.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size: Annotated[int, Field(gt=0)]
    url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    bundled: bool = False
    note: str | None = None


class ModelInput(Record):
    """A network's image input, and how an image becomes it: `(pixel - mean[c]) * scale[c]`.

    Attributes:
        name: the input's name in the network.
        shape: its default shape; networks with free dimensions are built for this shape.
        layout: NCHW or NHWC.
        colour: the order of the channels.
        mean: subtracted from each channel, in pixel units (0 to 255), in the order of `colour`.
        scale: multiplied with each channel after that, in the same order.
    """

    name: str
    shape: list[Annotated[int, Field(gt=0)]]
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    colour: Literal["RGB", "BGR", "GRAY"] = "RGB"
    mean: list[float] = [0.0, 0.0, 0.0]
    scale: list[float] = [1.0, 1.0, 1.0]

    @model_validator(mode="after")
    def _one_value_per_channel(self) -> ModelInput:
        channels = 1 if self.colour == "GRAY" else 3
        if len(self.mean) != channels or len(self.scale) != channels:
            raise ValueError(f"mean and scale need {channels} values each, one per channel of {self.colour}")
        return self

    def shape_of(self, size: tuple[int, int]) -> list[int]:
        """The shape for images of another height and width."""
        first, last = (self.shape[:2], []) if self.layout == "NCHW" else (self.shape[:1], self.shape[3:])
        return [*first, *size, *last]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        height, width = self.shape[2:4] if self.layout == "NCHW" else self.shape[1:3]
        return height, width


class ZooModel(Record):
    """One network of the zoo.

    Attributes:
        task: what it does, as `classification`, `face detection`.
        description: one line for people.
        licence: the licence of the weights, or "none stated".
        files: the network's files; the first one is the network itself.
        architecture: the name of an architecture that edgedeploy writes itself, with random weights: for networks
            whose weights have no public file that is known by its content, and for speed to be measured where the
            files are not in reach.
        weights: `none` if the files describe the network without its weights.
        yours: commands by which users come to such a network of their own, where the zoo has neither its files nor its
            form: what the entry says of the input is said of theirs.
        same_as: an entry of the same weights, whose files are taken where these are not on this machine and have no
            download.
        input: its image input.
        outputs: the names of its outputs, in the network's order.
        labels: the label set of its classes, a file of `models/labels`.
    """

    task: str
    description: str
    licence: str
    files: list[ZooFile] = []
    architecture: Architecture | None = None
    weights: Literal["file", "none"] = "file"
    yours: list[str] = []
    same_as: str | None = None
    input: ModelInput
    outputs: list[str] = []
    labels: str | None = None

    @model_validator(mode="after")
    def _files_or_architecture(self) -> ZooModel:
        if not self.files and not self.architecture and not self.yours:
            raise ValueError("state files, an architecture, or how users come to a network of their own")
        return self

    @property
    def has_weights(self) -> bool:
        """Whether its files hold weights; else it can be built with random ones only."""
        return bool(self.files) and self.weights == "file"

    @property
    def has_form(self) -> bool:
        """Whether it can be built at all, if with random weights only."""
        return bool(self.files or self.architecture)


MODELS = Catalog("model", "models", ZooModel, listing="edgedeploy models")
