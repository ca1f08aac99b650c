"""Tengine's operators that move values, and those along whole axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from edgedeploy.errors import ModelError
from edgedeploy.frontends.tengine.operation import Converter, Operation

_AXES = ("n", "c", "h", "w")

# `type` of Tengine's reduction_kernel_ref.h.
_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceSumSquare", "ReduceMax", "ReduceMin", "ReduceProd")
_UNUSED = -2  # in the place of an axis

_PAD_MODES = ("constant", "edge", "reflect")


def _along_axis(operator: str) -> Converter:
    return lambda op: op.finish(operator, op.value(), axis=op.axis(op.parameters["axis"]))


def _concat(op: Operation) -> list[str]:
    values = [op.value(position) for position in range(max(1, op.inputs))]
    axis = op.axis(op.parameters["axis"])
    return op.finish("Concat", *values, axis=axis) if len(values) > 1 else values


def _flatten(op: Operation) -> list[str]:
    """Tengine's flatten.c: the axes up to `end_axis` become one, behind the batch."""
    shape = op.shape()
    first, last = op.parameters["axis"], op.parameters["end_axis"]
    if first != 1 or last < len(shape) - 1:
        raise ModelError(f"it flattens axes {first} to {last} of {len(shape)}, not all but the batch")
    return op.finish("Reshape", op.value(), op.integers((shape[0], math.prod(shape[1:]))))


def _reshape(op: Operation) -> list[str]:
    """Tengine's reshape.c, with MXNet's codes: 0 keeps a size, -1 is what remains, -2 keeps all further sizes,
    -3 joins two, -4 divides one by the two that follow."""
    p = op.parameters
    shape, wanted = op.shape(), p["shape"].tolist()
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
    return op.finish("Reshape", op.value(), op.integers(sizes))


def _permuted(op: Operation, order: Sequence[int]) -> list[str]:
    if sorted(order) != list(range(len(op.shape()))):
        raise ModelError(f"its order {list(order)} does not suit an input of shape {op.shape()}")
    return op.finish("Transpose", op.value(), perm=list(order))


def _permute(op: Operation) -> list[str]:
    order = [op.parameters[f"order_{index}"] for index in range(4)]
    return _permuted(op, order[: len(op.shape())])


def _transpose(op: Operation) -> list[str]:
    return _permuted(op, op.parameters["order"].tolist())


def _swap_axes(op: Operation) -> list[str]:
    order = list(range(len(op.shape())))
    one, other = (op.axis(op.parameters[f"axis_{index}"]) for index in range(2))
    order[one], order[other] = other, one
    return _permuted(op, order)


def _shuffle_channels(op: Operation) -> list[str]:
    """Tengine's shuffle_channel_ref.c: channels of groups one after another become one of each group in turn."""
    batch, channels, height, width = op.feature_map()
    groups = op.parameters["groups"]
    if groups < 1 or channels % groups:
        raise ModelError(f"{channels} channels do not divide into {groups} groups")
    parted = op.reshaped(op.value(), (batch, groups, channels // groups, height, width))
    turned = op.step("Transpose", parted, perm=[0, 2, 1, 3, 4])
    return op.finish("Reshape", turned, op.integers((batch, channels, height, width)))


def _cut(op: Operation, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int] = ()) -> list[str]:
    """`sizes` values along the first axes, from `starts` on, at distances of `steps`, or 1."""
    steps = steps or [1] * len(starts)
    shape = op.shape()
    if not len(starts) == len(sizes) == len(steps) <= len(shape):
        raise ModelError(f"it cuts {len(starts)} axes of an input of shape {shape}")
    ends = [start + (size - 1) * step + 1 for start, size, step in zip(starts, sizes, steps, strict=True)]
    for start, end, size, step, there in zip(starts, ends, sizes, steps, shape, strict=False):
        if start < 0 or size < 1 or step < 1 or end > there:
            raise ModelError(f"it cuts out {size} of {there} values from {start} on, at steps of {step}")
    axes = range(len(starts))
    return op.finish("Slice", op.value(), *(op.integers(numbers) for numbers in (starts, ends, axes, steps)))


def _divided(op: Operation, axis: int, sizes: Sequence[int]) -> list[str]:
    """Parts of `sizes` along an axis, one for each output."""
    if len(sizes) != len(op.names) or min(sizes) < 1 or sum(sizes) != op.shape()[axis]:
        raise ModelError(f"{op.shape()[axis]} values do not divide into {list(sizes)} for {len(op.names)} outputs")
    return op.graph.nodes("Split", op.value(), op.integers(sizes), names=op.names, axis=axis)


def _evenly(op: Operation, axis: int, parts: int) -> list[str]:
    size = op.shape()[axis]
    if parts < 1 or size % parts:
        raise ModelError(f"{size} values do not divide into {parts}")
    return _divided(op, axis, [size // parts] * parts)


def _split(op: Operation) -> list[str]:
    """Tengine's tm2_split.c and split.c. Caffe's gives its input to all that read it."""
    p = op.parameters
    if p["caffe"]:
        return [op.value()] * len(op.names)
    axis = op.axis(p["axis"] if p["onnx"] else 0)
    return _divided(op, axis, p["sizes"].tolist()) if p["sizes"].size else _evenly(op, axis, p["parts"])


def _slice(op: Operation) -> list[str]:
    """Tengine's slice.c: Caffe's divides an axis; MXNet's and ONNX's cut out of one; TensorFlow's out of all."""
    p, shape = op.parameters, op.shape()
    if p["caffe"]:
        axis = op.axis(p["axis"])
        if not p["points"].size:
            return _evenly(op, axis, len(op.names))
        points = [0, *p["points"].tolist(), shape[axis]]
        return _divided(op, axis, [end - begin for begin, end in pairwise(points)])
    if p["mxnet"] or p["onnx"]:
        axis = op.axis(p["axis"])
        begin, end, step = p["begin"], min(p["end"], shape[axis]), max(1, p["step"]) if p["onnx"] else 1
        # Tengine adds the size to an end that is not positive.
        end += shape[axis] if end <= 0 else 0
        starts, sizes, steps = [0] * len(shape), list(shape), [1] * len(shape)
        starts[axis], sizes[axis], steps[axis] = begin, -((begin - end) // step), step
        return _cut(op, starts, sizes, steps)
    begins, sizes = p["begins"].tolist(), p["sizes"].tolist()
    sizes = [there - begin if size == -1 else size for begin, size, there in zip(begins, sizes, shape, strict=False)]
    return _cut(op, begins, sizes)


def _strided_slice(op: Operation) -> list[str]:
    """Tengine's strided_slice.c: an end tells how much is left out at the end, as 0 or a negative number does in
    TensorFlow; sizes are rounded up, and are at least 1."""
    p, shape = op.parameters, op.feature_map()
    starts = [p[f"begin_{axis}"] for axis in _AXES]
    steps = [p[f"step_{axis}"] for axis in _AXES]
    if min(steps) < 1:
        raise ModelError(f"its steps are {steps}")
    left_out = [abs(p[f"end_{axis}"] - start) for axis, start in zip(_AXES, starts, strict=True)]
    sizes = [max(1, -((out - size) // step)) for size, out, step in zip(shape, left_out, steps, strict=True)]
    return _cut(op, starts, sizes, steps)


def _crop(op: Operation) -> list[str]:
    """Tengine's crop_ref.c: to the height and width of the second input, or MXNet's to its own, from the middle."""
    p = op.parameters
    batch, channels, height, width = op.feature_map()
    if p["mxnet"] and p["inputs"] == 1:
        if not p["centred"]:
            raise ModelError("it crops to its own size, but not from the middle")
        size = (p["height"], p["width"])
        return _cut(op, (0, 0, (height - size[0]) // 2, (width - size[1]) // 2), (batch, channels, *size))
    wanted = op.shape(1)
    if len(wanted) != 4 or (p["mxnet"] and p["centred"]) or (not p["mxnet"] and p["axis"] not in (1, 2)):
        raise ModelError(f"it crops in a way that is not known, to a shape of {wanted}")
    first = p["offset_c"] if not p["mxnet"] and p["axis"] == 1 else 0
    return _cut(op, (0, first, p["offset_h"], p["offset_w"]), (batch, wanted[1], *wanted[2:]))


def _pad(op: Operation) -> list[str]:
    p = op.parameters
    sizes = op.feature_map()
    widths = [p[f"{side}_{axis}"] for side in ("begin", "end") for axis in _AXES]
    if min(widths) < 0 or not 0 <= p["mode"] < len(_PAD_MODES):
        raise ModelError(f"its widths are {widths}, its mode {p['mode']}")
    mode = _PAD_MODES[p["mode"]]
    if mode == "reflect" and any(width >= size for width, size in zip(widths, sizes * 2, strict=True)):
        raise ModelError(f"its widths {widths} reflect more than there is of {sizes}")
    return op.finish("Pad", op.value(), op.integers(widths), *([] if p["mode"] else [op.number(p["value"])]), mode=mode)


def _reduction(op: Operation) -> list[str]:
    p = op.parameters
    if not 0 <= p["kind"] < len(_REDUCTIONS):
        raise ModelError(f"its kind {p['kind']} is not known")
    stated = [p[f"axis_{index}"] for index in range(4)]
    rank = len(op.shape())
    axes = sorted({op.axis(axis) for axis in stated if axis != _UNUSED}) or list(range(rank))
    keep = int(p["keep"] == 1)
    operator = _REDUCTIONS[p["kind"]]
    all_of_it = len(axes) == rank and not keep  # Tengine has no tensors without dimensions
    write = op.step if all_of_it else op.finish
    if operator == "ReduceSum":
        value = write(operator, op.value(), op.integers(axes), keepdims=keep)
    else:
        value = write(operator, op.value(), axes=axes, keepdims=keep)
    return op.finish("Reshape", value, op.integers([1])) if isinstance(value, str) else value


def _squeeze(op: Operation) -> list[str]:
    shape = op.shape()
    axes = {op.axis(axis) for axis in (op.parameters[f"axis_{index}"] for index in range(4)) if axis != _UNUSED}
    axes = axes or {axis for axis, size in enumerate(shape) if size == 1}
    if any(shape[axis] != 1 for axis in axes):
        raise ModelError(f"it removes axes {sorted(axes)} of an input of shape {shape}")
    sizes = [size for axis, size in enumerate(shape) if axis not in axes]
    return op.finish("Reshape", op.value(), op.integers(sizes or [1]))


def _unsqueeze(op: Operation) -> list[str]:
    axes = op.parameters["axes"].tolist()
    if not axes or len(set(axes)) != len(axes) or not all(0 <= axis < len(op.shape()) + len(axes) for axis in axes):
        raise ModelError(f"it adds axes {axes} to an input of shape {op.shape()}")
    return op.finish("Unsqueeze", op.value(), op.integers(axes))


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
