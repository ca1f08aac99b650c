"""Counts of sequences in texts that are numbers already."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import constant, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx_operators.translation import Builder, Translation, text


def _tf_idf(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """TfIdfVectorizer over integers: how often each n-gram of a pool occurs, with up to some words left out."""
    if "pool_int64s" not in attr:
        raise ModelError("texts are not supported, only numbers")
    build, pool, begins = Builder(importer), np.array(attr["pool_int64s"]), [*attr["ngram_counts"]]
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
            # A single word has no words to leave out between its own.
            for step in range(1, 2 + (int(attr["max_skip_count"]) if n > 1 else 0)):
                places = np.arange(length - (n - 1) * step)[:, None] + np.arange(n) * step
                if len(places):
                    found = build.add(found, _occurrences(build, words, places, grams))
        counts.append(found)
    counted = importer.bb.normalize(relax.op.concat(counts, axis=1)) if len(counts) > 1 else counts[0]
    mode, weights = text(attr, "mode", "TF"), np.array(attr.get("weights", []), np.float32)
    if mode == "IDF":
        counted = build.cast(build.greater(counted, 0), "float32")
    if mode != "TF" and len(weights):
        counted = build.multiply(counted, weights)
    # Where each n-gram of the pool counts in the result.
    targets = np.array(attr["ngram_indexes"])
    matrix = np.zeros((len(targets), int(targets.max()) + 1), np.float32)
    matrix[np.arange(len(targets)), targets] = 1
    result = build.matmul(counted, matrix)
    return result if len(shape_of(data)) == 2 else build.reshape(result, [matrix.shape[1]])


def _occurrences(build: Builder, words: Any, places: np.ndarray, grams: np.ndarray) -> Any:
    """How often each n-gram (count, n) lies at one of the places (count, n) of some rows of words."""
    batch, (sites, n) = shape_of(words)[0], places.shape
    windows = build.reshape(build.take(words, places, 1), [batch, sites, 1, n])
    same = build.cast(build.equal(windows, grams.reshape(1, 1, -1, n)), "float32")
    return build.reduce("sum", build.reduce("min", same, [3]), [1])


TRANSLATIONS: dict[str, Translation] = {"TfIdfVectorizer": _tf_idf}
