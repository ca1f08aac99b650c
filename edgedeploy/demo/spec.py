"""A demo as `demos/*.yaml` states it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgedeploy.catalog import Catalog
from edgedeploy.documents import Record
from edgedeploy.errors import EdgedeployError
from edgedeploy.vision.classification import Classification
from edgedeploy.vision.crop import Crop
from edgedeploy.vision.depth import Depth
from edgedeploy.vision.efficientdet import EfficientDet
from edgedeploy.vision.landmark import Landmark
from edgedeploy.vision.nanodet import NanoDet
from edgedeploy.vision.preprocess import Fit
from edgedeploy.vision.retinaface import RetinaFace
from edgedeploy.vision.segmentation import Segmentation
from edgedeploy.vision.ssd import Ssd
from edgedeploy.vision.ultralytics import Ultralytics
from edgedeploy.vision.yolo import Yolo
from edgedeploy.vision.yolox import Yolox
from edgedeploy.vision.yunet import YuNet
from edgedeploy.zoo.entry import MODELS, ZooFile

AnyDecoder = Annotated[
    Classification
    | Depth
    | EfficientDet
    | Landmark
    | NanoDet
    | RetinaFace
    | Segmentation
    | Ssd
    | Ultralytics
    | Yolo
    | Yolox
    | YuNet,
    Field(discriminator="kind"),
]
LogFormat = Literal["classification", "retinaface", "landmark", "yolo", "yolov3", "nanodet", "efficientdet", "objects"]

# The logs that can print what a decoder gives: classes of the image, or points; boxes for all others.
_LOGS: dict[str, set[LogFormat]] = {
    "classification": {"classification", "objects"},
    "depth": {"objects"},
    "landmark": {"landmark", "objects"},
    "segmentation": {"objects"},
    "ultralytics": {"objects"},
}
_LOGS_OF_BOXES: set[LogFormat] = {"retinaface", "yolo", "yolov3", "nanodet", "efficientdet", "objects"}
# What these give speaks of all of an image, or may do so.
_NOT_OF_CROPS = {"depth", "segmentation", "ultralytics"}


class Stage(Record):
    """One network of a demo.

    Attributes:
        model: the network, a name of the zoo; how an image becomes its input is stated there.
        fit: how an image of another size is brought to the network's: `stretch` resizes both axes on
            their own, `pad` scales it down with its aspect ratio kept and fills up at the right and bottom; `fill`,
            `letterbox` and `cover` are described in `edgedeploy.vision.preprocess.place`. A network that says itself
            how its images are prepared goes before it.
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
        crop: what it is shown of the image.
    """

    crop: Crop = Crop()

    @model_validator(mode="after")
    def _gives_what_can_be_moved(self) -> NextStage:
        if self.decoder.kind in _NOT_OF_CROPS:
            raise ValueError(f"a {self.decoder.kind} reads whole images, not what another network found in them")
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
        if self.then and self.decoder.kind in _LOGS:
            raise ValueError(f"then needs boxes, which a {self.decoder.kind} does not give")
        return self


DEMOS = Catalog("demo", "demos", Demo, listing="edgedeploy demo")


def all_demos(weights: Literal["file", "random"] = "file") -> list[str]:
    """The names of the demos that can be shown without `--model`: those whose networks have weights, or with random
    ones those of a form that is known.

    What cannot be read is among them, so that whoever shows it is told why.
    """
    return [name for name in DEMOS.names() if _can_be_shown(name, weights)]


def _can_be_shown(name: str, weights: Literal["file", "random"]) -> bool:
    try:
        models = [MODELS.load(stage.model) for stage in DEMOS.load(name).stages]
        return all(each.has_form if weights == "random" else each.has_weights for each in models)
    except EdgedeployError:
        return True
