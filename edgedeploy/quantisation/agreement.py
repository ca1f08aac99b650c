"""How far a quantised network agrees with the float network, and which layers to leave in float."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.demo.usage import ImageUse
from edgedeploy.model.onnxruntime_session import computing, cpu_session
from edgedeploy.model.quantised import Agreement
from edgedeploy.model.tensors import Tensors
from edgedeploy.quantisation.quantising import WEIGHTED, Layer, Ranges, quantise, units_of, without_inner_pairs
from edgedeploy.quantisation.samples import Samples, no_numbers
from edgedeploy.vision.results import matches

_MOST_DB = 200.0  # the ratio without any noise

_PRODUCTS = 8  # the time of an elementwise result, in products of a convolution: about what was measured for AVX2

# Noise is a sum over all values of a tensor: a few samples suffice to rank layers.
_SAMPLES = 8
_SAMPLES_ALONE = 4


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
    """The powers of a signal and its noise, summed over tensors of the same meaning."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, expected: np.ndarray, found: np.ndarray) -> None:
        """Add a tensor; all of it is noise if shapes differ (they may depend on the data) or it is not finite."""
        wide = expected.astype(np.float64)
        self.signal += float(np.square(wide).sum())
        self.noise += float(np.square(wide - found if _comparable(wide, found) else wide).sum())

    @property
    def ratio_db(self) -> float:
        """Signal to noise: ten times the logarithm of the quotient of their powers."""
        if not self.noise or not self.signal:
            return _MOST_DB if not self.noise else -_MOST_DB
        return min(10 * float(np.log10(self.signal / self.noise)), _MOST_DB)


def _cosine(expected: np.ndarray, found: np.ndarray) -> float:
    a, b = (each.astype(np.float64).ravel() for each in (expected, found))
    lengths = np.linalg.norm(a) * np.linalg.norm(b) if _comparable(a, b) else 0.0
    return float(np.clip(a @ b / lengths, 0, 1)) if lengths else float(np.array_equal(a, b))


@dataclass(frozen=True)
class Comparison:
    """The agreement with the float network, and the noise of each output by name."""

    agreement: Agreement
    noise: dict[str, Noise]

    @property
    def ratio_db(self) -> float:
        """The mean of the outputs' signal-to-noise ratios; none without outputs in float."""
        return float(np.mean([each.ratio_db for each in self.noise.values()])) if self.noise else 0.0


def compare(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    samples: Samples,
    usage: ImageUse | None,
    progress: Progress = SILENT,
    title: str = "compare",
) -> Comparison:
    """Run the float network and the quantised one on samples.

    `usage` is None if the meaning of outputs is unknown, or inputs are not images.
    """
    expected_of, found_of = Runs(before), Runs(after)
    noise: dict[str, Noise] = {}
    cosines: list[float] = []
    count = same = boxes = matched = 0
    with progress.steps(title, len(samples)) as advance:
        for sample in samples:
            expected, found = expected_of(sample.tensors), found_of(sample.tensors)
            for name, array in expected.items():
                if np.issubdtype(array.dtype, np.floating):
                    if not np.isfinite(array).all():
                        raise no_numbers(f"{sample.file}: output {name!r} of the float network")
                    noise.setdefault(name, Noise()).add(array, found[name])
                cosines.append(_cosine(array, found[name]))
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
        agreement = Agreement(of="outputs", value=float(np.mean(cosines)), samples=count)
    return Comparison(agreement, noise)


def _comparable(expected: np.ndarray, found: np.ndarray) -> bool:
    return expected.shape == found.shape and bool(np.isfinite(found).all())


@dataclass(frozen=True)
class LayerNoise:
    """A layer, and the signal-to-noise ratio of its output against the float network's, in decibels."""

    layer: Layer
    ratio_db: float


def worst_layers(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    layers: Sequence[Layer],
    samples: Samples,
    progress: Progress = SILENT,
) -> list[LayerNoise]:
    """The layers of the prepared network and the quantised one, the lowest signal-to-noise ratio first.

    The noise includes that of the layers before.
    """
    quantised, dequantised = (
        {node.input[0]: node.output[0] for node in after.graph.node if node.op_type == kind}
        for kind in ("QuantizeLinear", "DequantizeLinear")
    )
    # The names of outputs in both networks; in the quantised one, after the pair that follows, if any.
    shown = {
        layer.name: (layer.output, dequantised.get(quantised.get(layer.output, ""), layer.output)) for layer in layers
    }
    expected_of = Runs(showing(before, [one for one, _ in shown.values()]), optimised=False)
    found_of = Runs(showing(after, [other for _, other in shown.values()]), optimised=False)
    noise = {layer.name: Noise() for layer in layers}
    few = samples.some(_SAMPLES)
    with progress.steps("compare layers", len(few)) as advance:
        for sample in few:
            expected, found = expected_of(sample.tensors), found_of(sample.tensors)
            for name, (one, other) in shown.items():
                noise[name].add(expected[one], found[other])
            advance()
    return sorted([LayerNoise(layer, noise[layer.name].ratio_db) for layer in layers], key=lambda each: each.ratio_db)


def by_harm(
    model: onnx.ModelProto,
    ranges: Ranges,
    layers: Sequence[Layer],
    samples: Samples,
    progress: Progress = SILENT,
    *,
    all_pairs: bool = False,
) -> list[list[Layer]]:
    """The units of layers, first the one whose noise is the largest for what it costs to leave the unit in float.

    The noise is that in the outputs if the unit alone is quantised. Noise of several units adds up, and so do costs.
    """
    units = units_of(model, layers)
    if not units:
        return []
    inputs = [sample.tensors for sample in samples.some(_SAMPLES_ALONE)]
    expected_of = Runs(model)
    expected = [expected_of(tensors) for tensors in inputs]
    costs = _costs(model, units, inputs[0])
    harm: list[float] = []
    with progress.steps("quantise layers one by one", len(units)) as advance:
        for unit, cost in zip(units, costs, strict=True):
            made = quantise(model, ranges, unit)
            found_of = Runs(made if all_pairs else without_inner_pairs(made, model))
            noises: dict[str, Noise] = {}
            for tensors, outputs in zip(inputs, expected, strict=True):
                found = found_of(tensors)
                for name, array in outputs.items():
                    if array.dtype.kind == "f":
                        noises.setdefault(name, Noise()).add(array, found[name])
            harm.append(sum(10 ** (-each.ratio_db / 10) for each in noises.values()) / cost)
            advance()
    return [units[place] for place in np.argsort(-np.asarray(harm), kind="stable")]


def _costs(model: onnx.ModelProto, units: Sequence[Sequence[Layer]], inputs: Tensors) -> np.ndarray:
    """What units cost in float, as a number of products: their work, and the mean of all units for the borders."""
    weights = {weight.name: weight.dims for weight in model.graph.initializer}
    nodes = {node.name: node for node in model.graph.node}
    results = Runs(showing(model, [layer.output for unit in units for layer in unit]), optimised=False)(inputs)

    def work(layer: Layer) -> float:
        result = results[layer.output]
        read = nodes[layer.name].input[1:2] if layer.operator in WEIGHTED else []
        kernels = [math.prod(weights[name]) for name in read if name in weights]
        channels = result.shape[1 if "Conv" in layer.operator else -1] if result.ndim > 1 else 1
        return result.size * (_PRODUCTS + sum(kernels) / max(channels, 1))

    works = np.array([sum(map(work, unit)) for unit in units])
    return works + works.mean()


def fewest_kept(loss_with: Callable[[int], float], units: int, most: float) -> int | None:
    """How many of some units must stay in float for a loss of at most `most`; None if no number suffices.

    A binary search, begun by doubling: the loss is assumed to fall with each further unit.
    """
    too_few, enough = -1, 0
    while loss_with(enough) > most:
        if enough == units:
            return None
        too_few, enough = enough, min(max(2 * enough, 1), units)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if loss_with(middle) > most:
            too_few = middle
        else:
            enough = middle
    return enough


def showing(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The model with some of its tensors as outputs."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names))
    return shown
