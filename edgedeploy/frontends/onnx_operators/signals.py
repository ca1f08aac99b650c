"""Fourier transforms, as products with the matrix of a transform; the result is that of Operators.md, DFT and STFT."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgedeploy.compile.expressions import constant, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx_operators.translation import Builder, Translation, dtype_of, integers, optional


def _dft(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """DFT; its axis is an attribute up to opset 19, then an input."""
    lengths = integers(inputs, 1)
    axes = integers(inputs, 2) if importer.opset >= 20 else [int(attr.get("axis", 1))]
    if any(optional(inputs, index) is not None and integers(inputs, index) is None for index in (1, 2)):
        raise ModelError("its length or axis depends on the network's input")
    rank = len(shape_of(inputs[0]))
    axis = (axes[0] if axes else -2) % rank
    return _transformed(
        Builder(importer),
        inputs[0],
        axis,
        lengths[0] if lengths else None,
        inverse=bool(attr.get("inverse", 0)),
        onesided=bool(attr.get("onesided", 0)),
    )


def _transformed(build: Builder, data: Any, axis: int, length: int | None, *, inverse: bool, onesided: bool) -> Any:
    """The transform of complex or real values, whose parts lie along the last axis, along another axis.

    Args:
        length: to which the axis is cut or filled up with zeros; its own if None.
        inverse: whether it is the inverse transform; onesided, it gives real values of half of a spectrum.
        onesided: whether only the half of the spectrum is given that real values have.
    """
    shape, dtype = shape_of(data), dtype_of(data)
    rank, parts = len(shape), shape[-1]
    real = onesided and inverse
    count = length or (2 * (shape[axis] - 1) if real else shape[axis])
    given = min(shape[axis], count // 2 + 1 if real else count)
    if given < shape[axis]:
        data = build.strided_slice(data, axes=[axis], begin=[0], end=[given])
    # Parts and the axis last, as one: a product with a matrix for both then gives both.
    order = [place for place in range(rank - 1) if place != axis] + [axis, rank - 1]
    rows = build.reshape(build.permute(data, order), [*(shape[place] for place in order[:-2]), given * parts])
    wanted = count // 2 + 1 if onesided and not inverse else count
    turns = np.outer(np.arange(given), np.arange(wanted)) * (2 * np.pi / count)
    cosine, sine = np.cos(turns), np.sin(turns) * (1 if inverse else -1)
    if inverse:
        # What lies in the other half of the spectrum is the same again, but for its first and middle values.
        twice = np.array([1 if place in (0, count / 2) else 2 for place in range(given)]) if real else np.ones(given)
        cosine, sine = cosine * twice[:, None] / count, sine * twice[:, None] / count
    results = 1 if real else 2
    matrix = np.zeros((given, parts, wanted, results))
    matrix[:, 0, :, 0] = cosine
    if results == 2:
        matrix[:, 0, :, 1] = sine
    if parts == 2:
        matrix[:, 1, :, 0] = -sine
        if results == 2:
            matrix[:, 1, :, 1] = cosine
    product = build.matmul(rows, constant(matrix.reshape(given * parts, wanted * results), dtype))
    product = build.reshape(product, [*(shape[place] for place in order[:-2]), wanted, results])
    return build.permute(product, [order.index(place) for place in range(rank)])


def _stft(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """STFT with a constant step and length of frames."""
    signal, window = inputs[0], optional(inputs, 2)
    step, lengths = integers(inputs, 1), integers(inputs, 3)
    if step is None or (optional(inputs, 3) is not None and lengths is None):
        raise ModelError("the step or length of its frames depends on the network's input")
    build = Builder(importer)
    _, samples, parts = shape_of(signal) if len(shape_of(signal)) == 3 else (*shape_of(signal), 1)
    length = lengths[0] if lengths else shape_of(window)[0]
    begins = np.arange(1 + (samples - length) // step[0]) * step[0]
    frames = build.take(signal, begins[:, None] + np.arange(length), 1)
    frames = build.reshape(frames, [shape_of(signal)[0], len(begins), length, parts])
    if window is not None:
        frames = build.multiply(frames, build.reshape(window, [length, 1]))
    return _transformed(build, frames, 2, None, inverse=False, onesided=bool(attr.get("onesided", 1)))


TRANSLATIONS: dict[str, Translation] = {"DFT": _dft, "STFT": _stft}
