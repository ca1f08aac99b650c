"""Operators of TensorFlow Lite in Relax, where TVM's importer lacks them, errs, or produces slow forms.

The meaning of each is that of LiteRT's reference kernels (`tflite/kernels/internal/reference`), and for custom
operators that of MediaPipe's (`mediapipe/util/tflite/operations`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgedeploy.frontends.tflite import recurrent as tflite_recurrent
from edgedeploy.frontends.tflite.operators import basic, mediapipe, windows

# Functions of TVM's converter and the operator, by the operator's name; they return what it computes.
TRANSLATIONS: dict[str, Callable[[Any, Any], Any]] = {
    name: translation
    for module in (basic, mediapipe, tflite_recurrent, windows)
    for name, translation in module.TRANSLATIONS.items()
}
