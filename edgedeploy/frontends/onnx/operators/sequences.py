"""Operators on sequences: Fourier transforms, as products with a matrix, and counts of n-grams."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgedeploy.compile.ir.expressions import constant, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.translation import Builder, Translation, dtype_of, integers, optional, text


def _dft(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """DFT; its axis is an attribute up to opset 19, then an input."""
    lengths = integers(inputs, 1)
    axes = integers(inputs, 2) if build.importer.opset >= 20 else [int(attr.get("axis", 1))]
    if any(optional(inputs, index) is not None and integers(inputs, index) is None for index in (1, 2)):
        raise ModelError("its length or axis depends on the network's input")
    axis = (axes[0] if axes else -2) % len(shape_of(inputs[0]))
    inverse, onesided = (bool(attr.get(name, 0)) for name in ("inverse", "onesided"))
    return _transformed(build, inputs[0], axis, lengths[0] if lengths else None, inverse=inverse, onesided=onesided)


def _transformed(build: Builder, data: Any, axis: int, length: int | None, *, inverse: bool, onesided: bool) -> Any:
    """The transform along an axis of complex or real values, whose parts are along the last axis.

    The axis is cut or filled up with zeros to a `length`, if there is one. `onesided` stands for the half of a spectrum
    that real values have; the inverse transform gives real values then.
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
        # The other half of the spectrum is the same again, except for its first and middle values.
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


def _stft(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """STFT with a constant step and length of frames."""
    signal, window = inputs[0], optional(inputs, 2)
    step, lengths = integers(inputs, 1), integers(inputs, 3)
    if step is None or (optional(inputs, 3) is not None and lengths is None):
        raise ModelError("the step or length of its frames depends on the network's input")
    _, samples, parts = shape_of(signal) if len(shape_of(signal)) == 3 else (*shape_of(signal), 1)
    length = lengths[0] if lengths else shape_of(window)[0]
    begins = np.arange(1 + (samples - length) // step[0]) * step[0]
    frames = build.take(signal, begins[:, None] + np.arange(length), 1)
    frames = build.reshape(frames, [shape_of(signal)[0], len(begins), length, parts])
    if window is not None:
        frames = build.multiply(frames, build.reshape(window, [length, 1]))
    return _transformed(build, frames, 2, None, inverse=False, onesided=bool(attr.get("onesided", 1)))


def _tf_idf(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """TfIdfVectorizer over integers: how often each n-gram of a pool occurs, with some words skipped between."""
    if "pool_int64s" not in attr:
        raise ModelError("texts are not supported, only numbers")
    pool, begins = np.array(attr["pool_int64s"]), [*attr["ngram_counts"]]
    data = inputs[0]
    words = build.cast(data if len(shape_of(data)) == 2 else build.reshape(data, [1, *shape_of(data)]), "int64")
    batch, length = shape_of(words)
    counts = []
    for n, (begin, end) in enumerate(zip(begins, [*begins[1:], len(pool)], strict=True), 1):
        grams = pool[begin:end].reshape(-1, n)
        if not len(grams):
            continue
        found = constant(np.zeros((batch, len(grams))), "float32")
        if attr["min_gram_length"] <= n <= attr["max_gram_length"]:
            # A single word has no words to skip between its own.
            for step in range(1, 2 + (int(attr["max_skip_count"]) if n > 1 else 0)):
                places = np.arange(length - (n - 1) * step)[:, None] + np.arange(n) * step
                if len(places):
                    found = build.add(found, _occurrences(build, words, places, grams))
        counts.append(found)
    counted = build.concat(counts, axis=1) if len(counts) > 1 else counts[0]
    mode, weights = text(attr, "mode", "TF"), np.array(attr.get("weights", []), np.float32)
    if mode == "IDF":
        counted = build.cast(build.greater(counted, 0), "float32")
    if mode != "TF" and len(weights):
        counted = build.multiply(counted, weights)
    targets = np.array(attr["ngram_indexes"])  # where each n-gram of the pool counts in the result
    matrix = np.zeros((len(targets), int(targets.max()) + 1), np.float32)
    matrix[np.arange(len(targets)), targets] = 1
    result = build.matmul(counted, matrix)
    return result if len(shape_of(data)) == 2 else build.reshape(result, [matrix.shape[1]])


def _occurrences(build: Builder, words: Any, places: np.ndarray, grams: np.ndarray) -> Any:
    """How often each n-gram (count, n) is at one of the places (count, n) in rows of words."""
    batch, (sites, n) = shape_of(words)[0], places.shape
    windows = build.reshape(build.take(words, places, 1), [batch, sites, 1, n])
    same = build.cast(build.equal(windows, grams.reshape(1, 1, -1, n)), "float32")
    return build.reduce("sum", build.reduce("min", same, [3]), [1])


TRANSLATIONS: dict[str, Translation] = {"DFT": _dft, "STFT": _stft, "TfIdfVectorizer": _tf_idf}
