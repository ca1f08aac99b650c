"""Operators of TensorFlow Lite in Relax, where TVM's importer lacks them, errs, or makes forms that are slow.

The meaning of each is that of LiteRT's reference kernels (`tflite/kernels/internal/reference`), and for custom
operators that of MediaPipe's (`mediapipe/util/tflite/operations`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgedeploy.frontends.tflite_operators import elementwise, indexing, mediapipe, products, weights, windows

# By the operator's name, what takes TVM's converter and the operator, and returns what it computes.
TRANSLATIONS: dict[str, Callable[[Any, Any], Any]] = {
    name: translation
    for module in (elementwise, indexing, mediapipe, products, weights, windows)
    for name, translation in module.TRANSLATIONS.items()
}
