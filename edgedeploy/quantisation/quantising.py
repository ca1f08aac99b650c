"""onnxruntime's quantiser: ranges of activations from samples, and a network of QuantizeLinear and DequantizeLinear.

Activations are uint8 with a zero point for each tensor, weights int8 without one and with a scale for each output
channel, biases int32: VNNI's and onnxruntime's own kernels take these; on Arm 128 is subtracted. Weights have all eight
bits: no step of the compiled code saturates.

onnxruntime's quantiser rounds the result of every operator to bytes, since its kernels compute one at a time. Compiled
code computes a layer, its activation, and a sum or a product in one loop, with the layer's sums in registers. Without
the roundings inside the loop it is quicker, and more accurate.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference

from edgedeploy.base.catalog import unknown_name
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import UnsupportedError
from edgedeploy.frontends.onnx.nodes import readers_of
from edgedeploy.model.onnxruntime_session import computing, cpu_session
from edgedeploy.model.quantised import Method
from edgedeploy.quantisation.samples import Samples, no_numbers

# Layers whose weights are quantised. Everything else is quantised for their sake.
WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})

# Activations that limit the range of the layer before them, and are removed with that.
_LIMITING = frozenset({"Relu", "Clip"})

# Operators that move or select values: the scale of their input stays, and they have no loss of their own.
_MOVING = frozenset({
    "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip

# Operators whose results onnxruntime's quantiser gives the scale of their input.
_KEEPING_SCALES = _MOVING | {"AveragePool", "Resize"}

# Elementwise functions of one tensor.
_ACTIVATIONS = frozenset({"Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Sigmoid", "Tanh"})

# Operators with a kernel for integers. Functions of one input become tables of 256 bytes.
OPERATORS = (
    WEIGHTED
    | _LIMITING
    | (_MOVING - {"Identity"})
    | _ACTIVATIONS
    | {"Add", "AveragePool", "Concat", "GlobalAveragePool", "Mul", "Resize", "Softmax"}
)

# Those that stay quantised after the last layer: the meaning of values stays the same.
_AT_THE_END = WEIGHTED | _LIMITING | _MOVING | {"AveragePool", "GlobalAveragePool", "Resize"}

_WIDEST = 4.0  # two of eight bits

_PERCENTILE = 99.999  # the percentage of values that `percentile` leaves inside the range; onnxruntime's default


@dataclass(frozen=True)
class Layer:
    """A unit that is quantised or stays in float: an operator with the ReLU or Clip that follows it.

    `name` is of the operator's node, `nodes` are the names of all its nodes.
    """

    name: str
    operator: str
    nodes: tuple[str, ...]
    output: str


def layers_of(model: onnx.ModelProto) -> list[Layer]:
    """The layers of a prepared network that can be quantised, in its order."""
    readers = readers_of(model)
    results = {value.name for value in model.graph.output}
    ends = _behind_the_last_layers(model)
    layers = []
    for node in model.graph.node:
        if node.op_type not in OPERATORS - _LIMITING - _MOVING or node.name in ends:
            continue
        nodes, output = [node.name], node.output[0]
        following = readers.get(output, [])
        if len(following) == 1 and following[0].op_type in _LIMITING and output not in results:
            nodes, output = [*nodes, following[0].name], following[0].output[0]
        layers.append(Layer(node.name, node.op_type, tuple(nodes), output))
    if not any(layer.operator in WEIGHTED for layer in layers):
        raise UnsupportedError(
            "there is nothing to quantise in the network", why=f"it has none of {', '.join(sorted(WEIGHTED))}"
        )
    return layers


def chosen(layers: Sequence[Layer], names: Sequence[str]) -> list[Layer]:
    """The layers that match names or patterns such as `/model.22/*`, in the network's order."""
    meant: set[str] = set()
    for name in names:
        found = {layer.name for layer in layers if name in (layer.name, layer.output) or fnmatchcase(layer.name, name)}
        if not found:
            raise unknown_name("layer", name, [layer.name for layer in layers])
        meant |= found
    return [layer for layer in layers if layer.name in meant]


def units_of(model: onnx.ModelProto, layers: Sequence[Layer]) -> list[list[Layer]]:
    """The layers in units, about the loops of compiled code: each with activations, sums and products that follow."""
    inputs = {node.name: node.input for node in model.graph.node}
    units: list[list[Layer]] = []
    makers: dict[str, int] = {}  # by tensor, the number of the unit that computes it
    for layer in layers:
        before = [makers[name] for name in inputs[layer.name] if name in makers]
        number = max(before) if before and layer.operator in _ACTIVATIONS | {"Add", "Mul"} else len(units)
        units += [[]] if number == len(units) else []
        units[number].append(layer)
        makers[layer.output] = number
    return units


Ranges = Any  # onnxruntime's `TensorsData`: the smallest and the largest value of each activation


def calibrate(model: onnx.ModelProto, samples: Samples, method: Method, progress: Progress = SILENT) -> Ranges:
    """The ranges of all activations of a prepared network.

    `minmax` takes all values; `entropy` the range that loses the least information of their distribution (Migacz, 8-bit
    Inference with TensorRT, 2017), and `percentile` all but five of a million at each end.
    """
    from onnxruntime.quantization import calibrate as calibrators

    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
        path, augmented = Path(folder) / "model.onnx", Path(folder) / "augmented.onnx"
        onnx.save(model, path)
        kinds: dict[Method, Any] = {
            "minmax": calibrators.MinMaxCalibrater,
            "entropy": calibrators.EntropyCalibrater,
            "percentile": calibrators.PercentileCalibrater,
        }
        more = {"percentile": _PERCENTILE} if method == "percentile" else {}
        calibrator = kinds[method](path, sorted(OPERATORS), augmented.as_posix(), **more)
        with _quiet():
            calibrator.augment_graph()
        calibrator.infer_session = cpu_session(augmented, optimised=False)
        with progress.steps("calibrate", len(samples)) as advance:
            for sample in samples:
                # One at a time: it would keep the activations of all of them.
                with _quiet(), computing(f"the inputs of {sample.file}"), _in_range():
                    # As a CalibrationDataReader, which returns None after the last inputs.
                    inputs = iter([dict(sample.tensors), None])
                    calibrator.collect_data(SimpleNamespace(get_next=inputs.__next__))
                advance()
        with progress.stage("choose ranges"), _quiet(), _in_range():
            tensors = calibrator.compute_data()
    for name, data in tensors.items():
        if not all(np.isfinite(value).all() for value in data.range_value):
            raise no_numbers(f"tensor {name!r} of the network")
    return tensors


def sharing_ranges(model: onnx.ModelProto, ranges: Ranges) -> Ranges:
    """Give the inputs and the output of each concatenation one range, also through operators that move values.

    The concatenation then moves bytes without rounding them. Tensors keep their own ranges if one would become more
    than `_WIDEST` times as wide, or exceed the limits of a ReLU or Clip, which the quantiser replaces by the range.
    """
    from onnxruntime.quantization.calibrate import TensorData, TensorsData

    groups = {name: {name} for name, _ in ranges.items()}
    concatenated: set[str] = set()
    limits: dict[str, str] = {}
    for node in model.graph.node:
        if node.op_type == "Concat" or node.op_type in _KEEPING_SCALES:
            names = groups.keys() & {*node.input[: None if node.op_type == "Concat" else 1], *node.output}
            together = set().union(*(groups[name] for name in names))
            groups.update(dict.fromkeys(together, together))
            concatenated |= names if node.op_type == "Concat" else set()
        elif node.op_type in _LIMITING:
            limits[node.output[0]] = node.op_type
    data = dict(ranges.items())
    for group in {id(groups[name]): groups[name] for name in concatenated}.values():
        lows, highs = zip(*(ranges[name].range_value for name in group), strict=True)
        low, high = np.min(lows), np.max(highs)
        own = [(limits[name], *ranges[name].range_value) for name in group & limits.keys()]
        limited = all(low >= min(0, lowest) and (kind == "Relu" or high <= highest) for kind, lowest, highest in own)
        narrowest = min(max(0, highest) - min(0, lowest) for lowest, highest in zip(lows, highs, strict=True))
        if limited and max(0, high) - min(0, low) <= _WIDEST * narrowest:
            data |= dict.fromkeys(group, TensorData(lowest=low, highest=high))
    return TensorsData(ranges.calibration_method, data)


def quantise(
    model: onnx.ModelProto, ranges: Ranges, layers: Sequence[Layer], kept: Collection[Layer] = ()
) -> onnx.ModelProto:
    """A prepared network with some of `layers_of` quantised, except those in `kept`."""
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = {name for layer in layers if layer not in kept for name in layer.nodes}
    if not names:
        return copy
    # Operators that move values are quantised if their input is.
    names |= {node.name for node in model.graph.node if node.op_type in _MOVING | _LIMITING}
    names -= {name for layer in kept for name in layer.nodes}
    with _quiet():
        quantiser = QDQQuantizer(
            copy,
            True,  # weights have a scale for each channel
            False,  # of eight bits, not seven
            QuantType.QInt8,
            QuantType.QUInt8,
            ranges,
            sorted(names),
            [],
            sorted(OPERATORS),
            {},
        )
        quantiser.quantize_model()
        quantiser.model.topological_sort()
    quantised: onnx.ModelProto = quantiser.model.model
    return quantised


def _behind_the_last_layers(model: onnx.ModelProto) -> set[str]:
    """The nodes that no layer with weights follows, except those that only move values.

    They stay in float. They are little work, and their tensors have boxes and scores, or probabilities: one scale for
    both would lose one of them.
    """
    leading: set[str] = set()  # tensors that some layer reads, directly or not
    ends = set()
    for node in reversed(model.graph.node):
        if node.op_type in WEIGHTED or leading.intersection(node.output):
            leading.update(node.input)
        elif node.op_type not in _AT_THE_END:
            ends.add(node.name)
    return ends


@contextmanager
def _in_range() -> Iterator[None]:
    """The calibrator counts values in histograms: those that are not finite have no place there."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise no_numbers("a tensor of the network") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the quantiser's output and logs about its own functions."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def without_inner_pairs(model: onnx.ModelProto, plain: onnx.ModelProto) -> onnx.ModelProto:
    """A network without the pairs of QuantizeLinear and DequantizeLinear inside one loop of the compiled code.

    A pair is removed after a layer, or after an activation or a sum in its loop, if one elementwise operator reads it,
    or the two of a product with its own activation: `x * sigmoid(x)`. That operator's other inputs stay quantised: one
    loop has the sums of one layer. Pairs that limit values in the place of a ReLU or a clip stay.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    makers, operators = (
        {name: node.op_type for node in each.graph.node for name in node.output} for each in (result, plain)
    )
    readers = readers_of(result)
    outputs = {value.name for value in graph.output}
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    shapes = {value.name: [size.dim_value for size in value.type.tensor_type.shape.dim] for value in inferred}
    # By the name of its input, a QuantizeLinear, and the only operator that reads it, its DequantizeLinear.
    pairs: dict[str, tuple[onnx.NodeProto, onnx.NodeProto]] = {}
    for node in graph.node:
        made = node.output[0] if node.output else ""
        if node.op_type == "QuantizeLinear" and len(readers.get(made, [])) == 1 and readers[node.input[0]] == [node]:
            [other] = readers[made]
            if other.op_type == "DequantizeLinear" and not outputs & {made, node.input[0], other.output[0]}:
                pairs[node.input[0]] = node, other
    loops: dict[str, str] = {}  # the layer in whose loop an operator is computed, by the name of the operator's result
    gone: list[onnx.NodeProto] = []
    for node in graph.node:
        name = node.output[0] if node.output else ""
        if node.op_type in WEIGHTED and all(makers.get(read) == "DequantizeLinear" for read in node.input[:2]):
            loops[name] = name
        if name not in loops or name not in pairs or operators.get(name) != node.op_type:
            continue
        dequantised = pairs[name][1].output[0]
        following = readers.get(dequantised, [])
        if not _goes_on(following, dequantised, pairs, readers):
            continue
        results = [each.output[0] for each in following]
        if any(loops.get(each, loops[name]) != loops[name] or shapes.get(each) != shapes.get(name) for each in results):
            continue
        for each in following:
            loops[each.output[0]] = loops[name]
            for place, read in enumerate(each.input):
                if read == dequantised:
                    each.input[place] = name
        readers[name] = following
        gone += pairs[name]
    for node in gone:
        graph.node.remove(node)
    return result


def _goes_on(
    following: list[onnx.NodeProto],
    name: str,
    pairs: dict[str, tuple[onnx.NodeProto, onnx.NodeProto]],
    readers: dict[str, list[onnx.NodeProto]],
) -> bool:
    """Whether the readers of a tensor run in one loop with it: one operator, or a gate and the product with it."""
    if len(following) == 1:
        return following[0].op_type in _ACTIVATIONS | {"Add", "Mul"}
    if len(following) != 2:
        return False
    gate, product = sorted(following, key=lambda node: node.op_type == "Mul")
    gated = gate.output[0]
    if gate.op_type not in _ACTIVATIONS or product.op_type != "Mul":
        return False
    inside = pairs[gated][1].output[0] if gated in pairs else gated
    return set(product.input) == {name, inside} and readers[inside] == [product]
