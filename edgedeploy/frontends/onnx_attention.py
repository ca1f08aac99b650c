"""ONNX's Attention as two products and a softmax, which are quick, with what a mask adds between them.

With a soft cap, lengths for each row of a batch or scores as outputs it becomes what ONNX says that it is a function
of, with much beside them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from edgedeploy.frontends.onnx_written import Written

# Those that are understood here, with what they are by default.
_DEFAULTS = {"softcap": 0.0, "left_window_size": -1, "right_window_size": -1}


def plain_attention(written: Written) -> Sequence[str] | None:
    """softmax(Q scale Kᵀ + mask) V, of heads that may share keys and values; None of anything else.

    Keys and values of the past come before the others, and all of them are the outputs behind the first. Rows of which
    the mask lets nothing pass are zeros.
    """
    given = written.attributes
    if written.given(6) or written.wants(3) or bool(written.given(4)) != bool(written.given(5)):
        return None
    if any(given.get(name, default) != default for name, default in _DEFAULTS.items()) or "softmax_precision" in given:
        return None
    if written.given(3) and written.type(written.given(3)) not in (TensorProto.BOOL, written.type(written.inputs[0])):
        return None
    folded = len(written.shape(written.inputs[0])) == 3
    counts = [given.get("q_num_heads", 0), *[given.get("kv_num_heads", 0)] * 2]
    if folded and not all(counts):
        return None
    sizes = [written.shape(name) for name in written.inputs[:3]]
    query, key, value = written.inputs[:3]
    if folded:
        pairs = list(zip(written.inputs[:3], counts, strict=True))
        sizes = [_split_shape(written.shape(name), count) for name, count in pairs]
        query, key, value = (_split(written, name, count) for name, count in pairs)
    (batch, heads, rows, width), (_, kept, columns, _), (_, _, _, wide) = sizes
    if heads % kept:
        return None
    past = written.shape(written.given(4))[2] if written.given(4) else 0
    if written.given(3) and written.shape(written.given(3))[-1] != past + columns:  # the rest is hidden
        return None
    if past:
        key, value = (
            written.add("Concat", written.given(place), each, axis=2) for place, each in ((4, key), (5, value))
        )
    present = [written.add("Identity", each) if written.wants(place) else "" for place, each in ((1, key), (2, value))]
    query = written.add("Mul", query, written.weight(given.get("scale") or width**-0.5, written.inputs[0]))
    if heads > kept:  # heads that share keys lie one below the other
        query = written.add("Reshape", query, written.weight([batch, kept, heads // kept * rows, width]))
    scores = written.add("MatMul", query, written.add("Transpose", key, perm=[0, 1, 3, 2]))
    added, hidden = _mask(written, rows, columns, past)
    if added:
        if heads > kept:
            scores = written.add("Reshape", scores, written.weight([batch, heads, rows, past + columns]))
        scores = written.add("Add", scores, added)
    weights = written.add("Softmax", scores, axis=-1)
    if added and heads > kept:
        weights = written.add("Reshape", weights, written.weight([batch, kept, heads // kept * rows, past + columns]))
    made = written.add("MatMul", weights, value)
    if heads > kept:
        made = written.add("Reshape", made, written.weight([batch, heads, rows, wide]))
    if hidden:
        made = written.add("Where", hidden, written.weight(0, written.inputs[0]), made)
    if folded:
        made = written.add("Transpose", made, perm=[0, 2, 1, 3])
        made = written.add("Reshape", made, written.weight([batch, rows, heads * wide]))
    return [made, *present]


def _mask(written: Written, rows: int, columns: int, past: int) -> tuple[str, str]:
    """What is added to scores, and which of their rows it hides; empty names where there is none."""
    query, mask = written.inputs[0], written.given(3)
    added = ""
    if mask:
        lowest = written.weight(-np.inf, query)
        truths = written.type(mask) == TensorProto.BOOL
        added = written.add("Where", mask, written.weight(0, query), lowest) if truths else mask
    if written.attributes.get("is_causal"):
        seen = np.tri(rows, past + columns, past, dtype=bool)
        causal = written.weight(np.where(seen, 0, -np.inf), query)
        added = written.add("Add", added, causal) if added else causal
    if not mask:
        return added, ""
    most = written.add("ReduceMax", added, written.weight([-1]), keepdims=1)
    return added, written.add("Equal", most, lowest)


def _split_shape(shape: Sequence[int], heads: int) -> list[int]:
    batch, rows, width = shape
    return [batch, heads, rows, width // heads]


def _split(written: Written, name: str, heads: int) -> str:
    """(batch, rows, heads * width) as (batch, heads, rows, width)."""
    batch, heads, rows, width = _split_shape(written.shape(name), heads)
    apart = written.add("Reshape", name, written.weight([batch, rows, heads, width]))
    return written.add("Transpose", apart, perm=[0, 2, 1, 3])
