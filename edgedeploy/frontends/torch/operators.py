"""Operators of PyTorch in Relax, where TVM's importer lacks them, errs, or PyTorch would write them out.

What they compute: `torch.nn.functional`, ATen's native_functions.yaml, and for quantised values the library
`quantized_decomposed` (torchao's `convert_pt2e`), in PyTorch's `torch/ao/quantization/fx/_decomposed.py`. PyTorch
multiplies by the inverse of a scale, where ONNX and the compiler divide: values between two steps may go to the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.ir.expressions import constant, shape_of
from edgedeploy.compile.operators.recurrence import Activation, Cell, Recurrence
from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx.operators.windows import places_of_maxima
from edgedeploy.frontends.translation import Builder, dtype_of, recurrent

# The cell of each operator, the places of ONNX's gates among PyTorch's, and the activations.
RECURRENT: dict[str, tuple[Cell, list[int], tuple[str, ...]]] = {
    "lstm.input": ("lstm", [0, 3, 1, 2], ("sigmoid", "tanh", "tanh")),
    "gru.input": ("gru", [1, 0, 2], ("sigmoid", "tanh")),
    "rnn_tanh.input": ("rnn", [0], ("tanh",)),
    "rnn_relu.input": ("rnn", [0], ("relu",)),
}


def _emitted(translate: Callable[[Any, Any, Builder], Any], node: Any, importer: Any) -> Any:
    """The results of a translation, bound to variables, as TVM's importer expects."""
    made = translate(node, importer, Builder(importer))
    emit = importer.block_builder.emit
    every = made if isinstance(made, tuple) else (made,)
    bound = tuple(each if each is None or isinstance(each, relax.Var) else emit(each) for each in every)
    return bound if isinstance(made, tuple) else bound[0]


def _divide(node: Any, importer: Any, build: Builder) -> Any:
    """Division whose quotient is rounded; both operands are of one dtype."""
    one, other = importer.retrieve_args(node)
    mode = node.kwargs.get("rounding_mode")
    if mode == "floor":
        return build.floor_divide(one, other)
    made = build.divide(one, other)
    return made if mode is None or "int" in dtype_of(made) else build.trunc(made)


def _extreme(operator: str, node: Any, importer: Any, build: Builder) -> Any:
    """The largest or smallest values over some axes, by default all."""
    data, axes, keepdims = _settings(node, importer, [], False)
    axes = [axes] if isinstance(axes, int) else list(axes) or list(range(len(shape_of(data))))
    return build.reduce(operator, data, axes, keepdims=keepdims)


def _settings(node: Any, importer: Any, *defaults: Any) -> tuple[Any, ...]:
    """The data and the arguments after it, with defaults for those left out."""
    data, *given = importer.retrieve_args(node)
    return data, *given, *defaults[len(given) :]


def _each(setting: Any, rank: int) -> list[int]:
    """A setting for each axis that windows run over, which may be given as one number."""
    values = [setting] if isinstance(setting, int) else list(setting)
    return values * rank if len(values) == 1 else values


def _average_pool(rank: int, node: Any, importer: Any, build: Builder) -> Any:
    """Averages over windows; with `divisor_override`, sums divided by another number than their size."""
    data, kernel, strides, padding, ceil, counted, divisor = _settings(node, importer, None, None, 0, False, True, None)
    inner = getattr(importer, f"_avg_pool{rank}d_impl")
    if divisor is None:
        return inner(data, kernel, strides, padding, ceil, counted)
    kernel = _each(kernel, rank)
    strides, begins = _each(strides or kernel, rank), _each(padding, rank)
    counts = node.meta["val"].shape[-rank:]
    rows = zip(counts, strides, kernel, shape_of(data)[-rank:], begins, strict=True)
    ends = [max((count - 1) * stride + size - whole - begin, 0) for count, stride, size, whole, begin in rows]
    widths = [0, 0] * (len(shape_of(data)) - rank)
    widths += [width for pair in zip(begins, ends, strict=True) for width in pair]
    padded = build.bind(relax.op.nn.pad(data, widths)) if any(widths) else data
    return build.multiply(build.bind(inner(padded, kernel, strides, 0, False, True)), math.prod(kernel) / divisor)


def _max_pool(rank: int, node: Any, importer: Any, build: Builder) -> Any:
    """Maxima of windows, and their places if a node reads them."""
    data, kernel, strides, padding, gaps, ceil = _settings(node, importer, None, None, 0, 1, False)
    maxima = getattr(importer, f"_max_pool{rank}d_impl")(data, kernel, strides, padding, gaps, ceil)
    kernel, begins, gaps = (_each(setting, rank) for setting in (kernel, padding, gaps))
    return maxima, _places(node, build, data, (kernel, _each(strides or kernel, rank), begins, gaps))


def _places(node: Any, build: Builder, data: Any, windows: tuple[list[int], list[int], list[int], list[int]]) -> Any:
    """The second output of a pooling, None if unread; `windows` are kernel, strides, padding before, dilations."""
    if all(user.args[1] == 0 for user in node.users):
        return None
    rank, counts = len(windows[0]), [int(size) for size in node.meta["val"][1].shape]
    batched = build.reshape(data, [1] * (2 + rank - len(counts)) + shape_of(data))
    return build.reshape(places_of_maxima(build, batched, *windows, counts[-rank:]), counts)


def _adaptive_max_pool(rank: int, node: Any, importer: Any, build: Builder) -> Any:
    """Maxima over a stated number of windows; if these do not divide an axis, neighbours share values."""
    data, counts = importer.retrieve_args(node)
    sizes = shape_of(data)[-rank:]
    counts = [size if count is None else int(count) for size, count in zip(sizes, _each(counts, rank), strict=True)]
    if not any(size % count for size, count in zip(sizes, counts, strict=True)):
        kernel = [size // count for size, count in zip(sizes, counts, strict=True)]
        maxima = getattr(importer, f"_max_pool{rank}d_impl")(data, kernel, kernel)
        return maxima, _places(node, build, data, (kernel, kernel, [0] * rank, [1] * rank))
    if any(user.args[1] != 0 for user in node.users):
        raise ModelError(
            "adaptive pooling gives the places of its maxima",
            why=f"windows of several sizes, {counts} of {sizes}, have no such translation",
        )
    made = data
    for axis, (size, count) in enumerate(zip(sizes, counts, strict=True), len(shape_of(data)) - rank):
        parts = []
        for number in range(count):
            begin, end = number * size // count, -(-(number + 1) * size // count)
            part = build.strided_slice(made, axes=[axis], begin=[begin], end=[end])
            parts.append(build.reduce("max", part, [axis], keepdims=True))
        made = build.concat(parts, axis=axis) if count > 1 else parts[0]
    return made, None


def _attention(node: Any, importer: Any, build: Builder) -> Any:
    """softmax(Q K^T scale) V."""
    query, key, value, _, _, causal = (*importer.retrieve_args(node), None, 0.0, False)[:6]
    *_, rows, size = shape_of(query)
    scale = node.kwargs.get("scale") or 1 / math.sqrt(size)
    axes = list(range(len(shape_of(key))))
    turned = build.permute(key, [*axes[:-2], axes[-1], axes[-2]])
    scores = build.matmul(build.multiply(query, scale), turned)
    if causal or node.kwargs.get("is_causal"):
        scores = build.add(scores, np.triu(np.full((rows, shape_of(key)[-2]), -np.inf), 1))
    return build.matmul(build.bind(relax.op.nn.softmax(scores, axis=-1)), value)


class _Places:
    """The places that indices of some axes refer to, as in numpy's advanced indexing; these axes come first meanwhile.

    An index of None is the whole axis.
    """

    def __init__(self, build: Builder, data: Any, indices: Sequence[Any]) -> None:
        self.axes = [axis for axis, index in enumerate(indices) if index is not None]  # those with an index
        given = [indices[axis] for axis in self.axes]
        if any(dtype_of(index) == "bool" for index in given):
            raise ModelError(
                "a mask selects what is read or written",
                why="the number of values depends on the network's input",
                hints=["export the network with torch.where in its place"],
            )
        self._data, self._build = data, build
        sizes = shape_of(data)
        self.indices = [self._from_begin(index, sizes[axis]) for axis, index in zip(self.axes, given, strict=True)]
        self.shape = list(np.broadcast_shapes(*(shape_of(index) for index in self.indices)))  # of all indices
        others = [axis for axis in range(len(sizes)) if axis not in self.axes]
        self.order = [*self.axes, *others]
        # The result has the values' axes in their own place if they are neighbours, else before all others.
        together = self.axes == list(range(self.axes[0], self.axes[-1] + 1))
        before = self.axes[0] if together else 0
        rank, every = len(self.shape), len(self.shape) + len(others)
        self.spread = [*range(rank, rank + before), *range(rank), *range(rank + before, every)]
        self.read_shape = [(*self.shape, *(sizes[axis] for axis in others))[axis] for axis in self.spread]

    def _from_begin(self, index: Any, size: int) -> Any:
        """An index from the beginning of its axis; constants are not known as such yet."""
        wide = self._build.cast(index, "int64")
        return self._build.where(self._build.less(wide, 0), self._build.add(wide, size), wide)

    def read(self) -> Any:
        """The values at the places."""
        build = self._build
        if len(self.axes) == 1:
            return build.take(self._data, self.indices[0], self.axes[0])
        return build.permute(build.gather_nd(build.permute(self._data, self.order), self._rows()), self.spread)

    def written(self, values: Any, reduction: str) -> Any:
        """The data with other values at the places."""
        build = self._build
        values = build.permute(build.broadcast_to(values, self.read_shape), np.argsort(self.spread).tolist())
        made = build.scatter_nd(build.permute(self._data, self.order), self._rows(), values, reduction)
        return build.permute(made, np.argsort(self.order).tolist())

    def _rows(self) -> Any:
        """The indices of each place side by side."""
        build, rank = self._build, len(self.shape)
        columns = [build.reshape(build.broadcast_to(index, self.shape), [*self.shape, 1]) for index in self.indices]
        return build.concat(columns, axis=rank) if len(columns) > 1 else columns[0]


def _index_put(node: Any, importer: Any, build: Builder) -> Any:
    """A copy of data with data[indices] = values, or += values."""
    data, indices, values, accumulate = (*importer.retrieve_args(node), False)[:4]
    *whole, last = indices
    if dtype_of(last) == "bool" and all(index is None for index in whole):
        rest = len(shape_of(data)) - len(whole) - len(shape_of(last))
        if np.prod(shape_of(values)) == 1:
            values = build.reshape(values, [])
        if len(shape_of(values)) <= rest:
            mask = build.reshape(last, [*shape_of(last), *[1] * rest])
            return build.where(mask, build.add(data, values) if accumulate else values, data)
    return _Places(build, data, indices).written(values, "add" if accumulate else "update")


def _quantise(node: Any, importer: Any, build: Builder) -> Any:
    """quantize_per_tensor and quantize_per_channel: data, scale, zero point, [axis], least and largest value, dtype."""
    data, scale, zero, axis, (least, largest), dtype = _quantisation(node, importer)
    made = build.quantize(data, scale, zero, axis=axis, out_dtype=dtype)
    limits = np.iinfo(dtype)
    made = made if least == limits.min else build.maximum(made, constant(least, dtype))
    return made if largest == limits.max else build.minimum(made, constant(largest, dtype))


def _dequantise(node: Any, importer: Any, build: Builder) -> Any:
    """dequantize_per_tensor and dequantize_per_channel, whose arguments are those of `_quantise`."""
    data, scale, zero, axis, _, _ = _quantisation(node, importer)
    return build.dequantize(data, scale, zero, axis=axis, out_dtype="float32")


def _quantisation(node: Any, importer: Any) -> tuple[Any, Any, Any, int, tuple[int, int], str]:
    """Data, scale, zero point, axis, least and largest value, dtype."""
    data, scale, zero, *others = importer.retrieve_args(node)
    axis = others.pop(0) if len(others) > 3 else 0
    least, largest, dtype = others
    name = str(dtype).removeprefix("torch.")
    emit = importer.block_builder.emit
    scale, zero = (
        emit(relax.op.astype(value, kind)) if isinstance(value, relax.Expr) else constant(value, kind)
        for value, kind in ((scale, "float32"), (zero, name))
    )
    return data, scale, zero, axis % len(shape_of(data)), (least, largest), name


def _recurrent(node: Any, importer: Any, build: Builder) -> Any:
    """All layers of an operator: its output, and the last states of all layers."""
    cell, order, names = RECURRENT[node.target.__name__]
    data, states, weights, biased, count, _, _, both, by_batch = importer.retrieve_args(node)
    states = list(states) if cell == "lstm" else [states]
    directions, parts = 1 + both, 4 if biased else 2
    if by_batch:
        data = build.permute(data, [1, 0, 2])
    activations = tuple(Activation(name=name) for name in names)
    last: list[list[Any]] = [[] for _ in states]
    for number in range(count):
        steps, batch, _ = shape_of(data)
        layer = Recurrence(
            cell=cell,
            steps=steps,
            batch=batch,
            hidden=shape_of(states[0])[-1],
            backwards=(False, True)[:directions],
            activations=(activations,) * directions,
            reset_after=cell == "gru",
            dtype=dtype_of(data),
        )
        first = number * directions
        taken = [weights[place * parts : (place + 1) * parts] for place in range(first, first + directions)]
        stacked = [_stacked(build, layer, order, [each[part] for each in taken]) for part in range(parts)]
        begun = tuple(build.strided_slice(state, axes=[0], begin=[first], end=[first + directions]) for state in states)
        biases = (stacked[2], stacked[3]) if biased else None
        every, *ended = recurrent(build, layer, data, (stacked[0], stacked[1]), biases, begun)
        data = build.reshape(build.permute(every, [0, 2, 1, 3]), [steps, batch, directions * layer.hidden])
        for found, state in zip(last, ended, strict=True):
            found.append(state)
    output = build.permute(data, [1, 0, 2]) if by_batch else data
    return output, *[each[0] if count == 1 else build.concat(each, axis=0) for each in last]


def _stacked(build: Builder, layer: Recurrence, order: Sequence[int], parts: Sequence[Any]) -> Any:
    """Weights or biases of all directions, with gates in ONNX's order."""
    rows = [gate * layer.hidden for gate in order]
    gates = [
        build.strided_slice(part, axes=[0], begin=[row], end=[row + layer.hidden]) for part in parts for row in rows
    ]
    joined = build.concat(gates, axis=0) if len(gates) > 1 else gates[0]
    return build.reshape(joined, [len(parts), layer.gates * layer.hidden, *shape_of(parts[0])[1:]])


_TRANSLATIONS: dict[str, Callable[[Any, Any, Builder], Any]] = {
    **dict.fromkeys(RECURRENT, _recurrent),
    **dict.fromkeys(("quantize_per_tensor.default", "quantize_per_channel.default"), _quantise),
    **dict.fromkeys(("dequantize_per_tensor.default", "dequantize_per_channel.default"), _dequantise),
    "amax.default": partial(_extreme, "max"),
    "amin.default": partial(_extreme, "min"),
    "div.Tensor_mode": _divide,
    "index.Tensor": lambda node, importer, build: _Places(build, *importer.retrieve_args(node)).read(),
    "index_put.default": _index_put,
    "scaled_dot_product_attention.default": _attention,
    **{f"avg_pool{rank}d.default": partial(_average_pool, rank) for rank in (1, 2, 3)},
    **{f"max_pool{rank}d_with_indices.default": partial(_max_pool, rank) for rank in (1, 2, 3)},
    **{f"adaptive_max_pool{rank}d.default": partial(_adaptive_max_pool, rank) for rank in (1, 2, 3)},
}

CONVERSIONS = {name: partial(_emitted, translate) for name, translate in _TRANSLATIONS.items()}
