"""Roundings inside what the compiled code computes in one loop: a layer, its activation, and a sum or a product.

onnxruntime's quantiser rounds the result of every operator to bytes, since its own kernels compute one at a time.
Compiled code has the layer's sums in registers and goes on with them: without the roundings between it is quicker, and
more accurate.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx
import onnx.shape_inference

from edgedeploy.frontends.onnx_nodes import readers_of
from edgedeploy.quantisation.quantising import WEIGHTED

# Elementwise functions of one tensor.
_ACTIVATIONS = frozenset({"Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Sigmoid", "Tanh"})
_ELEMENTWISE = _ACTIVATIONS | {"Add", "Mul"}


@dataclass(frozen=True)
class _Pair:
    """A QuantizeLinear, and the only operator that reads it, its DequantizeLinear."""

    quantise: onnx.NodeProto
    dequantise: onnx.NodeProto


def without_inner_pairs(model: onnx.ModelProto, plain: onnx.ModelProto) -> onnx.ModelProto:
    """A network without the pairs between a quantised layer and what can be computed in the same loop.

    A pair is taken away behind a layer, or behind an activation or a sum in its loop, if one elementwise operator reads
    it, or the two of a product with its own activation: `x * sigmoid(x)`. What else that operator reads stays
    quantised: one loop has the sums of one layer. Pairs that bound values in the place of a ReLU or a clip stay.

    Args:
        model: the quantised network.
        plain: the float network that it was made of.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    makers = {name: node for node in graph.node for name in node.output}
    readers = readers_of(result)
    outputs = {value.name for value in graph.output}
    inferred = onnx.shape_inference.infer_shapes(model).graph.value_info
    shapes = {value.name: [size.dim_value for size in value.type.tensor_type.shape.dim] for value in inferred}
    pairs: dict[str, _Pair] = {}
    for node in graph.node:
        made = node.output[0] if node.output else ""
        if node.op_type == "QuantizeLinear" and len(readers.get(made, [])) == 1 and readers[node.input[0]] == [node]:
            [other] = readers[made]
            if other.op_type == "DequantizeLinear" and not outputs & {made, node.input[0], other.output[0]}:
                pairs[node.input[0]] = _Pair(node, other)
    # The layer in whose loop an operator is computed, by the name of the operator's result.
    loops: dict[str, str] = {}
    operators = {name: node.op_type for node in plain.graph.node for name in node.output}
    gone: list[onnx.NodeProto] = []
    for node in graph.node:
        name = node.output[0] if node.output else ""
        if node.op_type in WEIGHTED and _is_quantised(node, makers):
            loops[name] = name
        if name not in loops or name not in pairs or operators.get(name) != node.op_type:
            continue
        pair = pairs[name]
        following = readers.get(pair.dequantise.output[0], [])
        if not _goes_on(following, pair.dequantise.output[0], pairs, readers):
            continue
        results = [each.output[0] for each in following]
        if any(loops.get(each, loops[name]) != loops[name] or shapes.get(each) != shapes.get(name) for each in results):
            continue
        for each in following:
            loops[each.output[0]] = loops[name]
            for place, read in enumerate(each.input):
                if read == pair.dequantise.output[0]:
                    each.input[place] = name
        readers[name] = following
        gone += [pair.quantise, pair.dequantise]
    for node in gone:
        graph.node.remove(node)
    return result


def _is_quantised(layer: onnx.NodeProto, makers: dict[str, onnx.NodeProto]) -> bool:
    """Whether a layer's data and weights are bytes."""
    return all(name in makers and makers[name].op_type == "DequantizeLinear" for name in layer.input[:2])


def _goes_on(
    following: list[onnx.NodeProto], name: str, pairs: dict[str, _Pair], readers: dict[str, list[onnx.NodeProto]]
) -> bool:
    """Whether what reads a tensor is computed in one loop with it: one operator, or a gate and the product with it."""
    if len(following) == 1:
        return following[0].op_type in _ELEMENTWISE
    if len(following) != 2:
        return False
    gate, product = sorted(following, key=lambda node: node.op_type == "Mul")
    gated = gate.output[0]
    if gate.op_type not in _ACTIVATIONS or product.op_type != "Mul":
        return False
    inside = pairs[gated].dequantise.output[0] if gated in pairs else gated
    return set(product.input) == {name, inside} and readers[inside] == [product]
