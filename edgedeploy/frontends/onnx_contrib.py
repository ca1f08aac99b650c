"""Operators of onnxruntime's own domain, written out as ONNX's.

Its graph optimisations put them into a file (`session.optimized_model_filepath`, Olive, the transformer optimiser).
What they compute: onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgedeploy.frontends.onnx_written import Writer, Written

DOMAIN = "com.microsoft"

# Of activations that are fused into an operator, what its parameters are called.
_PARAMETERS = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}


def _activated(written: Written, data: str, activation: str, parameters: Sequence[float]) -> Sequence[str] | None:
    if not activation:
        return [data]
    if activation == "Clip" and len(parameters) == 2:
        return [written.add("Clip", data, *(written.weight(each, written.inputs[0]) for each in parameters))]
    names = _PARAMETERS.get(activation)
    if names is None or len(parameters) not in (0, len(names)):
        return None
    return [written.add(activation, data, **dict(zip(names, parameters, strict=False)))]


def _fused_conv(written: Written) -> Sequence[str] | None:
    """FusedConv: Conv, Add of a fourth input, activation."""
    activation, parameters = written.word("activation"), written.attributes.pop("activation_params", [])
    made = written.add("Conv", *filter(None, written.inputs[:3]), **written.attributes)
    made = written.add("Add", made, written.given(3)) if written.given(3) else made
    return _activated(written, made, activation, parameters)


def _fused_gemm(written: Written) -> Sequence[str] | None:
    """FusedGemm: Gemm, activation."""
    activation, given = written.word("activation"), written.attributes
    parameters = [given.pop(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")]
    names = _PARAMETERS.get(activation, ())
    made = written.add("Gemm", *written.inputs, **given)
    return _activated(written, made, activation, [each for each in parameters[: len(names)] if each is not None])


def _fused_matmul(written: Written) -> Sequence[str] | None:
    """FusedMatMul and TransposeMatMul: alpha times A B, each perhaps transposed."""
    given = written.attributes
    if given.get("transBatchA") or given.get("transBatchB"):
        return None
    sides = []
    for name, flag in zip(written.inputs, ("transA", "transB"), strict=True):
        rank = len(written.shape(name))
        order = [*range(rank - 2), rank - 1, rank - 2]
        turned = given.get(flag) and rank > 1
        sides.append(written.add("Transpose", name, perm=order) if turned else name)
    made = written.add("MatMul", *sides)
    alpha = given.get("alpha", 1.0)
    return [made if alpha == 1 else written.add("Mul", made, written.weight(alpha, written.inputs[0]))]


def _gelu(written: Written) -> Sequence[str] | None:
    """Gelu and BiasGelu: x (1 + erf(x / sqrt(2))) / 2, of a sum."""
    data, first = written.inputs[0], written.inputs[0]
    data = written.add("Add", data, written.given(1)) if written.given(1) else data
    error = written.add("Erf", written.add("Mul", data, written.weight(0.5**0.5, first)))
    half = written.add("Mul", data, written.weight(0.5, first))
    return [written.add("Mul", half, written.add("Add", error, written.weight(1, first)))]


def _fast_gelu(written: Written) -> Sequence[str] | None:
    """FastGelu: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, of a sum."""
    data, first = written.inputs[0], written.inputs[0]
    data = written.add("Add", data, written.given(1)) if written.given(1) else data
    cube = written.add("Mul", written.add("Mul", data, data), data)
    inner = written.add("Add", data, written.add("Mul", cube, written.weight(0.044715, first)))
    curve = written.add("Tanh", written.add("Mul", inner, written.weight((2 / np.pi) ** 0.5, first)))
    half = written.add("Mul", data, written.weight(0.5, first))
    return [written.add("Mul", half, written.add("Add", curve, written.weight(1, first)))]


def _skip_normalisation(operator: str, beta: int | None) -> Writer:
    """A sum, with a bias perhaps, that is normalised; it is the fourth output.

    Args:
        operator: what normalises.
        beta: the place of its shift among the inputs, if it has one; the bias comes behind it.
    """

    def write(written: Written) -> Sequence[str] | None:
        if written.wants(1) or written.wants(2):  # mean and deviation, of training
            return None
        total = written.add("Add", *written.inputs[:2])
        bias = written.given(3 if beta is None else beta + 1)
        total = written.add("Add", total, bias) if bias else total
        shift = [written.given(beta)] if beta is not None and written.given(beta) else []
        epsilon = written.attributes.get("epsilon", 1e-12)
        made = written.add(operator, total, written.inputs[2], *shift, axis=-1, epsilon=epsilon)
        return [made, "", "", total]

    return write


CONTRIB: dict[str, Writer] = {
    "BiasGelu": _gelu,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu,
    "SkipLayerNormalization": _skip_normalisation("LayerNormalization", 3),
    "SkipSimplifiedLayerNormalization": _skip_normalisation("SimplifiedLayerNormalization", None),
    "TransposeMatMul": _fused_matmul,
}
