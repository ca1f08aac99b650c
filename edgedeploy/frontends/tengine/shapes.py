"""Tengine's operators that move values, and those along whole axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from edgedeploy.errors import ModelError
from edgedeploy.frontends.graph import Value
from edgedeploy.frontends.tengine.graph import Converter, TengineGraph

_AXES = ("n", "c", "h", "w")

# `type` of Tengine's reduction_kernel_ref.h.
_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceSumSquare", "ReduceMax", "ReduceMin", "ReduceProd")
_UNUSED = -2  # in the place of an axis

_PAD_MODES = ("constant", "edge", "reflect")


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
    position = 0
    while position < len(wanted):
        code, position = wanted[position], position + 1
        taken = {-2: len(shape) - read, -3: 2}.get(code, 1)
        if code == 0 and not p["mxnet"] and position > 1:
            raise ModelError(f"its shape {wanted} keeps a size that is not the batch")
        if code in (0, -2, -3) and not 0 <= taken <= len(shape) - read:
            raise ModelError(f"its shape {wanted} does not suit an input of shape {shape}")
        kept = shape[read : read + taken]
        if code == 0 or code == -2:
            sizes += kept
        elif code == -3:
            sizes.append(math.prod(kept))
        elif code == -4:
            sizes += wanted[position : position + 2]
            position += 2
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


def _permuted(graph: TengineGraph, order: Sequence[int]) -> Value:
    if sorted(order) != list(range(len(graph.value().shape))):
        raise ModelError(f"its order {list(order)} does not suit an input of shape {graph.value().shape}")
    return graph.transpose(graph.value(), order)


def _permute(graph: TengineGraph) -> Value:
    order = [graph.parameters[f"order_{index}"] for index in range(4)]
    return _permuted(graph, order[: len(graph.value().shape)])


def _transpose(graph: TengineGraph) -> Value:
    return _permuted(graph, graph.parameters["order"].tolist())


def _swap_axes(graph: TengineGraph) -> Value:
    order = list(range(len(graph.value().shape)))
    one, other = (graph.axis(graph.parameters[f"axis_{index}"]) for index in range(2))
    order[one], order[other] = other, one
    return _permuted(graph, order)


def _shuffle_channels(graph: TengineGraph) -> Value:
    """Tengine's shuffle_channel_ref.c: channels of groups one after another become one of each group in turn."""
    channels, groups = graph.feature_map()[1], graph.parameters["groups"]
    if groups < 1 or channels % groups:
        raise ModelError(f"{channels} channels do not divide into {groups} groups")
    return graph.shuffle_channels(graph.value(), groups)


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
        # Tengine adds the size to an end that is not positive.
        end += shape[axis] if end <= 0 else 0
        starts, sizes, steps = [0] * len(shape), list(shape), [1] * len(shape)
        starts[axis], sizes[axis], steps[axis] = begin, -((begin - end) // step), step
        return _cut(graph, starts, sizes, steps)
    begins, sizes = p["begins"].tolist(), p["sizes"].tolist()
    sizes = [there - begin if size == -1 else size for begin, size, there in zip(begins, sizes, shape, strict=False)]
    return _cut(graph, begins, sizes)


def _strided_slice(graph: TengineGraph) -> Value:
    """Tengine's strided_slice.c: an end tells how much is left out at the end, as 0 or a negative number does in
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
    p = graph.parameters
    sizes = graph.feature_map()
    widths = [p[f"{side}_{axis}"] for side in ("begin", "end") for axis in _AXES]
    if min(widths) < 0 or not 0 <= p["mode"] < len(_PAD_MODES):
        raise ModelError(f"its widths are {widths}, its mode {p['mode']}")
    mode = _PAD_MODES[p["mode"]]
    if mode == "reflect" and any(width >= size for width, size in zip(widths, sizes * 2, strict=True)):
        raise ModelError(f"its widths {widths} reflect more than there is of {sizes}")
    return graph.pad(graph.value(), widths[:4], widths[4:], mode, p["value"])


def _reduction(graph: TengineGraph) -> Value:
    p = graph.parameters
    if not 0 <= p["kind"] < len(_REDUCTIONS):
        raise ModelError(f"its kind {p['kind']} is not known")
    stated = [p[f"axis_{index}"] for index in range(4)]
    rank = len(graph.value().shape)
    axes = sorted({graph.axis(axis) for axis in stated if axis != _UNUSED}) or list(range(rank))
    reduced = graph.reduce(_REDUCTIONS[p["kind"]], graph.value(), axes, keep=int(p["keep"] == 1))
    return graph.reshape(reduced, reduced.shape or [1])  # Tengine has no tensors without dimensions


def _squeeze(graph: TengineGraph) -> Value:
    shape = graph.value().shape
    axes = {graph.axis(axis) for axis in (graph.parameters[f"axis_{index}"] for index in range(4)) if axis != _UNUSED}
    axes = axes or {axis for axis, size in enumerate(shape) if size == 1}
    if any(shape[axis] != 1 for axis in axes):
        raise ModelError(f"it removes axes {sorted(axes)} of an input of shape {shape}")
    sizes = [size for axis, size in enumerate(shape) if axis not in axes]
    return graph.reshape(graph.value(), sizes or [1])


def _unsqueeze(graph: TengineGraph) -> Value:
    axes = graph.parameters["axes"].tolist()
    if (
        not axes
        or len(set(axes)) != len(axes)
        or not all(0 <= axis < len(graph.value().shape) + len(axes) for axis in axes)
    ):
        raise ModelError(f"it adds axes {axes} to an input of shape {graph.value().shape}")
    return graph.node("Unsqueeze", graph.value(), graph.integers(axes))


CONVERTERS: dict[str, Converter] = {
    "Concat": _concat,
    "Crop": _crop,
    "Flatten": _flatten,
    "LogSoftmax": _along_axis("LogSoftmax"),
    "Pad": _pad,
    "Permute": _permute,
    "Reduction": _reduction,
    "Reshape": _reshape,
    "ShuffleChannel": _shuffle_channels,
    "Slice": _slice,
    "Softmax": _along_axis("Softmax"),
    "Split": _split,
    "Squeeze": _squeeze,
    "StridedSlice": _strided_slice,
    "SwapAxis": _swap_axes,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
