"""Inputs of an ONNX model whose values the user fixes: they become constants, and are inputs no more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgedeploy.errors import InputError
from edgedeploy.frontends.format import Converted, Shapes, Values
from edgedeploy.frontends.onnx_functions import branches
from edgedeploy.frontends.onnx_values import reads

# By operator, the inputs that say what its results look like, or which branch is taken.
_DECIDING = {
    "ConstantOfShape": (0,), "Expand": (1,), "If": (0,), "Loop": (0, 1), "OneHot": (1,), "Pad": (1, 3),
    "Range": (0, 1, 2), "ReduceMax": (1,), "ReduceMean": (1,), "ReduceMin": (1,), "ReduceSum": (1,), "Reshape": (1,),
    "Resize": (1, 2, 3), "Slice": (1, 2, 3, 4), "Split": (1,), "Squeeze": (1,), "Tile": (1,), "TopK": (1,),
    "Unsqueeze": (1,),
}  # fmt: skip


def fixed_values(path: Path, graph: onnx.GraphProto, values: Values, shapes: Shapes) -> dict[str, np.ndarray]:
    """The values that a graph's inputs always have, as arrays of their dtypes and shapes.

    Args:
        path: the file that it comes from, for messages.
        graph: it.
        values: by input, one number, or as many as the input holds.
        shapes: by input, as the user gives them.

    Raises:
        InputError: there is no such input, it is of another type, or holds another number of values.
    """
    inputs = {value.name: value for value in graph.input}
    for name in values:
        if name not in inputs:
            raise InputError(f"{path} has no input {name!r} to set", why=f"its inputs: {', '.join(inputs)}")
    if inputs.keys() <= values.keys() and values:
        raise InputError(f"{path} would have no input left", hints=["set those alone whose values never change"])
    typed = {name: _typed(path, inputs[name], value) for name, value in values.items()}
    return {name: _shaped(path, inputs[name], array, shapes.get(name)) for name, array in typed.items()}


def with_own_inputs(converted: Converted) -> onnx.ModelProto:
    """The model for those that are to run or draw the network: of its own inputs alone; it is changed in place.

    onnxruntime 1.31 crashes on some models whose `If` a constant decides, so branches are put in its place.
    """
    if not converted.values:
        return converted.model
    from edgedeploy.frontends.onnx_folding import folded

    return folded(with_values(converted.model, converted.values))


def with_values(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with constants in the place of inputs; it is changed in place."""
    graph = model.graph
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())
    for value in [each for each in graph.input if each.name in values]:
        graph.input.remove(value)
    if values:
        # What the file states of later shapes may belong to other values.
        del graph.value_info[:]
        for output in graph.output:
            output.type.tensor_type.ClearField("shape")
    return model


def _typed(path: Path, stated: onnx.ValueInfoProto, value: object) -> np.ndarray:
    """Values as an array of an input's dtype, which holds them exactly or, of floats, rounds them."""
    name, dtype = stated.name, helper.tensor_dtype_to_np_dtype(stated.type.tensor_type.elem_type)
    given = np.asarray(value)
    if given.dtype.kind in "biuf" and given.size:
        exact = given.dtype.kind == "b" if dtype.kind == "b" else given.dtype.kind != "b"
        with np.errstate(all="ignore"):
            typed = given.astype(dtype)
        # As Python's numbers: what wraps around comes back as it was in numpy's.
        if exact and (
            dtype.name.startswith(("float", "bfloat")) or (typed.astype(object) == given.astype(object)).all()
        ):
            return typed
    raise InputError(
        f"{path}: input {name!r} cannot be set to {value!r}",
        why=f"it is of {dtype.name}",
        hints=[f"give it {'true or false' if dtype.kind == 'b' else 'numbers of that type'}"],
    )


def _shaped(path: Path, stated: onnx.ValueInfoProto, array: np.ndarray, given: Sequence[int] | None) -> np.ndarray:
    """Values in an input's shape, one free dimension of which they may fill."""
    tensor = stated.type.tensor_type
    shape = [dimension.dim_value or -1 for dimension in tensor.shape.dim] if given is None else list(given)
    if not tensor.HasField("shape"):
        return array
    known = [size for size in shape if size != -1]
    free, fixed = shape.count(-1), math.prod(known)
    if free and not array.ndim and array.size == fixed:
        shape, free = [max(size, 1) for size in shape], 0
    if free > 1 or min(known, default=1) < 1 or (array.size % fixed if free else array.size != fixed):
        sizes = ",".join("?" if size < 0 else str(size) for size in shape)
        raise InputError(
            f"{path}: input {stated.name!r} cannot be set to {array.size} values",
            why=f"its shape is {sizes or 'that of one number'}",
            hints=["separate values by commas; --input-shape gives it a shape"],
        )
    return array.reshape(shape)


def hints_to_set(graph: onnx.GraphProto, name: str) -> list[str]:
    """What to say of the node of a name if its shapes, or whether it is reached, hang on the values of inputs."""
    deciding = [
        node.input[place]
        for node in graph.node
        if node.name == name or any(_holds(branch, name) for branch in branches(node))
        for place in _DECIDING.get(node.op_type, ())
        if place < len(node.input)
    ]
    makers = {output: each for each in graph.node for output in each.output}
    found, pending, inputs = set[str](), list(filter(None, deciding)), {value.name for value in graph.input}
    while pending:
        value = pending.pop()
        if value not in found:
            found.add(value)
            pending.extend(reads(makers[value]) if value in makers else ())
    names = sorted(found & inputs)
    return [f"if {each} always has the same value, fix it: --set {each}=VALUE" for each in names]


def _holds(graph: onnx.GraphProto, name: str) -> bool:
    """Whether a node of a name is in a graph, at any depth."""
    return any(node.name == name or any(_holds(each, name) for each in branches(node)) for node in graph.node)
