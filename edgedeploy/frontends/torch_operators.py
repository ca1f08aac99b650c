"""Operators of PyTorch that reach the compiler whole, as ONNX has them, where PyTorch would write them out.

What they compute: `torch.nn.functional.linear`, `torch.matmul` and `torch.nn.functional.scaled_dot_product_attention`;
arguments as in ATen's native_functions.yaml.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import shape_of
from edgedeploy.frontends import torch_quantised, torch_recurrent
from edgedeploy.frontends.onnx_operators.translation import Builder

_ATTENTION = "scaled_dot_product_attention.default"

# Written out, the first two are products of matrices between reshapes; all of them are translated as they are.
_WHOLE = ("linear.default", "matmul.default", *torch_recurrent.OPERATORS)


def decomposed(program: Any) -> Any:
    """An exported program in ATen's core operators, but for those that are translated whole.

    Raises:
        ModelError: a recurrent layer cannot be translated.
    """
    import torch

    torch_recurrent.check(program)
    attention = [node for node in program.graph.nodes if getattr(node.target, "__name__", "") == _ATTENTION]
    table = torch.export.default_decompositions()
    for name in (*_WHOLE, *([_ATTENTION] if all(map(_is_plain, attention)) else [])):
        packet, overload = name.split(".")
        table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
    return program.run_decompositions(table)


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


CONVERSIONS = {**torch_quantised.CONVERSIONS, **torch_recurrent.CONVERSIONS, _ATTENTION: _attention}
