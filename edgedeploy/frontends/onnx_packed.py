"""Products with weights of 8 bits or less, several in a byte and with a scale for each block, written out in float.

The weights are constants, so that what unpacks them is done once, when the network is imported. MatMulNBits:
onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnx import TensorProto

from edgedeploy.frontends.onnx_written import Writer, Written

_BYTE = 8


def _product(written: Written) -> Sequence[str] | None:
    """MatMulNBits: a, b of outputs x blocks x bytes, scales, zero points, order of groups, bias; bytes begin low."""
    given, packed = written.attributes, written.inputs[1]
    bits, block, inputs, outputs = (given.get(name, 0) for name in ("bits", "block_size", "K", "N"))
    if bits not in (2, 4, 8) or min(block, inputs, outputs) < 1 or written.given(4):
        return None
    blocks = math.ceil(inputs / block)
    values = _unpacked(written, packed, bits, [outputs, blocks, block])
    values = written.add("Sub", values, _zero_points(written, bits, outputs, blocks))
    values = written.add("Mul", values, _shaped(written, written.inputs[2], [outputs, blocks, 1]))
    rows = written.add("Reshape", values, written.weight([outputs, blocks * block]))
    rows = written.add("Slice", rows, written.weight([0]), written.weight([inputs]), written.weight([1]))
    matrix = written.add("Cast", written.add("Transpose", rows, perm=[1, 0]), to=written.type(written.inputs[0]))
    made = written.add("MatMul", written.inputs[0], matrix)
    return [written.add("Add", made, written.given(5)) if written.given(5) else made]


def _zero_points(written: Written, bits: int, outputs: int, blocks: int) -> str:
    """One for each block; the middle of the range where none are given."""
    zeros, shape = written.given(3), [outputs, blocks, 1]
    if not zeros:
        return written.weight(2 ** (bits - 1), dtype="float32")
    if written.type(zeros) != TensorProto.UINT8:
        return _shaped(written, zeros, shape)
    whole = math.ceil(blocks * bits / _BYTE) * _BYTE // bits
    found = _unpacked(written, zeros, bits, [outputs, whole])
    found = written.add("Slice", found, written.weight([0]), written.weight([blocks]), written.weight([1]))
    return written.add("Reshape", found, written.weight(shape))


def _unpacked(written: Written, packed: str, bits: int, shape: Sequence[int]) -> str:
    """The integers that bytes hold, the lowest bits first, as float32 in a shape."""
    count = _BYTE // bits
    data = _shaped(written, packed, [*shape[:-1], math.ceil(shape[-1] / count), 1])
    left = [data]
    for _ in range(1, count):
        shifted = written.add("Mul", left[-1], written.weight(2.0**-bits, dtype="float32"))
        left.append(written.add("Floor", shifted))
    above = [written.add("Mul", each, written.weight(2.0**bits, dtype="float32")) for each in left[1:]]
    parts = [written.add("Sub", each, more) for each, more in zip(left, above, strict=False)] + left[-1:]
    return written.add("Reshape", written.add("Concat", *parts, axis=-1), written.weight(shape))


def _shaped(written: Written, value: str, shape: Sequence[int]) -> str:
    return written.add("Reshape", written.add("Cast", value, to=TensorProto.FLOAT), written.weight(shape))


PACKED_CONTRIB: dict[str, Writer] = {"MatMulNBits": _product}
