"""Writes operators on volumes as operators on images, which layout conversion and templates know.

Volumes are n x channels x depth x height x width. In memory with neighbouring channels, which layout conversion leaves,
one volume is two kinds of images at the same time, and neither costs a copy:

- *frames*, depth n x channels x height x width, on which kernels of depth 1 work;
- *sheets*, 1 x channels x depth x (n height width), on which kernels of one pixel in each frame work.

Other convolutions read, of each frame, the channels of all frames under the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.ir import expressions as ir
from edgedeploy.compile.ir.optraits import Kind, is_kind, operator_name, tensors_of

_POOLS = {"nn.max_pool3d": relax.op.nn.max_pool2d, "nn.avg_pool3d": relax.op.nn.avg_pool2d}


@dataclass(frozen=True)
class _Images:
    """A kind of images: the order of a volume's axes in it, and the axes that are not joined with others."""

    order: list[int]
    axes: tuple[int, ...]

    def sizes(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """Batch, rows and columns of the images of a volume of a shape."""
        batch, _, depth, height, width = shape
        return (depth * batch, height, width) if self is _FRAMES else (1, depth, batch * height * width)

    def volume_axes(self) -> list[int]:
        """The axes that bring `order` back to a volume's."""
        return [int(axis) for axis in np.argsort(self.order)]


_FRAMES, _SHEETS = _Images([2, 0, 1, 3, 4], (1, 3, 4)), _Images([1, 2, 0, 3, 4], (1, 2))


@dataclass(frozen=True)
class _Axis:
    """A window along one axis: elements, stride, dilation, padding before and behind."""

    elements: int
    stride: int
    dilation: int
    before: int
    behind: int

    @property
    def moves_nothing(self) -> bool:
        """Whether each result depends on the value at its place only."""
        return (self.elements, self.stride, self.before, self.behind) == (1, 1, 0, 0)


class _Lifter(ir.Rewriter):
    """Writes three-dimensional convolutions and pools, and elementwise operators and reductions after them, in two.

    Expects volumes in NCDHW, and constants in the place of their variables.
    """

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        name = operator_name(call)
        if name == "nn.conv3d":
            return self._convolution(call)
        if name in _POOLS:
            return self._pool(_POOLS[name], call)
        if name == "nn.adaptive_avg_pool3d" and ir.shape_of(call)[2:] == [1, 1, 1]:
            return self._reduction("mean", call, [2, 3, 4])
        if not any(self._source(each) is not None for each in tensors_of(call)):
            return None
        if is_kind(call, Kind.REDUCTION):
            axes = sorted(int(axis) % 5 for axis in call.attrs.axis or range(5))
            return self._reduction(name, call, axes) if axes in ([2], [3, 4], [2, 3, 4]) else None
        if is_kind(call, Kind.ELEMENTWISE) and getattr(call.attrs, "axis", 1) == 1:
            return self._elementwise(call)
        return None

    # Convolutions and pools.

    def _convolution(self, call: relax.Call) -> relax.Expr | None:
        attrs, weights = call.attrs, ir.constant_value(call.args[1])
        if weights is None or not attrs.data_layout == attrs.out_layout == "NCDHW" or attrs.kernel_layout != "OIDHW":
            return None
        depth, *plane = _axes(call, weights.shape[2:])
        groups, shape, dtype = int(attrs.groups), ir.shape_of(call), str(call.ty.dtype)
        if depth.elements > 1 and all(each.moves_nothing for each in plane):
            sheets = self._images(_SHEETS, call.args[0])
            return self._volume(_SHEETS, _convolved(sheets, weights[..., 0], [depth, plane[0]], groups, dtype), shape)
        elements = _elements_that_read(depth, ir.shape_of(call.args[0])[2], shape[2])
        if groups == 1:
            frames = [self._moved(call.args[0], depth, elements, shape[2])]
            kernels = [weights[:, :, elements].swapaxes(1, 2).reshape(len(weights), -1, *weights.shape[3:])]
        else:
            frames = [self._moved(call.args[0], depth, [element], shape[2]) for element in elements]
            kernels = [weights[:, :, element] for element in elements]
        total, *others = (
            self.emit(_convolved(image, kernel, plane, groups, dtype))
            for image, kernel in zip(frames, kernels, strict=True)
        )
        for each in others:
            total = self.emit.add(each, total)
        return self._volume(_FRAMES, total, shape)

    def _moved(self, volume: relax.Expr, depth: _Axis, elements: Sequence[int], count: int) -> relax.Expr:
        """For each of `count` results along the depth, a frame of the channels under some elements of a kernel."""
        batch, channels, size, height, width = ir.shape_of(volume)
        is_lifted = self._source(volume) is not None
        if is_lifted:
            along, across, moved = 1, 3, self._memory(_SHEETS, volume)
        else:  # an input of the network, whose planes are copied as they are
            ordered = self.emit.permute_dims(volume, [2, 0, 1, 3, 4])
            along, across = 0, 2
            moved = self.emit.reshape(ordered, [size, batch, channels, height * width])
        starts = [element * depth.dilation - depth.before for element in elements]
        reach = (count - 1) * depth.stride + 1
        before, behind = max(0, -min(starts)), max(0, max(starts) + reach - size)
        if before or behind:
            widths = [0] * 8
            widths[2 * along : 2 * along + 2] = before, behind
            moved = self.emit(relax.op.nn.pad(moved, widths))
        if (len(elements), count, depth.stride) != (1, before + size + behind, 1):
            begins = [before + start for start in starts]
            parts = [self.emit.strided_slice(moved, [along], [at], [at + reach], [depth.stride]) for at in begins]
            moved = self.emit.concat(parts, axis=across) if len(parts) > 1 else parts[0]
        if is_lifted:
            return self._image(moved, count * batch, height, width)
        return self.emit.reshape(moved, [count * batch, len(elements) * channels, height, width])

    def _pool(self, pool: Any, call: relax.Call) -> relax.Expr | None:
        attrs = call.attrs
        if not attrs.layout == attrs.out_layout == "NCDHW":
            return None
        depth, *plane = _axes(call, [int(size) for size in attrs.pool_size])
        batch, channels, _, height, width = ir.shape_of(call)
        volume: relax.Expr = call.args[0]
        others = {each: bool(getattr(attrs, each)) for each in ("ceil_mode", "count_include_pad")}
        if not all(each.moves_nothing for each in plane):
            shape = [batch, channels, ir.shape_of(volume)[2], height, width]
            pooled = self._of_memory(_FRAMES, _pooled(pool, self._memory(_FRAMES, volume), plane, **others), shape)
            if depth.moves_nothing:
                return pooled
            volume = self.emit(pooled)
        pooled = _pooled(pool, self._memory(_SHEETS, volume), [depth, _Axis(1, 1, 1, 0, 0)], **others)
        return self._of_memory(_SHEETS, pooled, ir.shape_of(call))

    # Operators between them.

    def _reduction(self, name: str, call: relax.Call, axes: list[int]) -> relax.Expr:
        reduce, volume = getattr(relax.op, name), call.args[0]
        if axes == [2, 3, 4] and ir.shape_of(volume)[0] == 1:
            memory = self._memory(_SHEETS, volume)
            return relax.op.reshape(self.emit(reduce(memory, [1, 2], True)), ir.shape_of(call))
        for kind, reduced, of_memory in ((_FRAMES, [3, 4], [1, 2]), (_SHEETS, [2], [1])):
            if reduced[0] in axes:
                shape = [1 if axis in reduced else size for axis, size in enumerate(ir.shape_of(volume))]
                result = reduce(self._memory(kind, volume), of_memory, True)
                volume = self.emit(self._of_memory(kind, result, shape))
        same = ir.shape_of(volume) == ir.shape_of(call)
        return self.bound_value(volume) if same else relax.op.reshape(volume, ir.shape_of(call))

    def _elementwise(self, call: relax.Call) -> relax.Expr | None:
        volume = next(each for each in tensors_of(call) if self._source(each) is not None)
        shape, source = ir.shape_of(volume), self._source(volume)
        if source is None or ir.shape_of(call) != shape:
            return None
        _, kind = source
        slopes = list(call.args[1:]) if operator_name(call) == "nn.prelu" else []
        others = call.args[: len(call.args) - len(slopes)]
        arguments = [*(self._operand(each, shape, kind) for each in others), *slopes]
        if any(each is None for each in arguments):
            return None
        return self._volume(kind, relax.Call(call.op, arguments, call.attrs), shape)

    def _operand(self, argument: relax.Expr, shape: list[int], kind: _Images) -> relax.Expr | None:
        """An argument of an elementwise operator on volumes of a shape, for images; None if it cannot be one."""
        if not isinstance(argument.ty, relax.TensorType):
            return argument
        if ir.shape_of(argument) == shape:
            return self._images(kind, argument)
        value, rank = ir.constant_value(argument), len(ir.shape_of(argument))
        if value is not None and value.size == 1:
            return ir.constant(value.reshape(()))
        own = [1] * (5 - rank) + ir.shape_of(argument)
        if own[0] == own[2] == own[3] == own[4] == 1:
            shaped = [1, own[1], 1, 1]
            return self.emit.reshape(argument, shaped) if value is None else ir.constant(value.reshape(shaped))
        if value is None:
            return None
        wide = [size if axis in kind.axes else whole for axis, (size, whole) in enumerate(zip(own, shape, strict=True))]
        ordered = np.broadcast_to(value.reshape(own), wide).transpose(kind.order)
        return ir.constant(ordered.reshape((-1, own[1], *own[3:]) if kind is _FRAMES else (1, own[1], own[2], -1)))

    # From volumes to images and back.

    def _source(self, volume: relax.Expr) -> tuple[relax.Expr, _Images] | None:
        """The image that a volume was built from, and its kind; None for other volumes."""
        value = self.bound_value(volume)
        axes = ir.axes_of(value)
        kind = next((each for each in (_FRAMES, _SHEETS) if axes == each.volume_axes()), None)
        if kind is None or not ir.is_call(image := self.bound_value(value.args[0]), "relax.reshape"):
            return None
        batch, rows, columns = kind.sizes(ir.shape_of(volume))
        expected = [batch, ir.shape_of(volume)[1], rows, columns]
        return (image.args[0], kind) if ir.shape_of(image.args[0]) == expected else None

    def _images(self, kind: _Images, volume: relax.Expr) -> relax.Expr:
        source = self._source(volume)
        if source is not None and source[1] is kind:
            return source[0]
        return self._image(self._memory(kind, volume), *kind.sizes(ir.shape_of(volume)))

    def _memory(self, kind: _Images, volume: relax.Expr) -> relax.Expr:
        """A volume as images in memory: by depth, n, height and width, with neighbouring channels."""
        source, shape = self._source(volume), ir.shape_of(volume)
        image, order = (volume, [2, 0, 3, 4, 1]) if source is None else (source[0], ir.NHWC_OF_NCHW)
        return self.emit.reshape(self.emit.permute_dims(image, order), [*kind.sizes(shape), shape[1]])

    def _image(self, memory: relax.Expr, *sizes: int) -> relax.Expr:
        """An image of so many batches, rows and columns with neighbouring channels, in NCHW."""
        return self.emit.permute_dims(self.emit.reshape(memory, [*sizes, ir.shape_of(memory)[-1]]), ir.NCHW_OF_NHWC)

    def _of_memory(self, kind: _Images, memory: relax.Expr, shape: list[int]) -> relax.Expr:
        """The volume of a shape that images with neighbouring channels are."""
        return self._volume(kind, self._image(self.emit(memory), *kind.sizes(shape)), shape)

    def _volume(self, kind: _Images, images: relax.Expr, shape: list[int]) -> relax.Expr:
        ordered = relax.op.reshape(self.emit(images), [shape[axis] for axis in kind.order])
        return relax.op.permute_dims(self.emit(ordered), kind.volume_axes())


def _axes(call: relax.Call, elements: Sequence[int]) -> list[_Axis]:
    """A window of so many elements along depth, height and width."""
    strides, dilation, padding = (ir.integers_of(call.attrs, each) for each in ("strides", "dilation", "padding"))
    return [_Axis(int(elements[i]), strides[i], dilation[i], padding[i], padding[3 + i]) for i in range(3)]


def _padding(axes: Sequence[_Axis]) -> list[int]:
    return [*(each.before for each in axes), *(each.behind for each in axes)]


def _convolved(image: relax.Expr, weights: np.ndarray, axes: Sequence[_Axis], groups: int, dtype: str) -> relax.Call:
    strides, dilation = [each.stride for each in axes], [each.dilation for each in axes]
    return relax.op.nn.conv2d(image, ir.constant(weights), strides, _padding(axes), dilation, groups, out_dtype=dtype)


def _pooled(pool: Any, image: relax.Expr, axes: Sequence[_Axis], **others: Any) -> relax.Call:
    sizes, strides, dilation = ([getattr(each, name) for each in axes] for name in ("elements", "stride", "dilation"))
    return pool(image, sizes, strides, _padding(axes), dilation, layout="NHWC", **others)


def _elements_that_read(axis: _Axis, size: int, results: int) -> list[int]:
    """The elements of a kernel that meet a value somewhere along an axis; one at least."""

    def meets(element: int) -> bool:
        first = element * axis.dilation - axis.before
        return any(0 <= first + result * axis.stride < size for result in range(results))

    return [element for element in range(axis.elements) if meets(element)] or [0]


lift_volumes = _Lifter.rewritten
