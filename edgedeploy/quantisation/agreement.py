"""How far a quantised network does what the float network does, on the same inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from edgedeploy.onnxruntime_session import computing, cpu_session
from edgedeploy.progress import SILENT, Progress
from edgedeploy.quantisation.samples import Samples, no_numbers
from edgedeploy.quantisation.usage import Usage
from edgedeploy.quantised import Agreement
from edgedeploy.tensors import Tensors
from edgedeploy.vision.results import Box, Detection

# Boxes of which at least this part is common show the same thing, as in PASCAL VOC and COCO.
OVERLAP = 0.5

# What stands for no noise at all.
_MOST_DB = 200.0


class Runs:
    """Inferences of an ONNX model by onnxruntime: arrays by input name, to arrays by output name."""

    def __init__(self, model: onnx.ModelProto, *, optimised: bool = True) -> None:
        self._session = cpu_session(model.SerializeToString(), optimised=optimised)
        self._names = [output.name for output in self._session.get_outputs()]

    def __call__(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """One inference."""
        with computing():
            return dict(zip(self._names, self._session.run(self._names, dict(tensors)), strict=True))


@dataclass
class Noise:
    """Sums over tensors of the same meaning, from which follows how far they differ."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, expected: np.ndarray, found: np.ndarray) -> None:
        """Count a tensor; of two shapes, which sizes that depend on the data may have, and without numbers, all is
        noise."""
        wide = expected.astype(np.float64)
        self.signal += float(np.square(wide).sum())
        self.noise += float(np.square(wide - found if _comparable(wide, found) else wide).sum())

    @property
    def ratio_db(self) -> float:
        """Signal to noise: ten times the logarithm of the quotient of their powers."""
        if not self.noise or not self.signal:
            return _MOST_DB if not self.noise else -_MOST_DB
        return min(10 * float(np.log10(self.signal / self.noise)), _MOST_DB)


@dataclass
class _Cosines:
    values: list[float] = field(default_factory=list)

    def add(self, expected: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> None:
        for name, array in expected.items():
            a, b = (each.astype(np.float64).ravel() for each in (array, found[name]))
            lengths = np.linalg.norm(a) * np.linalg.norm(b) if _comparable(a, b) else 0.0
            self.values.append(float(np.clip(a @ b / lengths, 0, 1)) if lengths else float(np.array_equal(a, b)))


@dataclass(frozen=True)
class Comparison:
    """What comparing gave.

    Attributes:
        agreement: with the float network.
        noise: of each output, by name.
    """

    agreement: Agreement
    noise: dict[str, Noise]


def compare(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    samples: Samples,
    usage: Usage | None,
    progress: Progress = SILENT,
    title: str = "compare",
) -> Comparison:
    """Run both networks on samples.

    Args:
        before: the float network.
        after: the quantised one.
        samples: inputs.
        usage: what its outputs mean; None where that is not known, and for inputs that are no images.
        progress: is told of each inference.
        title: what it is told.
    """
    expected_of, found_of = Runs(before), Runs(after)
    noise: dict[str, Noise] = {}
    cosines, count, same, boxes, matched = _Cosines(), 0, 0, 0, 0
    with progress.steps(title, len(samples)) as advance:
        for sample in samples:
            expected, found = expected_of(sample.tensors), found_of(sample.tensors)
            for name, array in expected.items():
                if np.issubdtype(array.dtype, np.floating):
                    if not np.isfinite(array).all():
                        raise no_numbers(f"{sample.file}: output {name!r} of the float network")
                    noise.setdefault(name, Noise()).add(array, found[name])
            cosines.add(expected, found)
            count += 1
            if usage and sample.frame:
                one, other = (usage.results(each, sample.frame) for each in (expected, found))
                same += [each.class_id for each in one[:1]] == [each.class_id for each in other[:1]]
                boxes += sum(each.box is not None for each in (*one, *other))
                matched += matches(one, other)
            advance()
    if usage and usage.classifies:
        agreement = Agreement(of="top-1", value=same / count, samples=count)
    elif boxes:
        agreement = Agreement(of="boxes", value=2 * matched / boxes, samples=count)
    else:
        agreement = Agreement(of="outputs", value=float(np.mean(cosines.values)), samples=count)
    return Comparison(agreement, noise)


def matches(one: Sequence[Detection], other: Sequence[Detection]) -> int:
    """How many boxes of one list have a partner of the same class in the other, best scores first, each with the one
    that overlaps it the most, by `OVERLAP` or more."""
    free = [each for each in other if each.box]
    count = 0
    for found in sorted((each for each in one if each.box), key=lambda each: -(each.score or 0)):
        partners = [each for each in free if each.class_id == found.class_id]
        best = max(partners, key=lambda each: overlap(found.box, each.box), default=None)  # type: ignore[arg-type]
        if best is not None and overlap(found.box, best.box) >= OVERLAP:  # type: ignore[arg-type]
            free.remove(best)
            count += 1
    return count


def overlap(one: Box, other: Box) -> float:
    """Intersection over union of two boxes."""
    sides = [min(one[axis + 2], other[axis + 2]) - max(one[axis], other[axis]) for axis in (0, 1)]
    common = max(sides[0], 0.0) * max(sides[1], 0.0)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return common / (areas - common) if areas > common else 0.0


def _comparable(expected: np.ndarray, found: np.ndarray) -> bool:
    return expected.shape == found.shape and bool(np.isfinite(found).all())
