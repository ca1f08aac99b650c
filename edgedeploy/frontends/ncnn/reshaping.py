"""Layers that move values and compute none: copies, concatenation, cropping, padding, shapes; and resizing."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from edgedeploy.frontends.ncnn.step import UNSET, Blob, Step, translates


@translates("Split")
def _split(step: Step) -> Sequence[Blob]:
    return [step.only_input()] * len(step.layer.outputs)


@translates("Noop")
def _noop(step: Step) -> Sequence[Blob]:
    """What it reads, or nothing: a way to say that nobody wants a blob."""
    return step.inputs if step.layer.outputs else []


@translates("MemoryData", {0, 1, 2, 11, 21})
def _memory_data(step: Step) -> Blob:
    layer = step.layer
    shape = [size for size in (layer.integer(number) for number in (2, 11, 1, 0)) if size != 0]
    if layer.integer(21, 1) != 1 or step.inputs or min(shape, default=0) < 1:
        raise layer.error("only numbers of 32 bits, in one to four dimensions, can be imported")
    values = step.weights.plain([1, *shape], layer.name)
    return step.node("Identity", step.constant(values))


@translates("Concat", {0})
def _concat(step: Step) -> Blob:
    blobs = step.inputs
    rank = blobs[0].rank if blobs else 0
    if not blobs or any(blob.rank != rank for blob in blobs):
        raise step.layer.error("its inputs should have equally many dimensions")
    axis = step.axis(step.layer.integer(0), rank)
    if len({(*blob.shape[:axis], *blob.shape[axis + 1 :]) for blob in blobs}) > 1:
        raise step.layer.error(f"its inputs should differ in size on axis {axis} only")
    return step.node("Concat", *blobs, axis=axis)


@translates("Slice", {0, 1, 2})
def _slice(step: Step) -> Sequence[Blob]:
    """Parts of stated sizes, of which some may be equal shares of the rest, or parts up to stated places."""
    layer, blob = step.layer, step.only_input()
    axis, count = step.axis(layer.integer(1), blob.rank), len(layer.outputs)
    size, sizes, places = blob.shape[axis], layer.integers(0), layer.integers(2)
    if places:
        ends = [place + size if place < 0 else place for place in places[: count - 1]]
        sizes = [end - begin for begin, end in zip([0, *ends], [*ends, size], strict=True)]
    if len(sizes) != count:
        raise layer.error(f"it states sizes of {len(sizes)} parts and writes {count}")
    left, parts = size, []
    for index, part in enumerate(sizes):
        parts.append(left // (count - index) if part == UNSET else part)
        left -= parts[-1]
    if left or min(parts) < 1:
        raise layer.error(f"parts of {parts[:20]} do not fit axis {axis} with {size}")
    if count == 1:
        return [blob]
    return step.nodes("Split", blob, step.integers(parts), outputs=count, axis=axis)


@translates("Crop", range(12))
def _crop(step: Step) -> Blob:
    layer = step.layer
    blob = step.inputs[0] if step.inputs and step.inputs[0].rank < 4 else step.only_input(1, 2, 3)
    # Parameters have w, h, c; shapes have them the other way round.
    axes = range(blob.rank)
    offsets, sizes, margins = ([layer.integer(first + blob.rank - 1 - axis) for axis in axes] for first in (0, 3, 6))
    starts, ends, stated = layer.integers(9), layer.integers(10), layer.integers(11)
    if starts and ends:
        begins, stops = _sliced(step, step.only_input(), starts, ends, stated or list(axes))
    elif len(step.inputs) == 2:
        blob, like = step.check_inputs(2, blob.rank)
        begins, stops = offsets, [begin + size for begin, size in zip(offsets, like.shape, strict=True)]
    else:
        step.only_input()
        begins, stops = offsets, []
        for begin, size, margin, inner in zip(offsets, sizes, margins, blob.shape, strict=True):
            last = inner - margin
            stops.append(last if size == UNSET else min(begin + size, last))
    if any(not 0 <= begin < stop <= size for begin, stop, size in zip(begins, stops, blob.shape, strict=True)):
        raise layer.error(f"the part from {begins} to before {stops} is none of {blob.shape}")
    return step.crop(blob, begins, stops) if tuple(stops) != blob.shape or any(begins) else blob


def _sliced(step: Step, blob: Blob, starts: list[int], ends: list[int], axes: list[int]) -> tuple[list[int], list[int]]:
    """Where the part begins and ends, as numpy's slices say; an end of 0 is that of the axis."""
    if not len(starts) == len(ends) == len(axes) <= blob.rank:
        raise step.layer.error("starts, ends and axes should be equally many, and not more than dimensions")
    begins, stops = [0] * blob.rank, list(blob.shape)
    for axis, start, end in zip((step.axis(axis, blob.rank) for axis in axes), starts, ends, strict=True):
        size = blob.shape[axis]
        if start != UNSET:
            begins[axis] = start if start >= 0 else start + size
        if end != UNSET:
            stops[axis] = min(end, size) if end > 0 else end + size
    return begins, stops


@translates("Padding", range(9))
def _padding(step: Step) -> Blob:
    layer, blob = step.layer, step.only_input(1, 2, 3)
    top, bottom, left, right, mode = (layer.integer(number) for number in range(5))
    begins = [layer.integer(7), top, left][-blob.rank :]
    ends = [layer.integer(8), bottom, right][-blob.rank :]
    if not 0 <= mode <= 2 or layer.integer(6) or min(*begins, *ends) < 0:
        raise layer.error("only widths that are not negative, and one value for all channels, can be imported")
    if mode == 2 and any(
        width >= size for width, size in zip([*begins, *ends], [*blob.shape, *blob.shape], strict=True)
    ):
        raise layer.error("a reflection is wider than the input")
    return step.pad(blob, begins, ends, ("constant", "edge", "reflect")[mode], layer.number(5))


@translates("Tile", range(3))
def _tile(step: Step) -> Blob:
    """Copies side by side, along one axis or along all."""
    layer, blob = step.layer, step.only_input()
    repeats = layer.integers(2)
    if not repeats:
        axis = step.axis(layer.integer(0), blob.rank)
        repeats = [layer.integer(1, 1) if each == axis else 1 for each in range(blob.rank)]
    rank = max(blob.rank, len(repeats))
    if rank > 4 or min(repeats) < 1:
        raise layer.error(f"{repeats} copies of {blob.shape} are no blob")
    # The axis that an image gains lies inside of its channels, other than in numpy.
    place = 1 if (blob.rank, rank) == (3, 4) else 0
    padded = step.reshape(blob, [*blob.shape[:place], *[1] * (rank - blob.rank), *blob.shape[place:]])
    return step.node("Tile", padded, step.integers([1, *[1] * (rank - len(repeats)), *repeats]))


# A size in Reshape's expression: a number, or the size of one of its input.
_SIZE = re.compile(r"0([whdc])|-?\d{1,10}")


def _stated_sizes(step: Step, sizes: Sequence[int]) -> list[int]:
    """What Reshape states of w, h, d and c; `sizes` are those of its input."""
    layer = step.layer
    if 6 not in layer.parameters:
        width, height, depth, channels = (layer.integer(number, UNSET) for number in (0, 1, 11, 2))
        return [width, height, *([] if depth == UNSET else [depth]), channels]
    words = str(layer.parameters[6]).strip("[]").replace("'", "").replace('"', "").split(",")
    found = [_SIZE.fullmatch(word.strip()) for word in words]
    if not all(found) or len(found) > 4:
        raise layer.error(f"its shape is an expression that cannot be imported: {layer.parameters[6]}")
    names = "whc" if len(sizes) < 4 else "whdc"
    known = dict(zip(names, [*reversed(sizes), 1, 1], strict=False))
    return [known.get(each[1], 1) if each[1] else int(each[0]) for each in found if each]


@translates("Reshape", {0, 1, 2, 3, 6, 11})
def _reshape(step: Step) -> Blob:
    layer, blob = step.layer, step.only_input()
    if layer.integer(3):
        raise layer.error("only plain shapes can be imported (not parameter 3)")
    # By w, h, d, c; a size that the input has not is 1.
    stated = _stated_sizes(step, blob.shape)
    inner = [*reversed(blob.shape), 1, 1, 1][: len(stated)]
    sizes = [old if size == 0 else size for size, old in zip(stated, inner, strict=True)]
    shape = [size for size in reversed(sizes) if size != UNSET]
    count = math.prod(blob.shape)
    known = math.prod(size for size in shape if size != -1)
    if shape.count(-1) == 1 and known > 0:
        shape[shape.index(-1)] = count // known
    if not shape or min(shape) < 1:
        raise layer.error(f"its sizes {stated} (parameters 0 to 2 and 11) are no shape")
    return step.reshape(blob, shape)


@translates("Permute", {0})
def _permute(step: Step) -> Blob:
    blob = step.only_input(2, 3, 4)
    order = step.layer.one_of(0, "order", list(itertools.permutations(range(blob.rank))))
    return blob if order == tuple(range(blob.rank)) else step.transpose(blob, order)


@translates("Flatten")
def _flatten(step: Step) -> Blob:
    blob = step.only_input()
    return step.reshape(blob, [math.prod(blob.shape)])


@translates("Squeeze", {0, 1, 2, 3})
def _squeeze(step: Step) -> Blob:
    """Axes of size 1 left away: stated ones, or w, h, c by parameters 0 to 2."""
    layer, blob = step.layer, step.only_input()
    stated = layer.integers(3)
    if stated:
        axes = {step.axis(axis, blob.rank) for axis in stated}
    else:
        step.only_input(1, 2, 3)
        axes = {blob.rank - 1 - number for number in range(blob.rank) if layer.integer(number)}
    shape = [size for axis, size in enumerate(blob.shape) if axis not in axes or size != 1]
    return step.reshape(blob, shape or [1])


@translates("ExpandDims", {3})
def _expand_dims(step: Step) -> Blob:
    """More axes of size 1, stated as they are counted afterwards."""
    blob, stated = step.only_input(), step.layer.integers(3)
    rank = blob.rank + len(stated)
    if rank > 4:
        raise step.layer.error("its output has more than four dimensions")
    axes = {step.axis(axis, rank) for axis in stated}
    if len(axes) < len(stated):
        raise step.layer.error("it names an axis twice")
    sizes = iter(blob.shape)
    return step.reshape(blob, [1 if axis in axes else next(sizes) for axis in range(rank)])


@translates("ShuffleChannel", {0, 1})
def _shuffle_channel(step: Step) -> Blob:
    """Channels of groups in turn, from Zhang et al., "ShuffleNet" (2017)."""
    layer, blob = step.layer, step.only_input(3)
    groups, (channels, *sizes) = layer.integer(0, 1), blob.shape
    if groups < 1 or channels % groups:
        raise layer.error(f"{channels} channels do not fit {groups} groups")
    rows = channels // groups if layer.integer(1) else groups
    parts = step.reshape(blob, [rows, channels // rows, *sizes])
    return step.reshape(step.transpose(parts, [1, 0, 2, 3]), blob.shape)


@translates("PixelShuffle", {0, 1})
def _pixel_shuffle(step: Step) -> Blob:
    """Channels to squares of pixels, from Shi et al. (2016)."""
    layer, blob = step.layer, step.only_input(3)
    factor, mode, channels = layer.integer(0, 1), layer.integer(1), blob.shape[0]
    if factor < 1 or channels % factor**2 or mode not in (0, 1):
        raise layer.error(f"{channels} channels do not fit squares of {factor}x{factor}")
    return step.node("DepthToSpace", blob, blocksize=factor, mode=("CRD", "DCR")[mode])


# By ncnn's number.
_RESIZES = {1: "nearest", 2: "linear", 3: "cubic"}


@translates("Interp", range(7))
def _interp(step: Step) -> Blob:
    """Resizing by factors, to a stated size, or to that of a second input."""
    layer = step.layer
    blob = step.inputs[0] if step.inputs else step.only_input()
    kind, corners = layer.integer(0), layer.integer(6) != 0
    factors = layer.number(1, 1.0), layer.number(2, 1.0)
    wanted: tuple[int, ...] = (layer.integer(3), layer.integer(4))
    if kind not in _RESIZES or blob.rank == 2:
        raise layer.error(f"resizing {kind} (parameter 0) of {blob.rank} dimensions is not known")
    if layer.integer(5):
        blob, like = step.check_inputs(2, 3)
        wanted = like.shape[1:]
    elif len(step.inputs) != 1:
        raise layer.error("it should read one blob")
    if blob.rank == 1:  # one pixel for each channel
        blob = step.reshape(blob, [*blob.shape, 1, 1])
    stated = all(wanted)
    if not stated:
        wanted = tuple(int(size * factor) for size, factor in zip(blob.shape[1:], factors, strict=True))
    if min(wanted) < 1 or (not stated and min(factors) <= 0):
        raise layer.error("its output would be empty")
    if wanted == blob.shape[1:]:
        return blob
    mode = {"mode": _RESIZES[kind]}
    if kind == 1:
        # Places are rounded down, and found by the factor where that does not give the size exactly.
        mode |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        if not stated and any(
            old * factor != new for old, factor, new in zip(blob.shape[1:], factors, wanted, strict=True)
        ):
            return step.node("Resize", blob, "", step.constant([1, 1, *factors]), **mode)
    else:
        mode["coordinate_transformation_mode"] = "align_corners" if corners else "half_pixel"
    return step.node("Resize", blob, "", "", step.integers([1, blob.shape[0], *wanted]), **mode)
