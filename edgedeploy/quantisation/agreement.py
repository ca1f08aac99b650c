"""How far a quantised network does what the float network does, on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from edgedeploy.onnxruntime_session import computing, cpu_session
from edgedeploy.progress import SILENT, Progress
from edgedeploy.quantisation.preparing import Usage
from edgedeploy.quantisation.quantising import Layer, Ranges, quantise
from edgedeploy.quantisation.samples import Samples, no_numbers
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


# Noise is a sum over all values of a tensor: a few samples say which layers have more of it.
_SAMPLES = 8
_SAMPLES_ALONE = 4


@dataclass(frozen=True)
class LayerNoise:
    """A layer, and how far what it gives is from the float network's, in decibels of signal to noise."""

    layer: Layer
    ratio_db: float


def worst_layers(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    layers: Sequence[Layer],
    samples: Samples,
    progress: Progress = SILENT,
) -> list[LayerNoise]:
    """All layers, the one with the least signal to noise first; noise of the layers before is in it.

    Args:
        before: the prepared network.
        after: the same, quantised.
        layers: its layers.
        samples: inputs.
        progress: is told of each inference.
    """
    names = _dequantised(after, [layer.output for layer in layers])
    shown = {layer.name: (layer.output, names[layer.output]) for layer in layers}
    expected_of = Runs(_showing(before, [one for one, _ in shown.values()]), optimised=False)
    found_of = Runs(_showing(after, [other for _, other in shown.values()]), optimised=False)
    noise = {layer.name: Noise() for layer in layers}
    few = samples.some(_SAMPLES)
    with progress.steps("compare layers", len(few)) as advance:
        for sample in few:
            expected, found = expected_of(sample.tensors), found_of(sample.tensors)
            for name, (one, other) in shown.items():
                noise[name].add(expected[one], found[other])
            advance()
    ranked = [LayerNoise(layer, noise[layer.name].ratio_db) for layer in layers]
    return sorted(ranked, key=lambda each: each.ratio_db)


def by_harm(
    model: onnx.ModelProto, ranges: Ranges, layers: Sequence[Layer], samples: Samples, progress: Progress = SILENT
) -> list[Layer]:
    """The layers, first the one that alone, with all others in float, makes the most noise in the outputs.

    A tensor that has no good scale harms both the layer that gives it and those that read it: they come one after
    another, and it is float when all of them are.
    """
    few = samples.some(_SAMPLES_ALONE)
    expected_of = Runs(model)
    inputs = [sample.tensors for sample in few]
    expected = [expected_of(tensors) for tensors in inputs]
    harm: dict[str, float] = {}
    with progress.steps("quantise layers one by one", len(layers)) as advance:
        for layer in layers:
            found_of = Runs(quantise(model, ranges, [layer]))
            noises: dict[str, Noise] = {}
            for tensors, outputs in zip(inputs, expected, strict=True):
                found = found_of(tensors)
                for name, array in outputs.items():
                    if array.dtype.kind == "f":
                        noises.setdefault(name, Noise()).add(array, found[name])
            harm[layer.name] = min((each.ratio_db for each in noises.values()), default=0.0)
            advance()
    return sorted(layers, key=lambda layer: harm[layer.name])


def fewest_kept(loss_with: Callable[[int], float], layers: int, most: float) -> int | None:
    """How many of some layers must stay in float for the loss to be at most so much; None if no number does.

    Doubled until the loss is small enough, then halved: the loss is taken to fall with each further layer.

    Args:
        loss_with: the loss if so many of them do.
        layers: how many there are.
        most: the loss that is allowed.
    """
    too_few, enough = -1, 0
    while loss_with(enough) > most:
        if enough == layers:
            return None
        too_few, enough = enough, min(max(2 * enough, 1), layers)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if loss_with(middle) > most:
            too_few = middle
        else:
            enough = middle
    return enough


def _dequantised(model: onnx.ModelProto, names: Sequence[str]) -> dict[str, str]:
    """What a quantised network calls the tensors of the float one: what comes out of the pair behind them, if there
    is one."""
    quantising = {node.input[0]: node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    dequantising = {node.input[0]: node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    return {name: dequantising.get(quantising.get(name, ""), name) for name in names}


def _showing(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The model with tensors as its outputs."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names))
    return shown
