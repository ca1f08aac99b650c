"""Batches of another size than the one that an exporter wrote into constants, such as the `[1, 1001]` of a Reshape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import numpy_helper

# The input of each operator that states the shape of its result.
_SHAPES = {"Reshape": 1, "Resize": 3}


def change_batch(graph: onnx.GraphProto, before: int, after: int) -> None:
    """Write another batch into the constants that state shapes; the graph is changed in place.

    Only shapes of what depends on the inputs are meant, and only their first dimension. Whether that was the batch
    is for the caller to check: `[12, 197, 64]` may be heads of attention, or the images of another batch.

    Args:
        graph: a network whose inputs have been given the batch `after`.
        before: the batch that it was written for.
        after: the batch that it is to have.
    """
    constants = {weight.name: weight for weight in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            constants[node.output[0]] = node.attribute[0].t
    of_inputs = {value.name for value in graph.input}
    made: dict[tuple[int, ...], str] = {}
    for node in graph.node:
        if of_inputs.isdisjoint(node.input):
            continue
        of_inputs.update(node.output)
        place = _SHAPES.get(node.op_type, len(node.input))
        if place >= len(node.input) or node.input[place] not in constants:
            continue
        stated: list[int] = numpy_helper.to_array(constants[node.input[place]]).ravel().tolist()
        shape = tuple(_with_batch(stated, before, after))
        if list(shape) == stated:
            continue
        if shape not in made:
            made[shape] = f"edgedeploy/batch of {after}/{len(made)}"
            graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), made[shape]))
        node.input[place] = made[shape]


def _with_batch(shape: Sequence[int], before: int, after: int) -> list[int]:
    """A shape for another batch: 0 copies a dimension, and -1 stands for what is left."""
    if not shape or shape[0] < 1:
        return list(shape)
    first, *rest = shape
    if first == before:
        return [after, *rest]
    # Such as the heads of all images in one dimension: the number of values must follow.
    if min(shape) > 0 and first % before == 0:
        return [first // before * after, *rest]
    return list(shape)
