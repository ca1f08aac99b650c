"""Operators of ONNX in Relax, where TVM's importer lacks them, errs, or produces forms that the compiler cannot use.

TVM 0.27 turns `Clip`, `Max`, `Min`, `Sum` and `Pad` into chains of generic operators and opaque calls that stop
layout conversion and fusion. Here they become plain Relax operators. It knows others only as later opsets write them,
or not at all. The meaning of each is that of ONNX's Operators.md and Changelog.md.
"""
