"""Classes of a whole image."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgedeploy.model.tensors import shown
from edgedeploy.vision.decoder import Decoder, Outputs, not_of_this_kind
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection, label_of


class Classification(Decoder):
    """The `top` classes with the highest scores: those of the first output, to which no softmax is applied."""

    kind: Literal["classification"]
    top: Annotated[int, Field(gt=0)] = 5

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """The `top` classes, best first; among equal scores the lower class comes first."""
        name, output = next(iter(outputs.items()))
        scores = output.ravel()
        if scores.size != max(output.shape, default=1):
            raise not_of_this_kind(f"its output {name!r} is {shown(output.shape)}, not one score per class")
        best = np.argsort(-scores.astype(np.float64), kind="stable")[: self.top]
        return [
            Detection(label=label_of(labels, int(class_id)), class_id=int(class_id), score=float(scores[class_id]))
            for class_id in best
        ]
