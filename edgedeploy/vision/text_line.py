"""The text in an image of one line: connectionist temporal classification, read greedily (Graves et al., 2006)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from edgedeploy.vision.decoder import Decoder, Described, Fitted, Fraction, Outputs, table
from edgedeploy.vision.preprocess import Frame
from edgedeploy.vision.results import Detection, label_of


class TextLine(Decoder):
    """Text from the probability of each character at each step along a line.

    The best character of each step counts; of neighbours that are equal one is left, then blanks go. Class 0 is the
    blank, class n the n-th label, and the class after the last label a space, as PaddleOCR's networks have it.

    Attributes:
        threshold: the lowest mean probability of the characters that is reported.
    """

    kind: Literal["text-line"]
    threshold: Fraction = 0.5

    def fitted(self, network: Described) -> Fitted:
        """This decoder, with the characters that the network's file names, one on each line, as RapidOCR's do."""
        return Fitted(self, labels=network.metadata.get("character", "").splitlines())

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """The text, if there is any that reaches the threshold; it has no place of its own."""
        probabilities = table(outputs, next(iter(outputs)))
        best = probabilities.argmax(axis=1)
        kept = (best != 0) & np.append(True, best[1:] != best[:-1])
        if not kept.any():
            return []
        score = float(probabilities.max(axis=1)[kept].mean(dtype=np.float64))
        if not score >= self.threshold:
            return []
        characters = [*labels, " "]
        text = "".join(label_of(characters, int(number) - 1) for number in best[kept])
        return [Detection(label=text, class_id=0, score=score)]
