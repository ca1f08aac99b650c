"""A demo as `demos/*.yaml` states it; `docs/data-files.md` describes the fields."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from edgedeploy.base.catalog import Catalog
from edgedeploy.base.documents import Record
from edgedeploy.base.plugins import Group
from edgedeploy.demo.tracking import Track
from edgedeploy.errors import EdgedeployError
from edgedeploy.package.usage import Fit
from edgedeploy.vision.crop import AnyCrop, Crop
from edgedeploy.vision.decoder import Decoder, kind_of
from edgedeploy.vision.decoders.classification import Classification
from edgedeploy.vision.decoders.faces import RetinaFace, YuNet
from edgedeploy.vision.decoders.keypoints import Blaze, Landmark, Landmarks
from edgedeploy.vision.decoders.maps import Depth, Segmentation
from edgedeploy.vision.decoders.nanodet import NanoDet
from edgedeploy.vision.decoders.ssd import EfficientDet, Ssd
from edgedeploy.vision.decoders.text import TextLine, TextRegions
from edgedeploy.vision.decoders.ultralytics import Ultralytics
from edgedeploy.vision.decoders.yolo import Yolo, Yolox
from edgedeploy.vision.preprocess import Page, SizedFit
from edgedeploy.zoo.entry import MODELS, ZooFile

# Decoders that always give boxes, and those that do not, or not for every network.
_OF_BOXES = Blaze | EfficientDet | NanoDet | RetinaFace | Ssd | TextRegions | Yolo | Yolox | YuNet
_OF_OTHERS = Classification | Depth | Landmark | Landmarks | Segmentation | TextLine | Ultralytics
_OWN = _OF_BOXES | _OF_OTHERS
# Decoders of plugins.
_OTHERS: Group[type[Decoder]] = Group("edgedeploy.decoders", "decoder", "a class of decoders with a kind", kind_of)

if TYPE_CHECKING:
    AnyDecoder = _OWN
else:
    _OTHER_KINDS = _OTHERS.sound([kind_of(each) for each in get_args(_OWN)])
    AnyDecoder = Annotated[reduce(or_, _OTHER_KINDS, _OWN), Field(discriminator="kind")]

LogFormat = Literal[
    "classification", "retinaface", "landmark", "yolo", "yolov3", "nanodet", "efficientdet", "objects", "points", "text"
]

# The logs that can print a decoder's results; all other decoders give boxes.
_LOGS: dict[str, set[LogFormat]] = {
    "classification": {"classification", "objects"},
    "depth": {"objects"},
    "landmark": {"landmark", "objects"},
    "landmarks": {"points"},
    "segmentation": {"objects"},
    "text-line": {"text"},
    "text-regions": {"objects", "text"},
    "ultralytics": {"objects"},
}
_LOGS_OF_BOXES: set[LogFormat] = {"retinaface", "yolo", "yolov3", "nanodet", "efficientdet", "objects"}
_WITHOUT_BOXES = {kind_of(each) for each in get_args(_OF_OTHERS)}
# Decoders whose results are, or may be, about the whole image.
_NOT_OF_CROPS = {"depth", "segmentation", "ultralytics"}


class Stage(Record):
    """One network of a demo."""

    model: str
    fit: Fit | SizedFit = "stretch"  # unless the network's metadata states it
    decoder: AnyDecoder
    log: LogFormat | None = None  # without it, results are only passed on, not printed or drawn
    then: NextStage | None = None

    @model_validator(mode="after")
    def _suits_decoder(self) -> Stage:
        logs = _LOGS.get(self.decoder.kind, _LOGS_OF_BOXES)
        wanted = " or ".join(sorted(logs))
        if self.log is None and self.then is None:
            raise ValueError(f"log is needed where no other network follows; use {wanted}")
        if self.log and self.log not in logs:
            raise ValueError(f"log {self.log!r} cannot print a {self.decoder.kind}; use {wanted}")
        if self.then and self.then.crop.kind != "turn" and self.decoder.kind in _WITHOUT_BOXES:
            raise ValueError(f"then needs boxes, which a {self.decoder.kind} does not give")
        return self

    def alone(self) -> Stage:
        """This network without those after it; it has a log even if the demo does not print its results."""
        log = self.log or min(_LOGS.get(self.decoder.kind, _LOGS_OF_BOXES))
        return Stage(model=self.model, fit=self.fit, decoder=self.decoder, log=log)

    @property
    def stages(self) -> list[Stage]:
        """This network and those after it, in the order in which they run."""
        return [self, *(self.then.stages if self.then else [])]


class NextStage(Stage):
    """A network that takes a crop around each result of the one before it."""

    crop: AnyCrop = Crop()
    track: Track | None = None

    @model_validator(mode="after")
    def _suits_crops_and_tracking(self) -> NextStage:
        if self.decoder.kind in _NOT_OF_CROPS:
            raise ValueError(f"a {self.decoder.kind} reads whole images, not what another network found in them")
        if self.track and self.decoder.kind != "landmarks":
            raise ValueError(f"track needs points and a score, which a {self.decoder.kind} does not give")
        turned = self.crop.kind == "rotated"
        if turned and (self.then or not isinstance(self.fit, str)):
            raise ValueError("a rotated crop is for the last network, and of the size that this takes")
        if self.track and not turned:
            raise ValueError("track needs a rotated crop")
        return self


class Demo(Stage):
    """One demo."""

    description: str
    default: bool = False
    image: ZooFile
    page: Page | None = None

    @model_validator(mode="after")
    def _page_for_what_can_be_moved(self) -> Demo:
        if self.page and self.decoder.kind in _NOT_OF_CROPS:
            raise ValueError(f"page does not go with a {self.decoder.kind}, whose results are not moved back")
        return self


DEMOS = Catalog("demo", "demos", Demo, listing="edgedeploy demo")


def all_demos(weights: Literal["file", "random"] = "file") -> list[str]:
    """The names of the demos that run without `--model`: those whose networks have weights, or for random weights, a
    known architecture. Broken demos are among them, so that running them reports the error."""
    return [name for name in DEMOS.names() if _can_be_shown(name, weights)]


def default_demos() -> list[str]:
    """The names of the demos whose networks `edgedeploy build` builds by default."""
    return [name for name in DEMOS.names() if (demo := loaded(DEMOS, name)) and demo.default]


def loaded(catalog: Catalog, name: str) -> Any | None:
    """An entry of a catalog, or None if it is missing or broken."""
    try:
        return catalog.load(name)
    except EdgedeployError:
        return None


def _can_be_shown(name: str, weights: Literal["file", "random"]) -> bool:
    try:
        models = [MODELS.load(stage.model) for stage in DEMOS.load(name).stages]
        return all(each.has_form if weights == "random" else each.has_weights for each in models)
    except EdgedeployError:
        return True
