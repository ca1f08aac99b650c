"""The outputs of the network that finds the brightest pixel, as a result."""

from typing import Literal

import numpy as np

from edgedeploy.vision.decoder import Decoder, Fraction, Outputs, output
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection, label_of


class Brightest(Decoder):
    """A value, and the number of its pixel, row after row."""

    kind: Literal["brightest"]
    threshold: Fraction = 0.5

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """A box around the pixel, if it is bright enough."""
        score, number = float(output(outputs, "value").ravel()[0]), int(output(outputs, "number").ravel()[0])
        if not score >= self.threshold:  # NaN is not a score
            return []
        y, x = divmod(number, frame.network[1])
        (x1, y1), (x2, y2) = frame.to_image(np.array([[x, y], [x + 1, y + 1]], np.float32)).tolist()
        return [Detection(label=label_of(labels, 0), class_id=0, score=score, box=(x1, y1, x2, y2))]
