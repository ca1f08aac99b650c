"""Fused operators written out as ONNX's basic ones: Attention, and those of onnxruntime's own domain.

onnxruntime's graph optimisations put the latter into a file (`session.optimized_model_filepath`, Olive, the transformer
optimiser); onnxruntime's docs/ContribOperators.md defines them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from onnx import TensorProto

from edgedeploy.frontends.onnx.nodes import NodeBuilder, Writer

DOMAIN = "com.microsoft"

# Attributes of Attention that are understood at their default only.
_DEFAULTS = {"softcap": 0.0, "left_window_size": -1, "right_window_size": -1}


def plain_attention(build: NodeBuilder) -> Sequence[str] | None:
    """Attention as two products and a softmax: softmax(Q scale Kᵀ + mask) V; heads may share keys and values.

    Past keys and values are joined before the others, and are returned with them as further outputs. Rows that the mask
    hides entirely are zeros. None if it has a soft cap, lengths for each row of a batch or scores as outputs: ONNX's
    own function covers these, and is slower.
    """
    given, first, mask = build.attributes, build.inputs[0], build.optional(3)
    if build.optional(6) or build.wants(3) or bool(build.optional(4)) != bool(build.optional(5)):
        return None
    if any(given.get(name, default) != default for name, default in _DEFAULTS.items()) or "softmax_precision" in given:
        return None
    if mask and build.type(mask) not in (TensorProto.BOOL, build.type(first)):
        return None
    sizes = [build.shape(name) for name in build.inputs[:3]]
    query, key, value = build.inputs[:3]
    folded = len(sizes[0]) == 3
    if folded:  # (batch, rows, heads * width) becomes (batch, heads, rows, width)
        counts = [given.get("q_num_heads", 0), *[given.get("kv_num_heads", 0)] * 2]
        if not all(counts):
            return None
        split = [[size[0], size[1], count, size[2] // count] for size, count in zip(sizes, counts, strict=True)]
        query, key, value = (
            build.add("Transpose", build.reshape(name, shape), perm=[0, 2, 1, 3])
            for name, shape in zip(build.inputs[:3], split, strict=True)
        )
        sizes = [[batch, count, rows, width] for batch, rows, count, width in split]
    (batch, heads, rows, width), (_, shared, columns, _), (_, _, _, value_width) = sizes
    past = build.shape(build.optional(4))[2] if build.optional(4) else 0
    if heads % shared or (mask and build.shape(mask)[-1] != past + columns):  # the mask hides the rest
        return None
    if past:
        key = build.add("Concat", build.optional(4), key, axis=2)
        value = build.add("Concat", build.optional(5), value, axis=2)
    present = [build.add("Identity", each) if build.wants(place) else "" for place, each in ((1, key), (2, value))]
    grouped = [batch, shared, heads // shared * rows]  # heads that share keys are rows of one matrix
    query = build.add("Mul", query, build.weight(given.get("scale") or width**-0.5, first))
    if heads > shared:
        query = build.reshape(query, [*grouped, width])
    scores = build.add("MatMul", query, build.add("Transpose", key, perm=[0, 1, 3, 2]))
    added, hidden = _mask(build, rows, columns, past)
    if added:
        if heads > shared:
            scores = build.reshape(scores, [batch, heads, rows, past + columns])
        scores = build.add("Add", scores, added)
    weights = build.add("Softmax", scores, axis=-1)
    if added and heads > shared:
        weights = build.reshape(weights, [*grouped, past + columns])
    made = build.add("MatMul", weights, value)
    if heads > shared:
        made = build.reshape(made, [batch, heads, rows, value_width])
    if hidden:
        made = build.add("Where", hidden, build.weight(0, first), made)
    if folded:
        made = build.reshape(build.add("Transpose", made, perm=[0, 2, 1, 3]), [batch, rows, heads * value_width])
    return [made, *present]


def _mask(build: NodeBuilder, rows: int, columns: int, past: int) -> tuple[str, str]:
    """The values to add to the scores, and which of their rows are hidden; empty names for none."""
    query, mask, added = build.inputs[0], build.optional(3), ""
    if mask:
        lowest = build.weight(-np.inf, query)
        is_bool = build.type(mask) == TensorProto.BOOL
        added = build.add("Where", mask, build.weight(0, query), lowest) if is_bool else mask
    if build.attributes.get("is_causal"):
        causal = build.weight(np.where(np.tri(rows, past + columns, past, dtype=bool), 0, -np.inf), query)
        added = build.add("Add", added, causal) if added else causal
    if not mask:
        return added, ""
    most = build.add("ReduceMax", added, build.weight([-1]), keepdims=1)
    return added, build.add("Equal", most, lowest)


# Names of the parameters of activations that are fused into an operator.
_PARAMETERS = {"Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}


def _activated(build: NodeBuilder, data: str, activation: str, parameters: Sequence[float]) -> Sequence[str] | None:
    if not activation:
        return [data]
    if activation == "Clip" and len(parameters) == 2:
        return [build.add("Clip", data, *(build.weight(each, build.inputs[0]) for each in parameters))]
    names = _PARAMETERS.get(activation)
    if names is None or len(parameters) not in (0, len(names)):
        return None
    return [build.add(activation, data, **dict(zip(names, parameters, strict=False)))]


def _fused_conv(build: NodeBuilder) -> Sequence[str] | None:
    """FusedConv: Conv, Add of a fourth input, activation."""
    activation, parameters = build.pop_text("activation"), build.attributes.pop("activation_params", [])
    made = build.add("Conv", *filter(None, build.inputs[:3]), **build.attributes)
    made = build.add("Add", made, build.optional(3)) if build.optional(3) else made
    return _activated(build, made, activation, parameters)


def _fused_gemm(build: NodeBuilder) -> Sequence[str] | None:
    activation, given = build.pop_text("activation"), build.attributes
    parameters = [given.pop(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")]
    names = _PARAMETERS.get(activation, ())
    made = build.add("Gemm", *build.inputs, **given)
    return _activated(build, made, activation, [each for each in parameters[: len(names)] if each is not None])


def _fused_matmul(build: NodeBuilder) -> Sequence[str] | None:
    """FusedMatMul and TransposeMatMul: alpha A B, each of which may be transposed."""
    given = build.attributes
    if given.get("transBatchA") or given.get("transBatchB"):
        return None
    sides = []
    for name, flag in zip(build.inputs, ("transA", "transB"), strict=True):
        rank = len(build.shape(name))
        order = [*range(rank - 2), rank - 1, rank - 2]
        turned = given.get(flag) and rank > 1
        sides.append(build.add("Transpose", name, perm=order) if turned else name)
    made = build.add("MatMul", *sides)
    alpha = given.get("alpha", 1.0)
    return [made if alpha == 1 else build.add("Mul", made, build.weight(alpha, build.inputs[0]))]


def _gelu(build: NodeBuilder) -> Sequence[str] | None:
    """x (1 + curve(x)) / 2, x being a sum with a bias if there is one.

    The curve of Gelu and BiasGelu is erf(x / sqrt(2)), that of FastGelu tanh(sqrt(2 / pi) (x + 0.044715 x^3)).
    """
    first = build.inputs[0]
    data = build.add("Add", first, build.optional(1)) if build.optional(1) else first
    if build.operator == "FastGelu":
        cube = build.add("Mul", build.add("Mul", data, data), data)
        inner = build.add("Add", data, build.add("Mul", cube, build.weight(0.044715, first)))
        curve = build.add("Tanh", build.add("Mul", inner, build.weight((2 / np.pi) ** 0.5, first)))
    else:
        curve = build.add("Erf", build.add("Mul", data, build.weight(0.5**0.5, first)))
    half = build.add("Mul", data, build.weight(0.5, first))
    return [build.add("Mul", half, build.add("Add", curve, build.weight(1, first)))]


def _skip_normalisation(operator: str, beta: int | None, build: NodeBuilder) -> Sequence[str] | None:
    """A sum, perhaps with a bias, that an operator normalises; the sum is the fourth output.

    `beta` is the place of the shift among the inputs, which the bias follows; None without one.
    """
    if build.wants(1) or build.wants(2):  # mean and deviation, of training
        return None
    total = build.add("Add", *build.inputs[:2])
    bias = build.optional(3 if beta is None else beta + 1)
    total = build.add("Add", total, bias) if bias else total
    shift = [build.optional(beta)] if beta is not None and build.optional(beta) else []
    epsilon = build.attributes.get("epsilon", 1e-12)
    return [build.add(operator, total, build.inputs[2], *shift, axis=-1, epsilon=epsilon), "", "", total]


def _packed_product(build: NodeBuilder) -> Sequence[str] | None:
    """MatMulNBits: a, b of outputs x blocks x bytes, scales, zero points, order of groups, bias; low bits come first.

    The weights are constants, so that they are unpacked and scaled once, when the network is imported.
    """
    bits, block, inputs, outputs = (build.attributes.get(name, 0) for name in ("bits", "block_size", "K", "N"))
    if bits not in (2, 4, 8) or min(block, inputs, outputs) < 1 or build.optional(4):
        return None
    blocks = math.ceil(inputs / block)
    values = _unpacked(build, build.inputs[1], bits, [outputs, blocks, block])
    values = build.add("Sub", values, _zero_points(build, bits, outputs, blocks))
    values = build.add("Mul", values, build.reshape(build.cast(build.inputs[2]), [outputs, blocks, 1]))
    rows = build.reshape(values, [outputs, blocks * block])
    rows = build.add("Slice", rows, build.weight([0]), build.weight([inputs]), build.weight([1]))
    matrix = build.add("Cast", build.add("Transpose", rows, perm=[1, 0]), to=build.type(build.inputs[0]))
    made = build.add("MatMul", build.inputs[0], matrix)
    return [build.add("Add", made, build.optional(5)) if build.optional(5) else made]


def _zero_points(build: NodeBuilder, bits: int, outputs: int, blocks: int) -> str:
    """One for each block; the middle of the range by default."""
    zeros, shape = build.optional(3), [outputs, blocks, 1]
    if not zeros:
        return build.weight(2 ** (bits - 1), dtype="float32")
    if build.type(zeros) != TensorProto.UINT8:
        return build.reshape(build.cast(zeros), shape)
    whole = math.ceil(blocks * bits / 8) * 8 // bits
    found = _unpacked(build, zeros, bits, [outputs, whole])
    found = build.add("Slice", found, build.weight([0]), build.weight([blocks]), build.weight([1]))
    return build.reshape(found, shape)


def _unpacked(build: NodeBuilder, packed: str, bits: int, shape: Sequence[int]) -> str:
    """The integers in packed bytes, lowest bits first, as float32 in a shape."""
    count = 8 // bits
    data = build.reshape(build.cast(packed), [*shape[:-1], math.ceil(shape[-1] / count), 1])
    steps = build.weight(2.0 ** (-bits * np.arange(count)), dtype="float32")
    shifted = build.add("Floor", build.add("Mul", data, steps))
    return build.reshape(build.add("Mod", shifted, build.weight(2.0**bits, dtype="float32"), fmod=1), shape)


CONTRIB: dict[str, Writer] = {
    "BiasGelu": _gelu,
    "FastGelu": _gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu,
    "MatMulNBits": _packed_product,
    "SkipLayerNormalization": partial(_skip_normalisation, "LayerNormalization", 3),
    "SkipSimplifiedLayerNormalization": partial(_skip_normalisation, "SimplifiedLayerNormalization", None),
    "TransposeMatMul": _fused_matmul,
}
