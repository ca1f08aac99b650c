"""Operators of TensorFlow Lite in Relax, where TVM's importer lacks them, errs, or produces slow forms.

The meaning of each is that of LiteRT's reference kernels (`tflite/kernels/internal/reference`), and for custom
operators that of MediaPipe's (`mediapipe/util/tflite/operations`).
"""
