"""Which layers lose the most by being quantised, and which of them to leave in float."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx

from edgedeploy.progress import SILENT, Progress
from edgedeploy.quantisation.agreement import Noise, Runs
from edgedeploy.quantisation.quantising import Layer, Ranges, quantise
from edgedeploy.quantisation.samples import Samples

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
