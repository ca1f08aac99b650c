"""How a network is used: how images become its input, and its outputs results, as a demo or the zoo says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from edgedeploy.demo.part import Part
from edgedeploy.demo.pipeline import called, placed
from edgedeploy.demo.spec import Stage
from edgedeploy.tensors import Tensors, TensorSpec
from edgedeploy.vision.classification import Classification
from edgedeploy.vision.preprocess import Frame
from edgedeploy.vision.results import Detection

if TYPE_CHECKING:
    from edgedeploy.quantisation.preparing import Prepared

# Below the threshold of a demo there are boxes that count where precision is averaged over all recalls.
_LOW_THRESHOLD = 0.01


@dataclass(frozen=True)
class Usage:
    """A network of a demo, fitted to what its files say.

    Attributes:
        part: what the demo and the zoo say of it.
        stage: the same with what the network says of itself.
        labels: the names of its classes.
        tensor: its input.
        names: what the demo calls its outputs, where that is not what it calls them itself.
    """

    part: Part
    stage: Stage
    labels: Sequence[str]
    tensor: TensorSpec
    names: Sequence[str]

    @staticmethod
    def of(part: Part, prepared: Prepared) -> Usage:
        """How a prepared network is used."""
        stage, labels = part.fitted(prepared)
        return Usage(part, stage, labels, prepared.inputs[0], part.output_names(stage.decoder))

    @property
    def classifies(self) -> bool:
        """Whether results are classes of the whole image."""
        return isinstance(self.stage.decoder, Classification)

    def feed(self, image: np.ndarray) -> tuple[Tensors, Frame]:
        """The network's input for an image, uint8, height x width x 3, B G R, and how the image lies in it."""
        return placed(image, self.stage, self.part.entry.input, self.tensor)

    def results(self, outputs: Mapping[str, np.ndarray], frame: Frame) -> list[Detection]:
        """What the network's outputs say, in pixels of the image."""
        names = called(list(outputs), self.names)
        return self.stage.decoder.decode(dict(zip(names, outputs.values(), strict=True)), frame, list(self.labels))

    def of_all_scores(self) -> Usage:
        """The same with boxes of low scores, as the mean average precision needs them."""
        decoder = self.stage.decoder
        if "threshold" not in type(decoder).model_fields:
            return self
        lowered = decoder.model_copy(update={"threshold": _LOW_THRESHOLD})
        return replace(self, stage=self.stage.model_copy(update={"decoder": lowered}))
