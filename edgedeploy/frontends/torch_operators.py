"""Operators of PyTorch that reach the compiler whole, as ONNX has them, where PyTorch would write them out.

What they compute: `torch.nn.functional.linear`, `torch.matmul`, `torch.nn.functional.scaled_dot_product_attention`, the
poolings of `torch.nn.functional` that TVM's importer reads in part, and binary operators on two dtypes; arguments as in
ATen's native_functions.yaml.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import constant, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends import torch_indexing, torch_quantised, torch_recurrent
from edgedeploy.frontends.onnx_operators.translation import Builder, dtype_of
from edgedeploy.frontends.onnx_operators.windows import places_of_maxima

_ATTENTION = "scaled_dot_product_attention.default"

# Written out, the first two are products of matrices between reshapes; all of them are translated as they are.
_WHOLE = ("linear.default", "matmul.default", *torch_recurrent.OPERATORS)


def decomposed(program: Any) -> Any:
    """An exported program in ATen's core operators, but for those that are translated whole."""
    import torch

    torch_recurrent.check(nodes_of(program))
    attention = [node for node in nodes_of(program) if getattr(node.target, "__name__", "") == _ATTENTION]
    table = torch.export.default_decompositions()
    for name in (*_WHOLE, *([_ATTENTION] if all(map(_is_plain, attention)) else [])):
        packet, overload = name.split(".")
        table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
    program = program.run_decompositions(table)
    signature = program.graph_signature
    if signature.buffers_to_mutate:
        names = ", ".join(map(repr, signature.buffers_to_mutate.values()))
        raise ModelError(
            f"the network changes its buffer {names}",
            why="what it gives would depend on the inferences before, and a package keeps no such state",
            hints=["make the buffer an input and an output of the network, and export it again"],
        )
    _promote(program)
    return program


def nodes_of(program: Any) -> Iterator[Any]:
    """The nodes of a program and of regions inside of it, such as those of `torch.no_grad()`."""
    for module in program.graph_module.modules():
        yield from module.graph.nodes if hasattr(module, "graph") else ()


# Operators of two tensors or numbers, which PyTorch brings to one dtype first; comparisons give booleans.
_ARITHMETIC = ("add", "sub", "rsub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "atan2", "logaddexp")
_BINARY = (*_ARITHMETIC, "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ne", "lt", "le", "gt")
# Which arguments are operands.
_OPERANDS = {**dict.fromkeys((*_BINARY, "ge"), (0, 2)), "where": (1, 3), "clamp": (0, 3)}


def _promote(program: Any) -> None:
    """Bring the operands of binary operators to the dtype that PyTorch computes in, and write their factor out."""
    import torch

    graph, cast, times = program.graph, torch.ops.aten._to_copy.default, torch.ops.aten.mul.Tensor

    def inserted(target: Any, arguments: tuple[Any, ...], value: Any, **settings: Any) -> Any:
        made = graph.call_function(target, arguments, settings)
        made.meta["val"] = value
        return made

    for node in list(graph.nodes):
        name = getattr(node.target, "_opname", "") if node.op == "call_function" else ""
        if name not in _OPERANDS:
            continue
        first, end = _OPERANDS[name]
        operands = list(node.args[first:end])
        values = [each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in operands]
        result = node.meta["val"].dtype
        dtype = torch.result_type(*values) if result is torch.bool else result
        alpha = node.kwargs.get("alpha", 1)
        with graph.inserting_before(node):
            for place, value in enumerate(values):
                if not isinstance(value, torch.Tensor):
                    number = value * alpha if place and alpha != 1 else value
                    operands[place] = float(number) if dtype.is_floating_point and number is not None else number
                    continue
                if value.dtype is not dtype:
                    operands[place] = inserted(cast, (operands[place],), value.to(dtype), dtype=dtype)
                if place and alpha != 1:
                    operands[place] = inserted(times, (operands[place], alpha), value.to(dtype))
        if result is torch.bool and name in ("add", "mul"):
            node.target = getattr(torch.ops.aten, {"add": "bitwise_or", "mul": "bitwise_and"}[name]).Tensor
        node.args = (*node.args[:first], *operands, *node.args[end:])
        node.kwargs = {name: value for name, value in node.kwargs.items() if name != "alpha"}
    program.graph_module.recompile()


def _divide(node: Any, importer: Any) -> Any:
    """Division whose quotient is rounded; both operands are of one dtype."""
    one, other = importer.retrieve_args(node)
    mode = node.kwargs.get("rounding_mode")
    build = Builder(SimpleNamespace(bb=importer.block_builder))
    if mode == "floor":
        return importer.block_builder.emit(build.floor_divide(one, other))
    made = build.divide(one, other)
    return importer.block_builder.emit(made if mode is None or "int" in dtype_of(made) else build.trunc(made))


def _extreme(operator: str) -> Any:
    """The largest or smallest values over some axes, all of them by default."""

    def convert(node: Any, importer: Any) -> Any:
        data, axes, keepdims = _settings(node, importer, [], False)
        build = Builder(SimpleNamespace(bb=importer.block_builder))
        axes = [axes] if isinstance(axes, int) else list(axes) or list(range(len(shape_of(data))))
        return importer.block_builder.emit(build.reduce(operator, data, axes, keepdims=keepdims))

    return convert


def _settings(node: Any, importer: Any, *defaults: Any) -> tuple[Any, ...]:
    """The data and what follows it; those of one number are given for every axis, and what is left out by default."""
    data, *given = importer.retrieve_args(node)
    return data, *given, *defaults[len(given) :]


def _each(setting: Any, rank: int) -> list[int]:
    """One number for each axis that windows run over."""
    values = [setting] if isinstance(setting, int) else list(setting)
    return values * rank if len(values) == 1 else values


def _average_pool(rank: int) -> Any:
    """Averages over windows, of which `divisor_override` makes sums divided by another number than their size."""

    def convert(node: Any, importer: Any) -> Any:
        data, kernel, strides, padding, ceil, counted, divisor = _settings(
            node, importer, None, None, 0, False, True, None
        )
        emit, inner = importer.block_builder.emit, getattr(importer, f"_avg_pool{rank}d_impl")
        if divisor is None:
            return inner(data, kernel, strides, padding, ceil, counted)
        kernel = _each(kernel, rank)
        strides, begins = _each(strides or kernel, rank), _each(padding, rank)
        counts = node.meta["val"].shape[-rank:]
        rows = zip(counts, strides, kernel, shape_of(data)[-rank:], begins, strict=True)
        ends = [max((count - 1) * stride + size - whole - begin, 0) for count, stride, size, whole, begin in rows]
        widths = [0, 0] * (len(shape_of(data)) - rank)
        widths += [width for pair in zip(begins, ends, strict=True) for width in pair]
        padded = emit(relax.op.nn.pad(data, widths)) if any(widths) else data
        averages = inner(padded, kernel, strides, 0, False, True)
        return emit(relax.op.multiply(averages, constant(math.prod(kernel) / divisor, dtype_of(data))))

    return convert


def _max_pool(rank: int) -> Any:
    """Maxima of windows, and where they lie if anybody asks."""

    def convert(node: Any, importer: Any) -> Any:
        data, kernel, strides, padding, gaps, ceil = _settings(node, importer, None, None, 0, 1, False)
        maxima = getattr(importer, f"_max_pool{rank}d_impl")(data, kernel, strides, padding, gaps, ceil)
        kernel, begins, gaps = (_each(setting, rank) for setting in (kernel, padding, gaps))
        return maxima, _places(node, importer, data, kernel, _each(strides or kernel, rank), begins, gaps)

    return convert


def _places(
    node: Any,
    importer: Any,
    data: Any,
    kernel: Sequence[int],
    strides: Sequence[int],
    begins: Sequence[int],
    gaps: Sequence[int],
) -> Any:
    """The second output of a pooling, None if nobody reads it."""
    if all(user.args[1] == 0 for user in node.users):
        return None
    builder, rank = importer.block_builder, len(kernel)
    build = Builder(SimpleNamespace(bb=builder))
    counts = [int(size) for size in node.meta["val"][1].shape]
    batched = build.reshape(data, [1] * (2 + rank - len(counts)) + shape_of(data))
    found = places_of_maxima(SimpleNamespace(bb=builder), batched, kernel, strides, begins, gaps, counts[-rank:])
    return builder.emit(build.reshape(found, counts))


def _adaptive_max_pool(rank: int) -> Any:
    """Maxima over as many windows as are asked for; where they do not divide an axis, neighbours share values."""

    def convert(node: Any, importer: Any) -> Any:
        data, counts = importer.retrieve_args(node)
        builder = importer.block_builder
        build = Builder(SimpleNamespace(bb=builder))
        sizes = shape_of(data)[-rank:]
        counts = [size if count is None else int(count) for size, count in zip(sizes, _each(counts, rank), strict=True)]
        if not any(size % count for size, count in zip(sizes, counts, strict=True)):
            kernel = [size // count for size, count in zip(sizes, counts, strict=True)]
            maxima = getattr(importer, f"_max_pool{rank}d_impl")(data, kernel, kernel)
            return maxima, _places(node, importer, data, kernel, kernel, [0] * rank, [1] * rank)
        if any(user.args[1] != 0 for user in node.users):
            raise ModelError(
                "adaptive pooling gives the places of its maxima",
                why=f"windows of many sizes, {counts} of {sizes}, have no such translation",
            )
        made = data
        for axis, (size, count) in enumerate(zip(sizes, counts, strict=True), len(shape_of(data)) - rank):
            parts = []
            for number in range(count):
                begin, end = number * size // count, -(-(number + 1) * size // count)
                part = build.strided_slice(made, axes=[axis], begin=[begin], end=[end])
                parts.append(build.reduce("max", part, [axis], keepdims=True))
            made = build.concat(parts, axis=axis) if count > 1 else parts[0]
        return builder.emit(made), None

    return convert


def _is_plain(node: Any) -> bool:
    """Whether attention has no mask but that of causality; PyTorch gives zeros for what others mask wholly."""
    masked = len(node.args) > 3 and node.args[3] is not None
    return not masked and node.kwargs.get("attn_mask") is None and not node.kwargs.get("enable_gqa")


def _attention(node: Any, importer: Any) -> Any:
    """softmax(Q K^T scale) V."""
    query, key, value, _, _, causal = (*importer.retrieve_args(node), None, 0.0, False)[:6]
    build = Builder(SimpleNamespace(bb=importer.block_builder))
    *_, rows, size = shape_of(query)
    scale = node.kwargs.get("scale") or 1 / math.sqrt(size)
    axes = list(range(len(shape_of(key))))
    turned = build.permute(key, [*axes[:-2], axes[-1], axes[-2]])
    scores = build.matmul(build.multiply(query, scale), turned)
    if causal or node.kwargs.get("is_causal"):
        scores = build.add(scores, np.triu(np.full((rows, shape_of(key)[-2]), -np.inf), 1))
    weights = importer.block_builder.emit(relax.op.nn.softmax(scores, axis=-1))
    return importer.block_builder.emit(build.matmul(weights, value))


CONVERSIONS = {
    **torch_indexing.CONVERSIONS,
    **torch_quantised.CONVERSIONS,
    **torch_recurrent.CONVERSIONS,
    _ATTENTION: _attention,
    "amax.default": _extreme("max"),
    "amin.default": _extreme("min"),
    "div.Tensor_mode": _divide,
    **{f"avg_pool{rank}d.default": _average_pool(rank) for rank in (1, 2, 3)},
    **{f"max_pool{rank}d_with_indices.default": _max_pool(rank) for rank in (1, 2, 3)},
    **{f"adaptive_max_pool{rank}d.default": _adaptive_max_pool(rank) for rank in (1, 2, 3)},
}
