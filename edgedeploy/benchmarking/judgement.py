"""How far an engine's outputs are from the reference's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edgedeploy.benchmarking.engines.engine import CannotRunError
from edgedeploy.selftest.comparison import where_finite


@dataclass(frozen=True)
class Difference:
    """How far the outputs of one inference are from the reference's.

    Attributes:
        relative: the largest |difference| divided by the largest |reference|, of the output where that is largest.
        absolute: the largest |difference| of that output.
    """

    relative: float
    absolute: float


class Verdict(NamedTuple):
    """How far an engine's outputs are from the reference's, and whether the top class is the same."""

    difference: Difference
    same_top1: bool | None


def judge(outputs: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> Verdict:
    """Compare the outputs of one inference."""
    return Verdict(compare(outputs, reference), same_top1(outputs, reference))


def compare(outputs: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> Difference:
    """The difference of the output that is relatively furthest from the reference's."""
    worst = Difference(0.0, 0.0)
    for name, wanted in reference.items():
        if name not in outputs:
            raise CannotRunError(f"it gives no output {name!r}")
        if outputs[name].size != wanted.size:
            raise CannotRunError(f"its output {name!r} has {outputs[name].size} values instead of {wanted.size}")
        pair = where_finite(outputs[name], wanted)
        if pair is None or not np.isfinite(pair[0]).all():
            raise CannotRunError(f"its output {name!r} holds other infinities or NaN")
        found, expected = pair
        difference = float(np.abs(found - expected).max(initial=0.0))
        largest = float(np.abs(expected).max(initial=0.0))
        if difference and not largest:
            raise CannotRunError(f"its output {name!r} is not zero, as it should be everywhere")
        if difference:
            worst = max(worst, Difference(difference / largest, difference), key=lambda each: each.relative)
    return worst


def same_top1(outputs: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> bool | None:
    """Whether the first output has its largest value where the reference has it, for every image.

    None unless that output is a row of scores for each image: of two dimensions beside those of size one.
    """
    name, wanted = next(iter(reference.items()))
    batch, scores = wanted.shape[:1], [size for size in wanted.shape[1:] if size > 1]
    if not batch or len(scores) != 1:
        return None
    found, top = (np.reshape(array, (*batch, -1)).argmax(axis=1) for array in (outputs[name], wanted))
    return bool(np.array_equal(found, top))
