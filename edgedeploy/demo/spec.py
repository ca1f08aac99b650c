"""A demo as `demos/*.yaml` states it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgedeploy.catalog import Catalog
from edgedeploy.documents import Record
from edgedeploy.vision.classification import Classification
from edgedeploy.vision.landmark import Landmark
from edgedeploy.vision.preprocess import Fit
from edgedeploy.vision.retinaface import RetinaFace
from edgedeploy.vision.yolo import Yolo
from edgedeploy.zoo.entry import ZooFile

AnyDecoder = Annotated[Classification | RetinaFace | Landmark | Yolo, Field(discriminator="kind")]
LogFormat = Literal["classification", "retinaface", "landmark", "yolo"]

# The logs that can print what a decoder gives: classes of the picture, boxes, or points.
_LOGS: dict[str, set[LogFormat]] = {
    "classification": {"classification"},
    "retinaface": {"retinaface", "yolo"},
    "landmark": {"landmark"},
    "yolo": {"yolo", "retinaface"},
}


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
        log: whose lines are printed: those of Tengine's tm_classification, tm_retinaface, ...
    """

    description: str
    model: str
    image: ZooFile
    fit: Fit = "stretch"
    decoder: AnyDecoder
    log: LogFormat

    @model_validator(mode="after")
    def _log_suits_decoder(self) -> Demo:
        logs = _LOGS[self.decoder.kind]
        if self.log not in logs:
            raise ValueError(f"log {self.log!r} cannot print a {self.decoder.kind}; use {' or '.join(sorted(logs))}")
        return self


DEMOS = Catalog("demo", "demos", Demo, listing="edgedeploy demo")
