"""The inputs of ONNX models: fixed shapes, another batch, and values that make constants of inputs (`--set`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import helper, numpy_helper

from edgedeploy.errors import InputError, ModelError, OpenShapeError
from edgedeploy.frontends.format import MOST_ELEMENTS, Converted, Shapes, Values, check_given_shapes, unfit_shape
from edgedeploy.frontends.onnx.nodes import attributes_of, every_node, reads

_SHAPES = {"Reshape": 1, "Resize": 3}  # the input of each operator that states the shape of its result

# The inputs of operators that decide the shape of the result, or which branch is taken.
_DECIDING = {
    "ConstantOfShape": (0,), "Expand": (1,), "If": (0,), "Loop": (0, 1), "OneHot": (1,), "Pad": (1, 3),
    "Range": (0, 1, 2), "ReduceMax": (1,), "ReduceMean": (1,), "ReduceMin": (1,), "ReduceSum": (1,), "Reshape": (1,),
    "Resize": (1, 2, 3), "Slice": (1, 2, 3, 4), "Split": (1,), "Squeeze": (1,), "Tile": (1,), "TopK": (1,),
    "Unsqueeze": (1,),
}  # fmt: skip


def fix_shapes(path: Path, graph: onnx.GraphProto, shapes: Shapes) -> None:
    """Write shapes into the inputs of a graph of a file; a free first dimension is one image by default."""
    check_given_shapes(path, shapes, [value.name for value in graph.input])
    changed, batches = False, set[tuple[int, int]]()
    # Old exporters write 0 for unknown sizes, of outputs too.
    whole = all(_stated(value) and min(_stated(value)) > 0 for value in graph.output)
    for value in graph.input:
        dimensions = value.type.tensor_type.shape.dim
        stated = _stated(value)
        known = all(dimension.HasField("dim_value") for dimension in dimensions)
        empty = whole and known and min(stated, default=1) == 0
        shape = stated if empty and value.name not in shapes else _shape_of(path, value, shapes.get(value.name))
        if math.prod(shape) > MOST_ELEMENTS:
            sizes = ",".join(map(str, shape))
            raise ModelError(f"{path}: input {value.name!r} is larger than any memory", why=f"its shape is {sizes}")
        del dimensions[:]
        for size in shape:
            dimensions.add(dim_value=size)
        changed |= list(shape) != stated
        batches.add((stated[0], shape[0]) if stated else (0, 0))
    if changed:
        [(before, after), *others] = batches
        if before != after and not others and before > 0:
            _change_batch(graph, before, after)
        _forget_shapes(graph)


def own_sizes(path: Path, shapes: Shapes) -> list[tuple[str, int, int]]:
    """Input, axis and size of each dimension that a network fixes and `shapes` changes, batches last."""
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except (OSError, ValueError, DecodeError):
        return []
    filters = {weight.name: weight.dims for weight in graph.initializer if len(weight.dims) > 2}
    found: list[tuple[str, int, int]] = []
    for value in graph.input:
        given = shapes.get(value.name)
        if given is None:
            continue
        own = _stated(value) or [0] * len(given)
        for node in graph.node:
            if node.op_type == "Conv" and node.input[0] == value.name and node.input[1] in filters:
                own[1] = filters[node.input[1]][1] * attributes_of(node).get("group", 1)
        for axis, (size, wanted) in enumerate(zip(own, given, strict=False)):
            if size > 0 and size != wanted:
                found.append((value.name, axis, size))
    return sorted(found, key=lambda each: each[1] == 0)


def _stated(value: onnx.ValueInfoProto) -> list[int]:
    """The sizes that a file states for a tensor, 0 for unknown ones."""
    return [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]


def _shape_of(path: Path, value: onnx.ValueInfoProto, given: Sequence[int] | None) -> Sequence[int]:
    """The shape of an input: as given, or as the file states it with a batch of one."""
    dimensions = value.type.tensor_type.shape.dim
    stated = ",".join(str(dimension.dim_value or dimension.dim_param or "?") for dimension in dimensions)
    unknown = not value.type.tensor_type.HasField("shape")
    if given is not None:
        if len(given) != len(dimensions) and not unknown:
            raise unfit_shape(path, value.name, given, f", the network states {stated}")
        return given
    if unknown:
        raise OpenShapeError(
            f"{path}: the file does not state how many dimensions input {value.name!r} has",
            input=value.name,
            hints=[f"give it a shape: --input-shape {value.name}:1,3,224,224"],
        )
    shape = [dimension.dim_value for dimension in dimensions]
    if shape and shape[0] < 1:
        shape[0] = 1
    if min(shape, default=1) < 1:
        example = ",".join(str(size if size > 0 else 224) for size in shape)
        raise OpenShapeError(
            f"{path}: input {value.name!r} has free dimensions",
            input=value.name,
            why=f"its shape is {stated}",
            hints=[f"give it a shape: --input-shape {value.name}:{example}"],
        )
    return shape


def _change_batch(graph: onnx.GraphProto, before: int, after: int) -> None:
    """Write the inputs' batch `after` into constants that state shapes for `before`; the graph is changed in place.

    An exporter writes the batch into constants, such as the `[1, 1001]` of a Reshape. Only shapes of values that depend
    on the inputs change, and only their first dimension. The caller checks whether that was the batch: `[12, 197, 64]`
    may be heads of attention, or images.
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
    """A shape for another batch: 0 copies a dimension, and -1 stands for the rest."""
    first, *rest = shape or [0]
    # The first dimension may be the heads of all images: the number of values must follow.
    if first > 0 and (first == before or (min(shape) > 0 and first % before == 0)):
        return [first // before * after, *rest]
    return list(shape)


def fixed_values(path: Path, graph: onnx.GraphProto, values: Values, shapes: Shapes) -> dict[str, np.ndarray]:
    """The values that a graph's inputs always have, as arrays of their dtypes and shapes.

    For each input, one number is given, or as many as the input holds.
    """
    inputs = {value.name: value for value in graph.input}
    for name in values:
        if name not in inputs:
            raise InputError(f"{path} has no input {name!r} to set", why=f"its inputs: {', '.join(inputs)}")
    if inputs.keys() <= values.keys() and values:
        raise InputError(f"{path} would have no input left", hints=["set only those whose values never change"])
    typed = {name: _typed(path, inputs[name], value) for name, value in values.items()}
    return {name: _shaped(path, inputs[name], array, shapes.get(name)) for name, array in typed.items()}


def with_own_inputs(converted: Converted) -> onnx.ModelProto:
    """The model to run or draw, without the inputs that have values; it is changed in place.

    onnxruntime 1.31 crashes on some models whose `If` a constant decides, so these are folded.
    """
    if not converted.values:
        return converted.model
    from edgedeploy.frontends.onnx.folding import folded

    return folded(with_values(converted.model, converted.values))


def with_values(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with constants instead of inputs; it is changed in place."""
    graph = model.graph
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())
    for value in [each for each in graph.input if each.name in values]:
        graph.input.remove(value)
    if values:
        _forget_shapes(graph)
    return model


def _forget_shapes(graph: onnx.GraphProto) -> None:
    """Drop the shapes that a file states behind the inputs: they may belong to other shapes or values of inputs."""
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")


def _typed(path: Path, stated: onnx.ValueInfoProto, value: object) -> np.ndarray:
    """Values as an array of an input's dtype: exact, or rounded if it is a float."""
    name, dtype = stated.name, helper.tensor_dtype_to_np_dtype(stated.type.tensor_type.elem_type)
    given = np.asarray(value)
    if given.dtype.kind in "biuf" and given.size:
        exact = given.dtype.kind == "b" if dtype.kind == "b" else given.dtype.kind != "b"
        with np.errstate(all="ignore"):
            typed = given.astype(dtype)
        is_float = dtype.name.startswith(("float", "bfloat"))
        # Compared as Python's numbers: numpy's would wrap around again.
        if exact and (is_float or (typed.astype(object) == given.astype(object)).all()):
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
    """Hints for a node whose shapes, or whether it runs, depend on the values of inputs."""
    deciding = [
        node.input[place]
        for node in graph.node
        if any(each.name == name for each in every_node([node]))
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
    return [f"if {each} always has the same value, fix it: --set {each}=VALUE" for each in sorted(found & inputs)]
