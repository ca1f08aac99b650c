"""A demo as `demos/*.yaml` states it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgedeploy.catalog import Catalog
from edgedeploy.documents import Record
from edgedeploy.vision.classification import Classification
from edgedeploy.vision.efficientdet import EfficientDet
from edgedeploy.vision.landmark import Landmark
from edgedeploy.vision.nanodet import NanoDet
from edgedeploy.vision.preprocess import Fit
from edgedeploy.vision.retinaface import RetinaFace
from edgedeploy.vision.ssd import Ssd
from edgedeploy.vision.yolo import Yolo
from edgedeploy.vision.yolox import Yolox
from edgedeploy.vision.yunet import YuNet
from edgedeploy.zoo.entry import ZooFile

AnyDecoder = Annotated[
    Classification | EfficientDet | Landmark | NanoDet | RetinaFace | Ssd | Yolo | Yolox | YuNet,
    Field(discriminator="kind"),
]
LogFormat = Literal["classification", "retinaface", "landmark", "yolo", "yolov3", "nanodet", "efficientdet"]

# The logs that can print what a decoder gives: classes of the picture, or points; boxes for all others.
_LOGS: dict[str, set[LogFormat]] = {"classification": {"classification"}, "landmark": {"landmark"}}
_LOGS_OF_BOXES: set[LogFormat] = {"retinaface", "yolo", "yolov3", "nanodet", "efficientdet"}


class Demo(Record):
    """One demo.

    Attributes:
        description: one line for people.
        model: the network, a name of the zoo; how a picture becomes its input is stated there.
        image: the picture that is shown unless another one is given; a bundled one lies beside the demo's
            own file or beside that of its network.
        fit: how a picture of another size is brought to the network's: `stretch` resizes both axes on
            their own, `pad` scales it down with its aspect ratio kept and fills up at the right and bottom.
        decoder: the postprocessing, chosen by its `kind`, with its parameters.
        log: whose lines are printed, by the name of Tengine's example: see `edgedeploy.demo.tengine_log`.
    """

    description: str
    model: str
    image: ZooFile
    fit: Fit = "stretch"
    decoder: AnyDecoder
    log: LogFormat

    @model_validator(mode="after")
    def _log_suits_decoder(self) -> Demo:
        logs = _LOGS.get(self.decoder.kind, _LOGS_OF_BOXES)
        if self.log not in logs:
            raise ValueError(f"log {self.log!r} cannot print a {self.decoder.kind}; use {' or '.join(sorted(logs))}")
        return self


DEMOS = Catalog("demo", "demos", Demo, listing="edgedeploy demo")
