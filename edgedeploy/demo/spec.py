"""A demo as `demos/*.yaml` states it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from edgedeploy.catalog import Catalog
from edgedeploy.demo.tracking import Track
from edgedeploy.documents import Record
from edgedeploy.errors import EdgedeployError
from edgedeploy.vision.blaze import Blaze
from edgedeploy.vision.classification import Classification
from edgedeploy.vision.crop import Crop
from edgedeploy.vision.efficientdet import EfficientDet
from edgedeploy.vision.landmark import Landmark
from edgedeploy.vision.landmarks import Landmarks
from edgedeploy.vision.nanodet import NanoDet
from edgedeploy.vision.preprocess import Fit
from edgedeploy.vision.rectangle import RotatedCrop
from edgedeploy.vision.retinaface import RetinaFace
from edgedeploy.vision.ssd import Ssd
from edgedeploy.vision.yolo import Yolo
from edgedeploy.vision.yolox import Yolox
from edgedeploy.vision.yunet import YuNet
from edgedeploy.zoo.entry import MODELS, ZooFile

AnyDecoder = Annotated[
    Blaze | Classification | EfficientDet | Landmark | Landmarks | NanoDet | RetinaFace | Ssd | Yolo | Yolox | YuNet,
    Field(discriminator="kind"),
]
LogFormat = Literal["classification", "retinaface", "landmark", "points", "yolo", "yolov3", "nanodet", "efficientdet"]

# The logs that can print what a decoder gives: classes of the image, or points; boxes for all others.
_LOGS: dict[str, set[LogFormat]] = {
    "classification": {"classification"},
    "landmark": {"landmark"},
    "landmarks": {"points"},
}
_LOGS_OF_BOXES: set[LogFormat] = {"retinaface", "yolo", "yolov3", "nanodet", "efficientdet"}


def _kind_of_crop(crop: Any) -> str:
    """An upright box unless it says otherwise."""
    return (crop.get("kind", "box") if isinstance(crop, dict) else getattr(crop, "kind", "box")) or ""


AnyCrop = Annotated[Annotated[Crop, Tag("box")] | Annotated[RotatedCrop, Tag("rotated")], Discriminator(_kind_of_crop)]


class Stage(Record):
    """One network of a demo.

    Attributes:
        model: the network, a name of the zoo; how an image becomes its input is stated there.
        fit: how an image of another size is brought to the network's: `stretch` resizes both axes on
            their own, `pad` scales it down with its aspect ratio kept and fills up at the right and bottom,
            `letterbox` scales it up too and fills up on both sides.
        decoder: the postprocessing, chosen by its `kind`, with its parameters.
        log: whose lines are printed, by the name of Tengine's example: see `edgedeploy.demo.tengine_log`.
    """

    model: str
    fit: Fit = "stretch"
    decoder: AnyDecoder
    log: LogFormat

    @model_validator(mode="after")
    def _log_suits_decoder(self) -> Stage:
        logs = _LOGS.get(self.decoder.kind, _LOGS_OF_BOXES)
        if self.log not in logs:
            raise ValueError(f"log {self.log!r} cannot print a {self.decoder.kind}; use {' or '.join(sorted(logs))}")
        return self


class NextStage(Stage):
    """A network that looks at each box that the one before it found.

    Attributes:
        crop: what it is shown of the image: an upright box, unless its `kind` is `rotated`.
        track: how it follows what it sees from image to image of a film; without it, it does not.
    """

    crop: AnyCrop = Crop()
    track: Track | None = None

    @model_validator(mode="after")
    def _points_to_follow(self) -> NextStage:
        if self.track and self.decoder.kind != "landmarks":
            raise ValueError(f"track needs points and a score, which a {self.decoder.kind} does not give")
        return self


class Demo(Stage):
    """One demo.

    Attributes:
        description: one line for people.
        image: the image that is shown unless another one is given; a bundled one lies beside the demo's
            own file or beside that of its network.
        then: a second network, for what the first one found.
    """

    description: str
    image: ZooFile
    then: NextStage | None = None

    @property
    def stages(self) -> list[Stage]:
        """Its networks, in the order in which they look."""
        return [self, self.then] if self.then else [self]

    @model_validator(mode="after")
    def _boxes_for_the_next(self) -> Demo:
        if self.then and self.log not in _LOGS_OF_BOXES:
            raise ValueError(f"then needs boxes, which a {self.decoder.kind} does not give")
        return self


DEMOS = Catalog("demo", "demos", Demo, listing="edgedeploy demo")


def all_demos(weights: Literal["file", "random"] = "file") -> list[str]:
    """The names of the demos that can be shown: without random weights, those whose networks have weights.

    What cannot be read is among them, so that whoever shows it is told why.
    """
    return [name for name in DEMOS.names() if weights == "random" or _has_weights(name)]


def _has_weights(name: str) -> bool:
    try:
        return all(MODELS.load(stage.model).has_weights for stage in DEMOS.load(name).stages)
    except EdgedeployError:
        return True
