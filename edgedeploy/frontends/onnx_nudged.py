"""A quantised network some of whose weights are larger by a bit: what rounding alone does to its outputs.

A value that lies at a half goes to one side or the other by the last bit of a sum in float. The reference's kernels for
integers and for floats show that where it has both. Layers that it has in float anyhow, because an activation or a sum
lies between them and their rounding, are computed by the same kernels both times.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from edgedeploy.frontends.onnx_functions import readers_of

# What the reference's kernels for integers have in them.
_BOUNDS = frozenset({"Relu", "Clip"})


def with_nudged_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model in which the weights of layers that are not rounded next are larger by a bit.

    The scale of a constant that DequantizeLinear reads becomes the next larger float, there and nowhere else. Constants
    of one axis, which are biases, stay what they are.
    """
    nudged = onnx.ModelProto()
    nudged.CopyFrom(model)
    constants = {each.name: each for each in nudged.graph.initializer}
    readers = readers_of(nudged)

    def is_rounded(tensor: str) -> bool:
        [reader, *others] = readers.get(tensor, [None])
        if reader is None or others:
            return False
        return reader.op_type == "QuantizeLinear" or (reader.op_type in _BOUNDS and is_rounded(reader.output[0]))

    for node in nudged.graph.node:
        if node.op_type != "DequantizeLinear" or not {*node.input[:2]} <= constants.keys():
            continue
        scale, layers = constants[node.input[1]], readers.get(node.output[0], [])
        if len(constants[node.input[0]].dims) < 2 or scale.data_type != onnx.TensorProto.FLOAT:
            continue
        if all(is_rounded(layer.output[0]) for layer in layers):
            continue
        name = f"{scale.name}.nudged"
        if name not in constants:
            larger = np.nextafter(numpy_helper.to_array(scale), np.float32(np.inf))
            constants[name] = numpy_helper.from_array(larger, name)
            nudged.graph.initializer.append(constants[name])
        node.input[1] = name
    return nudged
