"""Layers that move values: copies, concatenation, cropping, padding, reshaping; and resizing."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from edgedeploy.frontends.graph import PAD_MODES, Value
from edgedeploy.frontends.ncnn.graph import UNSET, NcnnGraph, translates

translates("Flatten")(lambda graph, blob: graph.reshape(blob, [math.prod(blob.shape)]))
translates("Noop")(lambda graph: graph.inputs if graph.layer.outputs else [])  # without outputs, it discards a blob
translates("ShuffleChannel", (0, 1), 3)(
    lambda graph, blob, groups=1, reverse=False: graph.shuffle_channels(blob, groups, reverse=reverse)
)
translates("Split")(lambda graph, blob: [blob] * len(graph.layer.outputs))


@translates("MemoryData", {0, 1, 2, 11, 21})
def _memory_data(graph: NcnnGraph) -> Value:
    layer = graph.layer
    shape = [size for size in (layer.integer(number) for number in (2, 11, 1, 0)) if size != 0]
    if layer.integer(21, 1) != 1 or graph.inputs or min(shape, default=0) < 1:
        raise layer.error("only numbers of 32 bits, in one to four dimensions, can be imported")
    return graph.node("Identity", graph.floats(graph.weights.plain(1, *shape)))


@translates("Concat", {0})
def _concat(graph: NcnnGraph, axis: int = 0) -> Value:
    if not graph.inputs:
        raise graph.layer.error("it should read one blob at least")
    return graph.node("Concat", *graph.inputs, axis=graph.axis(axis, graph.inputs[0].rank))


@translates("Slice", range(3))
def _slice(
    graph: NcnnGraph, blob: Value, sizes: Sequence[int] = (), axis: int = 0, places: Sequence[int] = ()
) -> Sequence[Value]:
    """Parts of stated sizes, some of which may be equal shares of the rest, or parts up to stated places."""
    layer, axis, count = graph.layer, graph.axis(axis, blob.rank), len(graph.layer.outputs)
    size = blob.shape[axis]
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
    return graph.split(blob, parts, axis) if count > 1 else [blob]


@translates("Crop", range(12))
def _crop(graph: NcnnGraph) -> Value:
    layer = graph.layer
    blob = graph.inputs[0] if graph.inputs and graph.inputs[0].rank < 4 else graph.only_input(1, 2, 3)
    # Parameters have w, h, c; shapes have them the other way round.
    axes = range(blob.rank)
    offsets, sizes, margins = ([layer.integer(first + blob.rank - 1 - axis) for axis in axes] for first in (0, 3, 6))
    starts, ends, stated = layer.integers(9), layer.integers(10), layer.integers(11)
    if starts and ends:
        begins, stops = _sliced(graph, graph.only_input(), starts, ends, stated or list(axes))
    elif len(graph.inputs) == 2:
        blob, like = graph.check_inputs(2, blob.rank)
        begins, stops = offsets, [begin + size for begin, size in zip(offsets, like.shape, strict=True)]
    else:
        graph.only_input()
        begins, stops = offsets, []
        for begin, size, margin, inner in zip(offsets, sizes, margins, blob.shape, strict=True):
            last = inner - margin
            stops.append(last if size == UNSET else min(begin + size, last))
    if any(not 0 <= begin < stop <= size for begin, stop, size in zip(begins, stops, blob.shape, strict=True)):
        raise layer.error(f"the part from {begins} to before {stops} is outside of {blob.shape}")
    return graph.cut(blob, begins, stops) if tuple(stops) != blob.shape or any(begins) else blob


def _sliced(
    graph: NcnnGraph, blob: Value, starts: list[int], ends: list[int], axes: list[int]
) -> tuple[list[int], list[int]]:
    """Where the part begins and ends, as numpy's slices say; an end of 0 is that of the axis."""
    if not len(starts) == len(ends) == len(axes) <= blob.rank:
        raise graph.layer.error("starts, ends and axes should be equally many, and not more than dimensions")
    begins, stops = [0] * blob.rank, list(blob.shape)
    for axis, start, end in zip((graph.axis(axis, blob.rank) for axis in axes), starts, ends, strict=True):
        size = blob.shape[axis]
        if start != UNSET:
            begins[axis] = start if start >= 0 else start + size
        if end != UNSET:
            stops[axis] = min(end, size) if end > 0 else end + size
    return begins, stops


@translates("Padding", range(9), 1, 2, 3)
def _padding(graph: NcnnGraph, blob: Value, top: int = 0, bottom: int = 0, left: int = 0, right: int = 0) -> Value:
    layer, mode = graph.layer, graph.layer.integer(4)
    begins = [layer.integer(7), top, left][-blob.rank :]
    ends = [layer.integer(8), bottom, right][-blob.rank :]
    if not 0 <= mode <= 2 or layer.integer(6) or min(*begins, *ends) < 0:
        raise layer.error("only widths that are not negative, and one value for all channels, can be imported")
    return graph.pad(blob, begins, ends, PAD_MODES[mode], layer.number(5))


@translates("Tile", range(3))
def _tile(graph: NcnnGraph, blob: Value, axis: int = 0, count: int = 1, repeats: Sequence[int] = ()) -> Value:
    """Copies side by side, along one axis or along all."""
    if not repeats:
        repeats = [count if each == graph.axis(axis, blob.rank) else 1 for each in range(blob.rank)]
    rank = max(blob.rank, len(repeats))
    if rank > 4 or min(repeats) < 1:
        raise graph.layer.error(f"{repeats} copies of {blob.shape} are not a blob")
    # Unlike in numpy, an image gains an axis inside of its channels.
    place = 1 if (blob.rank, rank) == (3, 4) else 0
    padded = graph.reshape(blob, [*blob.shape[:place], *[1] * (rank - blob.rank), *blob.shape[place:]])
    return graph.node("Tile", padded, graph.integers([1, *[1] * (rank - len(repeats)), *repeats]))


_SIZE = re.compile(r"0([whdc])|-?\d{1,10}")  # a size in Reshape's expression: a number, or the size of one of its input


def _stated_sizes(graph: NcnnGraph, sizes: Sequence[int]) -> list[int]:
    """The w, h, d and c that Reshape states; `sizes` are those of its input."""
    layer = graph.layer
    if 6 not in layer.parameters:
        width, height, depth, channels = (layer.integer(number, UNSET) for number in (0, 1, 11, 2))
        return [width, height, *([] if depth == UNSET else [depth]), channels]
    words = str(layer.parameters[6]).strip("[]").replace("'", "").replace('"', "").split(",")
    found = [_SIZE.fullmatch(word.strip()) for word in words]
    if not all(found) or len(found) > 4:
        raise layer.error(f"its shape is an expression that cannot be imported: {layer.parameters[6]}")
    known = dict(zip("whc" if len(sizes) < 4 else "whdc", [*reversed(sizes), 1, 1], strict=False))
    return [known.get(each[1], 1) if each[1] else int(each[0]) for each in found if each]


@translates("Reshape", {0, 1, 2, 3, 6, 11})
def _reshape(graph: NcnnGraph, blob: Value) -> Value:
    layer = graph.layer
    if layer.integer(3):
        raise layer.error("only plain shapes can be imported (not parameter 3)")
    # By w, h, d, c; a size that the input has not is 1.
    stated = _stated_sizes(graph, blob.shape)
    inner = [*reversed(blob.shape), 1, 1, 1][: len(stated)]
    sizes = [old if size == 0 else size for size, old in zip(stated, inner, strict=True)]
    shape = [size for size in reversed(sizes) if size != UNSET]
    count = math.prod(blob.shape)
    known = math.prod(size for size in shape if size != -1)
    if shape.count(-1) == 1 and known > 0:
        shape[shape.index(-1)] = count // known
    if not shape or min(shape) < 1:
        raise layer.error(f"its sizes {stated} (parameters 0 to 2 and 11) are not a shape")
    return graph.reshape(blob, shape)


@translates("Permute", {0}, 2, 3, 4)
def _permute(graph: NcnnGraph, blob: Value) -> Value:
    order = graph.layer.one_of(0, "order", list(itertools.permutations(range(blob.rank))))
    return blob if order == tuple(range(blob.rank)) else graph.transpose(blob, order)


@translates("Squeeze", (3, 0, 1, 2))
def _squeeze(graph: NcnnGraph, blob: Value, stated: Sequence[int] = ()) -> Value:
    """Removed axes of size 1: stated ones, or w, h, c by parameters 0 to 2."""
    if stated:
        axes = {graph.axis(axis, blob.rank) for axis in stated}
    else:
        graph.only_input(1, 2, 3)
        axes = {blob.rank - 1 - number for number in range(blob.rank) if graph.layer.integer(number)}
    shape = [size for axis, size in enumerate(blob.shape) if axis not in axes or size != 1]
    return graph.reshape(blob, shape or [1])


@translates("ExpandDims", {3})
def _expand_dims(graph: NcnnGraph, blob: Value, stated: Sequence[int] = ()) -> Value:
    """More axes of size 1, stated as they are counted afterwards."""
    rank = blob.rank + len(stated)
    if rank > 4:
        raise graph.layer.error("its output has more than four dimensions")
    axes = {graph.axis(axis, rank) for axis in stated}
    if len(axes) < len(stated):
        raise graph.layer.error("it names an axis twice")
    sizes = iter(blob.shape)
    return graph.reshape(blob, [1 if axis in axes else next(sizes) for axis in range(rank)])


@translates("PixelShuffle", (0, 1), 3)
def _pixel_shuffle(graph: NcnnGraph, blob: Value, factor: int = 1, mode: int = 0) -> Value:
    """Channels to squares of pixels, from Shi et al. (2016)."""
    channels = blob.shape[0]
    if factor < 1 or channels % factor**2 or mode not in (0, 1):
        raise graph.layer.error(f"{channels} channels do not fit squares of {factor}x{factor}")
    return graph.node("DepthToSpace", blob, blocksize=factor, mode=("CRD", "DCR")[mode])


_RESIZES = {1: "nearest", 2: "linear", 3: "cubic"}  # by ncnn's number


@translates("Interp", range(7))
def _interp(graph: NcnnGraph) -> Value:
    """Resizing by factors, to a stated size, or to that of a second input."""
    layer = graph.layer
    blob = graph.inputs[0] if graph.inputs else graph.only_input()
    kind, corners = layer.integer(0), layer.integer(6) != 0
    factors = layer.number(1, 1.0), layer.number(2, 1.0)
    wanted: tuple[int, ...] = (layer.integer(3), layer.integer(4))
    if kind not in _RESIZES or blob.rank == 2:
        raise layer.error(f"resizing {kind} (parameter 0) of {blob.rank} dimensions is not known")
    if layer.integer(5):
        blob, like = graph.check_inputs(2, 3)
        wanted = like.shape[1:]
    elif len(graph.inputs) != 1:
        raise layer.error("it should read one blob")
    if blob.rank == 1:  # one pixel for each channel
        blob = graph.reshape(blob, [*blob.shape, 1, 1])
    stated = all(wanted)
    if not stated:
        wanted = tuple(int(size * factor) for size, factor in zip(blob.shape[1:], factors, strict=True))
    if min(wanted) < 1 or (not stated and min(factors) <= 0):
        raise layer.error("its output would be empty")
    if wanted == blob.shape[1:]:
        return blob
    size = graph.integers([1, blob.shape[0], *wanted])
    if kind != 1:
        return graph.resize(blob, "", size, mode=_RESIZES[kind], transform="align_corners" if corners else "half_pixel")
    # Factors that do not give the size exactly decide which pixels are repeated.
    exact = [size * factor for size, factor in zip(blob.shape[1:], factors, strict=True)]
    if not stated and exact != list(wanted):
        return graph.resize_nearest(blob, graph.floats([1, 1, *factors]))
    return graph.resize_nearest(blob, "", size)
