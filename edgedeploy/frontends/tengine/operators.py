"""Tengine's operators without windows: on single values, on channels, along axes, and moving values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice, pairwise

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.graph import PAD_MODES, UNARY, Graph, Value, operator, reciprocal_root, square
from edgedeploy.frontends.tengine.graph import Converter, TengineGraph

_AXES = ("n", "c", "h", "w")

# `type` of Tengine's reduction_kernel_ref.h.
_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceSumSquare", "ReduceMax", "ReduceMin", "ReduceProd")
_UNUSED = -2  # in the place of an axis


def _of_one(function: Callable[..., Value], *parameters: str) -> Converter:
    return lambda graph: function(graph, graph.value(), *(graph.parameters[name] for name in parameters))


def _many(operator: str) -> Converter:
    return lambda graph: graph.node(operator, *map(graph.value, range(max(1, graph.inputs))))


def _prelu(graph: TengineGraph) -> Value:
    """One slope for all, or one for each channel."""
    return graph.node("PRelu", graph.value(), _per_channel(graph, 1, 1 if math.prod(graph.stated(1)) == 1 else None))


def _batch_normalisation(graph: TengineGraph) -> Value:
    """Tengine's batchnorm_ref.c: mean and variance are divided by `rescale`; Caffe's has neither gamma nor beta."""
    p, channels = graph.parameters, graph.channels()
    statistics = [graph.weights(position, (channels,)) for position in (3, 4)]
    factor = 1 / p["rescale"] if p["rescale"] else 0
    statistics = [graph.scaled(value, factor) for value in statistics]
    if p["caffe"]:
        graph.reserve(8 * channels)
        affine = [graph.floats(np.full(channels, value)) for value in (1, 0)]
    else:
        affine = [graph.weights(position, (channels,)) for position in (1, 2)]
    return graph.node("BatchNormalization", graph.value(), *affine, *statistics, epsilon=p["epsilon"])


def _instance_normalisation(graph: TengineGraph) -> Value:
    affine = [graph.weights(position, (graph.channels(),)) for position in (1, 2)]
    return graph.node("InstanceNormalization", graph.value(), *affine, epsilon=graph.parameters["epsilon"])


def _scale(graph: TengineGraph) -> Value:
    """Tengine's scale_ref.c: a factor for each channel, and perhaps a bias; the stated axis does not count."""
    scaled = graph.node("Mul", graph.value(), _per_channel(graph, 1))
    return scaled if graph.inputs < 3 else graph.node("Add", scaled, _per_channel(graph, 2))


def _fully_connected(graph: TengineGraph) -> Value:
    """Tengine's fc.c: rows of weights, outputs x inputs; the output has as many dimensions as the input."""
    batch, *rest = graph.value().shape
    stated = graph.stated(1)
    inputs = math.prod(rest)
    if len(stated) != 2 or stated[1] != inputs or not 2 <= len(rest) + 1 <= 4:
        raise ModelError(f"its weights of shape {stated} do not suit its input of shape {(batch, *rest)}")
    operands = [graph.reshape(graph.value(), (batch, inputs)), graph.weights(1, stated)]
    if graph.inputs > 2:
        operands.append(graph.weights(2, stated[:1]))
    return graph.reshape(graph.node("Gemm", *operands, transB=1), (batch, stated[0], *(1 for _ in rest[1:])))


# ELT_* of Tengine's eltwise_param.h.
_OF_TWO = {0: "Mul", 1: "Mul", 2: "Add", 3: "Add", 4: "Sub", 5: "Sub", 6: "Max", 8: "Min", 10: "Div", 16: "Pow"}
_OF_ONE: dict[int, Converter] = {
    7: _of_one(reciprocal_root),
    **{kind: _of_one(operator(name)) for kind, name in ((11, "Log"), (12, "Exp"), (13, "Sqrt"), (14, "Floor"))},
    15: _of_one(square),
    17: _of_one(Graph.power, "power", "scale", "shift"),
}
_UNARY = UNARY[:17]


def _eltwise(graph: TengineGraph) -> Value | Sequence[Value]:
    """Tengine's eltwise_ref.c."""
    kind = graph.parameters["kind"]
    if kind in _OF_TWO and graph.inputs == 2:
        return graph.node(_OF_TWO[kind], *_broadcast(graph))
    if kind in _OF_ONE and graph.inputs == 1:
        return _OF_ONE[kind](graph)
    raise ModelError(f"its kind {kind} of {graph.inputs} inputs is not known")


def _broadcast(graph: TengineGraph) -> list[Value]:
    """Two operands, the smaller one in a shape that ONNX's rules bring to that of the larger one.

    Tengine compares numbers of values, in this order: one for all, as many on both sides, one for each channel.
    """
    values = [graph.value(0), graph.value(1)]
    counts = [math.prod(value.shape) for value in values]
    large = max((0, 1), key=lambda index: (counts[index], values[index].rank))
    small, shape = 1 - large, values[large].shape
    if counts[small] == 1:
        values[small] = graph.reshape(values[small], (1,) * len(shape))
    elif counts[small] == counts[large]:
        values[small] = graph.reshape(values[small], shape)
    elif len(shape) > 1 and counts[small] == shape[1]:
        values[small] = graph.reshape(values[small], (1, shape[1], *(1 for _ in shape[2:])))
    return values


def _per_channel(graph: TengineGraph, position: int, count: int | None = None) -> Value:
    """A constant with one value for each channel, or `count` values, that ONNX's rules bring to the input's shape."""
    channels = graph.channels() if count is None else count
    return graph.weights(position, (channels, *(1 for _ in graph.value().shape[2:])))


def _along_axis(operator: str) -> Converter:
    return lambda graph: graph.node(operator, graph.value(), axis=graph.axis(graph.parameters["axis"]))


def _concat(graph: TengineGraph) -> Value:
    values = [graph.value(position) for position in range(max(1, graph.inputs))]
    axis = graph.axis(graph.parameters["axis"])
    return graph.node("Concat", *values, axis=axis) if len(values) > 1 else values[0]


def _flatten(graph: TengineGraph) -> Value:
    """Tengine's flatten.c: the axes up to `end_axis` become one, behind the batch."""
    shape = graph.value().shape
    first, last = graph.parameters["axis"], graph.parameters["end_axis"]
    if first != 1 or last < len(shape) - 1:
        raise ModelError(f"it flattens axes {first} to {last} of {len(shape)}, not all but the batch")
    return graph.reshape(graph.value(), (shape[0], math.prod(shape[1:])))


def _reshape(graph: TengineGraph) -> Value:
    """Tengine's reshape.c, with MXNet's codes: 0 keeps a size, -1 is what remains, -2 keeps all further sizes,
    -3 joins two, -4 divides one by the two that follow."""
    p = graph.parameters
    shape, wanted = graph.value().shape, p["shape"].tolist()
    if p["reverse"]:
        raise ModelError("it counts sizes from the end")
    sizes: list[int] = []
    read = 0  # of the input's sizes
    codes = iter(wanted)
    for code in codes:
        taken = {-2: len(shape) - read, -3: 2}.get(code, 1)
        if code == 0 and not p["mxnet"] and read:
            raise ModelError(f"its shape {wanted} keeps a size that is not the batch")
        if code in (0, -2, -3) and not 0 <= taken <= len(shape) - read:
            raise ModelError(f"its shape {wanted} does not suit an input of shape {shape}")
        kept = shape[read : read + taken]
        if code == 0 or code == -2:
            sizes += kept
        elif code == -3:
            sizes.append(math.prod(kept))
        elif code == -4:
            sizes += islice(codes, 2)
        else:
            sizes.append(code)
        read += taken
    free = [index for index, size in enumerate(sizes) if size == -1]
    known = math.prod(size for size in sizes if size != -1)
    if len(free) == 1 and known > 0:
        sizes[free[0]] = math.prod(shape) // known
    if min(sizes, default=0) < 1 or math.prod(sizes) != math.prod(shape):
        raise ModelError(f"its shape {wanted} does not suit an input of shape {shape}")
    return graph.reshape(graph.value(), sizes)


def _numbered(graph: TengineGraph, parameter: str) -> list[int]:
    """Parameters `..._0` and so on."""
    return [value for name, value in graph.parameters.items() if name.startswith(f"{parameter}_")]


def _permuted(graph: TengineGraph, order: Sequence[int]) -> Value:
    if sorted(order) != list(range(graph.value().rank)):
        raise ModelError(f"its order {list(order)} does not suit an input of shape {graph.value().shape}")
    return graph.transpose(graph.value(), order)


def _swap_axes(graph: TengineGraph) -> Value:
    order = list(range(graph.value().rank))
    one, other = map(graph.axis, _numbered(graph, "axis"))
    order[one], order[other] = other, one
    return _permuted(graph, order)


def _shuffle_channels(graph: TengineGraph) -> Value:
    """Tengine's shuffle_channel_ref.c."""
    graph.feature_map()
    return graph.shuffle_channels(graph.value(), graph.parameters["groups"])


def _cut(graph: TengineGraph, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int] = ()) -> Value:
    """`sizes` values along the first axes, from `starts` on, at distances of `steps`, or 1."""
    steps = steps or [1] * len(starts)
    shape = graph.value().shape
    if not len(starts) == len(sizes) == len(steps) <= len(shape):
        raise ModelError(f"it cuts {len(starts)} axes of an input of shape {shape}")
    ends = [start + (size - 1) * step + 1 for start, size, step in zip(starts, sizes, steps, strict=True)]
    for start, end, size, step, there in zip(starts, ends, sizes, steps, shape, strict=False):
        if start < 0 or size < 1 or step < 1 or end > there:
            raise ModelError(f"it cuts out {size} of {there} values from {start} on, at steps of {step}")
    return graph.cut(graph.value(), starts, ends, steps)


def _divided(graph: TengineGraph, axis: int, sizes: Sequence[int]) -> list[Value]:
    """Parts of `sizes` along an axis, one for each output."""
    if len(sizes) != graph.outputs or min(sizes) < 1 or sum(sizes) != graph.value().shape[axis]:
        raise ModelError(
            f"{graph.value().shape[axis]} values do not divide into {list(sizes)} for {graph.outputs} outputs"
        )
    return graph.split(graph.value(), sizes, axis)


def _evenly(graph: TengineGraph, axis: int, parts: int) -> list[Value]:
    size = graph.value().shape[axis]
    if parts < 1 or size % parts:
        raise ModelError(f"{size} values do not divide into {parts}")
    return _divided(graph, axis, [size // parts] * parts)


def _split(graph: TengineGraph) -> list[Value]:
    """Tengine's tm2_split.c and split.c. Caffe's gives its input to all that read it."""
    p = graph.parameters
    if p["caffe"]:
        return [graph.value()] * graph.outputs
    axis = graph.axis(p["axis"] if p["onnx"] else 0)
    return _divided(graph, axis, p["sizes"].tolist()) if p["sizes"].size else _evenly(graph, axis, p["parts"])


def _slice(graph: TengineGraph) -> Value | list[Value]:
    """Tengine's slice.c: Caffe's divides an axis; MXNet's and ONNX's cut out of one; TensorFlow's out of all."""
    p, shape = graph.parameters, graph.value().shape
    if p["caffe"]:
        axis = graph.axis(p["axis"])
        if not p["points"].size:
            return _evenly(graph, axis, graph.outputs)
        points = [0, *p["points"].tolist(), shape[axis]]
        return _divided(graph, axis, [end - begin for begin, end in pairwise(points)])
    if p["mxnet"] or p["onnx"]:
        axis = graph.axis(p["axis"])
        begin, end, step = p["begin"], min(p["end"], shape[axis]), max(1, p["step"]) if p["onnx"] else 1
        end += shape[axis] if end <= 0 else 0  # Tengine adds the size to an end that is not positive
        starts, sizes, steps = [0] * len(shape), list(shape), [1] * len(shape)
        starts[axis], sizes[axis], steps[axis] = begin, -((begin - end) // step), step
        return _cut(graph, starts, sizes, steps)
    begins, sizes = p["begins"].tolist(), p["sizes"].tolist()
    sizes = [there - begin if size == -1 else size for begin, size, there in zip(begins, sizes, shape, strict=False)]
    return _cut(graph, begins, sizes)


def _strided_slice(graph: TengineGraph) -> Value:
    """Tengine's strided_slice.c: an end is how much is left out at the end, like 0 or a negative number in
    TensorFlow; sizes are rounded up, and are at least 1."""
    p, shape = graph.parameters, graph.feature_map()
    starts = [p[f"begin_{axis}"] for axis in _AXES]
    steps = [p[f"step_{axis}"] for axis in _AXES]
    if min(steps) < 1:
        raise ModelError(f"its steps are {steps}")
    left_out = [abs(p[f"end_{axis}"] - start) for axis, start in zip(_AXES, starts, strict=True)]
    sizes = [max(1, -((out - size) // step)) for size, out, step in zip(shape, left_out, steps, strict=True)]
    return _cut(graph, starts, sizes, steps)


def _crop(graph: TengineGraph) -> Value:
    """Tengine's crop_ref.c: to the height and width of the second input, or MXNet's to its own, from the middle."""
    p = graph.parameters
    batch, channels, height, width = graph.feature_map()
    if p["mxnet"] and p["inputs"] == 1:
        if not p["centred"]:
            raise ModelError("it crops to its own size, but not from the middle")
        size = (p["height"], p["width"])
        return _cut(graph, (0, 0, (height - size[0]) // 2, (width - size[1]) // 2), (batch, channels, *size))
    wanted = graph.value(1).shape
    if len(wanted) != 4 or (p["mxnet"] and p["centred"]) or (not p["mxnet"] and p["axis"] not in (1, 2)):
        raise ModelError(f"it crops in a way that is not known, to a shape of {wanted}")
    first = p["offset_c"] if not p["mxnet"] and p["axis"] == 1 else 0
    return _cut(graph, (0, first, p["offset_h"], p["offset_w"]), (batch, wanted[1], *wanted[2:]))


def _pad(graph: TengineGraph) -> Value:
    graph.feature_map()
    p = graph.parameters
    begins, ends = ([p[f"{side}_{axis}"] for axis in _AXES] for side in ("begin", "end"))
    if min(*begins, *ends) < 0 or not 0 <= p["mode"] < len(PAD_MODES):
        raise ModelError(f"its widths are {[*begins, *ends]}, its mode {p['mode']}")
    return graph.pad(graph.value(), begins, ends, PAD_MODES[p["mode"]], p["value"])


def _reduction(graph: TengineGraph) -> Value:
    operator, keep = graph.one_of("kind", _REDUCTIONS), int(graph.parameters["keep"] == 1)
    axes = {graph.axis(axis) for axis in _numbered(graph, "axis") if axis != _UNUSED} or range(graph.value().rank)
    reduced = graph.reduce(operator, graph.value(), sorted(axes), keep)
    return graph.reshape(reduced, reduced.shape or [1])  # Tengine has no tensors without dimensions


def _squeeze(graph: TengineGraph) -> Value:
    shape = graph.value().shape
    axes = {graph.axis(axis) for axis in _numbered(graph, "axis") if axis != _UNUSED}
    axes = axes or {axis for axis, size in enumerate(shape) if size == 1}
    if any(shape[axis] != 1 for axis in axes):
        raise ModelError(f"it removes axes {sorted(axes)} of an input of shape {shape}")
    return graph.reshape(graph.value(), [size for axis, size in enumerate(shape) if axis not in axes] or [1])


def _unsqueeze(graph: TengineGraph) -> Value:
    axes = graph.parameters["axes"].tolist()
    if not axes or len(set(axes)) != len(axes) or not 0 <= min(axes) <= max(axes) < graph.value().rank + len(axes):
        raise ModelError(f"it adds axes {axes} to an input of shape {graph.value().shape}")
    return graph.node("Unsqueeze", graph.value(), graph.integers(axes))


CONVERTERS: dict[str, Converter] = {
    **{name: _of_one(operator(name)) for name in ("Ceil", "HardSwish", "Reciprocal", "Sigmoid", "Softplus", "Tanh")},
    "Absval": _of_one(operator("Abs")),
    "Addn": _many("Sum"),
    "BatchNormalization": _batch_normalisation,
    "Bias": lambda graph: graph.node("Add", graph.value(), _per_channel(graph, 1)),
    "Clip": _of_one(Graph.clip, "low", "high"),
    "Dropout": TengineGraph.value,
    "Eltwise": _eltwise,
    "Elu": _of_one(operator("Elu", "alpha"), "alpha"),
    "FullyConnected": _fully_connected,
    "Hardsigmoid": _of_one(operator("HardSigmoid", "alpha", "beta"), "alpha", "beta"),
    "InstanceNorm": _instance_normalisation,
    "Logistic": _of_one(operator("Sigmoid")),
    "Maximum": _many("Max"),
    "Mean": _many("Mean"),
    "Minimum": _many("Min"),
    "Mish": _of_one(Graph.mish),
    "Noop": TengineGraph.value,
    "PReLU": _prelu,
    "ReLU1": lambda graph: graph.clip(graph.value(), -1, 1),
    "ReLu": _of_one(Graph.leaky_relu, "slope"),
    "ReLu6": lambda graph: graph.clip(graph.value(), 0, 6),
    "Scale": _scale,
    "Selu": _of_one(operator("Selu", "alpha", "gamma"), "alpha", "scale"),
    "Unary": lambda graph: graph.one_of("kind", _UNARY)(graph, graph.value()),
    "Concat": _concat,
    "Crop": _crop,
    "Flatten": _flatten,
    "LogSoftmax": _along_axis("LogSoftmax"),
    "Pad": _pad,
    "Permute": lambda graph: _permuted(graph, _numbered(graph, "order")[: graph.value().rank]),
    "Reduction": _reduction,
    "Reshape": _reshape,
    "ShuffleChannel": _shuffle_channels,
    "Slice": _slice,
    "Softmax": _along_axis("Softmax"),
    "Split": _split,
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
    "SwapAxis": _swap_axes,
    "Transpose": lambda graph: _permuted(graph, graph.parameters["order"].tolist()),
    "Unsqueeze": _unsqueeze,
}
