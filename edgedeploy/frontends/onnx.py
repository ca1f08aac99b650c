"""The ONNX frontend: reads a file, fixes its shapes, and imports it through TVM's own importer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, numpy_helper

from edgedeploy.errors import InputError, ModelError, OpenShapeError
from edgedeploy.files import is_file
from edgedeploy.frontends.converted import ConvertedFormat
from edgedeploy.frontends.format import (
    AS_THE_FILE_SAYS,
    HEAD_BYTES,
    Converted,
    ImportOptions,
    Shapes,
    check_given_shapes,
)
from edgedeploy.frontends.onnx_batch import change_batch
from edgedeploy.frontends.onnx_functions import opset_of
from edgedeploy.frontends.onnx_layout import put_time_first
from edgedeploy.frontends.onnx_settings import fixed_values, with_values
from edgedeploy.frontends.onnx_widened import widen
from edgedeploy.heads import loaded
from edgedeploy.metadata import kept
from edgedeploy.network import Network

# Fields of ModelProto (onnx.proto) by number, with the wire type of each: 0 is a number, 2 is bytes of a length.
_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_VERSION, _GRAPH = 1, 7
# Fields of GraphProto, all of them bytes of a length.
_GRAPH_FIELDS = {1, 2, 5, 10, 11, 12, 13, 14, 15, 16}

_LARGEST = 2**31 - 1  # of a dimension, and of a tensor's values


class Onnx(ConvertedFormat):
    """ONNX itself: one file, perhaps with others for large weights."""

    name = "ONNX"
    suffixes = (".onnx",)
    sets_inputs = True

    def recognises(self, head: bytes) -> bool:
        """Whether its fields are ModelProto's as far as they are shown, up to the first of the graph's own."""
        place, versioned = 0, False
        while place < len(head):
            tag, place = _number(head, place)
            field, wire = tag >> 3, tag & 7
            if _FIELDS.get(field) != wire:
                return False
            value, place = _number(head, place)
            if field == _GRAPH:
                inner, _ = _number(head, place)
                return value > 0 and inner & 7 == 2 and inner >> 3 in _GRAPH_FIELDS
            versioned |= field == _VERSION
            place += value if wire else 0
        # A field before the graph, such as a licence in doc_string, may be longer than what is shown.
        return versioned and place > len(head) == HEAD_BYTES

    def files(self, path: Path, options: ImportOptions = AS_THE_FILE_SAYS) -> list[Path]:
        """The file, and those with weights outside of it that are there; `convert` says what is missing."""
        return [path, *external_files(path)]

    def convert(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Converted:
        """The model with fixed shapes and without habits of old exporters."""
        model = _load(files[0])
        values = fixed_values(files[0], model.graph, options.values, shapes)
        if options.lengths:
            return Converted(_with_lengths(files[0], model, shapes, values, options.lengths), metadata=_metadata(model))
        if not values:
            metadata = _metadata(model)
            return Converted(fixed(files[0], model, shapes), loaded(metadata), metadata=metadata)
        # onnxruntime infers the shapes of both branches of an `If`, one of which may not suit the shapes of inputs.
        stated = _runnable(onnx.ModelProto.FromString(model.SerializeToString()))
        shapes = {**shapes, **{name: array.shape for name, array in values.items()}}
        return Converted(fixed(files[0], model, shapes), metadata=_metadata(stated), values=values, stated=stated)

    def read(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Network:
        """Import a network; see `Format.read`. An error names the sizes that were given in the place of its own."""
        try:
            return super().read(files, shapes, options)
        except ModelError as error:
            for name, axis, size in _own_sizes(files[0], shapes):
                given = shapes[name]
                fitting = ",".join(map(str, [*given[:axis], size, *given[axis + 1 :]]))
                hint = f"dimension {axis} of input {name!r} is {size} in the network, and {given[axis]} was given: "
                hints = [f"{hint}--input-shape {name}:{fitting}", *error.hints]
                raise ModelError(error.what, why=error.why, hints=hints) from error
            raise

    def metadata(self, files: Sequence[Path]) -> Mapping[str, str]:
        """Its `metadata_props`."""
        return _metadata(_load(files[0]))


FORMAT = Onnx()


def read_onnx(path: Path, shapes: Shapes | None = None) -> Network:
    """Import the network of an ONNX file; arguments and errors are those of `Format.read`."""
    return FORMAT.read([path], shapes or {})


def fixed(path: Path, model: onnx.ModelProto, shapes: Shapes) -> onnx.ModelProto:
    """The model with fixed shapes of inputs, as every program can read it; it is changed in place.

    Args:
        path: the file that it comes from.
        model: the model.
        shapes: as `Format.read` takes them. A free first dimension is one image if nothing is said.

    Raises:
        InputError: a shape was given for no input, does not fit, or is missing.
    """
    _fix_shapes(path, model.graph, shapes)
    return _runnable(model)


def _with_lengths(
    path: Path, model: onnx.ModelProto, shapes: Shapes, values: Mapping[str, np.ndarray], lengths: Mapping[str, int]
) -> onnx.ModelProto:
    """The model with inputs that say how much of others counts; it is changed in place."""
    from edgedeploy.frontends.onnx_lengths import with_length

    shapes = {**shapes, **{name: array.shape for name, array in values.items()}}
    model = with_values(fixed(path, model, shapes), values)
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in model.graph.input}
    for name, axis in lengths.items():
        if not 0 <= axis < ranks.get(name, 0):
            raise InputError(
                f"{path}: axis {axis} of input {name!r} cannot have a length",
                why="there is no such input" if name not in ranks else f"it has {ranks[name]} axes",
                hints=[f"inputs: {', '.join(ranks)}"],
            )
        model = with_length(model, name, axis)
    return model


def _runnable(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without what some program cannot read; it is changed in place."""
    _keep_one_of_scales_and_sizes(model)
    put_time_first(model.graph)
    return model


def _number(head: bytes, place: int) -> tuple[int, int]:
    """A protobuf varint, and the place behind it."""
    value = 0
    for shift, byte in enumerate(head[place : place + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, place + shift + 1
    return value, len(head) + 1


def external_files(path: Path) -> list[Path]:
    """The files beside an ONNX file that hold weights of it, as far as they are there."""
    return [file for file in _external(path) if is_file(file)]


def _external(path: Path) -> list[Path]:
    """The files beside an ONNX file that it states to hold weights of it."""
    # Whoever keeps weights outside of an ONNX file states their location in it.
    if b"location" not in path.read_bytes():
        return []
    try:
        model = onnx.load(path, load_external_data=False)
        outside = filter(onnx.external_data_helper.uses_external_data, model.graph.initializer)
        locations = {onnx.external_data_helper.ExternalDataInfo(tensor).location for tensor in outside}
    except (OSError, ValueError, DecodeError):
        return []  # `convert` says what is wrong
    return [path.parent / location for location in sorted(locations)]


def _incomplete(path: Path, error: Exception) -> ModelError:
    return ModelError(
        f"{path} is not a complete ONNX file",
        why=str(error) or type(error).__name__,
        hints=["check the file's size and checksum; it may be truncated or of another format"],
    )


def _load(path: Path) -> onnx.ModelProto:
    try:
        model = onnx.load(path)
    except FileNotFoundError as error:
        raise ModelError(f"there is no file {path}") from error
    except onnx.checker.ValidationError as error:
        missing = [file for file in _external(path) if not is_file(file)]
        if not missing:
            raise _incomplete(path, error) from error
        names = ", ".join(file.name for file in missing)
        raise ModelError(
            f"{path} has no weights",
            why=f"its exporter wrote them into {names} beside it, which is not there",
            hints=[f"put {names} beside it", "export it into one file: torch.onnx.export(..., external_data=False)"],
        ) from error
    except (OSError, ValueError, DecodeError) as error:
        raise _incomplete(path, error) from error
    if not model.graph.node or not model.graph.output:
        raise ModelError(f"{path} is not a complete ONNX file", why="it has no nodes or no outputs")
    widen(model)
    # Old exporters list the weights among the inputs.
    weights = {weight.name for weight in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    for value in inputs:
        numbers = value.type.WhichOneof("value") == "tensor_type"
        if not numbers or value.type.tensor_type.elem_type in (TensorProto.UNDEFINED, TensorProto.STRING):
            raise ModelError(f"{path}: input {value.name!r} cannot be imported", why="it is not a tensor of numbers")
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model


def _metadata(model: onnx.ModelProto) -> dict[str, str]:
    return kept((entry.key, entry.value) for entry in model.metadata_props)


def _fix_shapes(path: Path, graph: onnx.GraphProto, shapes: Shapes) -> None:
    """Write the shapes into the graph's inputs."""
    check_given_shapes(path, shapes, [value.name for value in graph.input])
    changed, batches = False, set[tuple[int, int]]()
    # Old exporters write 0 for what they do not know, of outputs too.
    whole = all(_stated(value) and min(_stated(value)) > 0 for value in graph.output)
    for value in graph.input:
        dimensions = value.type.tensor_type.shape.dim
        stated = _stated(value)
        empty = (
            whole and all(dimension.HasField("dim_value") for dimension in dimensions) and min(stated, default=1) == 0
        )
        shape = stated if empty and value.name not in shapes else _shape_of(path, value, shapes.get(value.name))
        if math.prod(shape) > _LARGEST:
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
            change_batch(graph, before, after)
        # What the file states of later shapes belongs to the old input shapes.
        del graph.value_info[:]
        for value in graph.output:
            value.type.tensor_type.ClearField("shape")


def _own_sizes(path: Path, shapes: Shapes) -> list[tuple[str, int, int]]:
    """Input, axis and size of each dimension that a network fixes and was given otherwise, those of batches last."""
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except (OSError, ValueError, DecodeError):
        return []
    filters = {weight.name: weight.dims for weight in graph.initializer if len(weight.dims) > 2}
    found: list[tuple[str, int, int]] = []
    batches: list[tuple[str, int, int]] = []
    for value in graph.input:
        given = shapes.get(value.name)
        if given is None:
            continue
        own = _stated(value) or [0] * len(given)
        for node in graph.node:
            if node.op_type == "Conv" and node.input[0] == value.name and node.input[1] in filters:
                groups = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
                own[1] = filters[node.input[1]][1] * groups
        for axis, (size, wanted) in enumerate(zip(own, given, strict=False)):
            if size > 0 and size != wanted:
                (batches if axis == 0 else found).append((value.name, axis, size))
    return [*found, *batches]


def _stated(value: onnx.ValueInfoProto) -> list[int]:
    """The sizes that a file states of a tensor, 0 for one that it does not."""
    return [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]


def _shape_of(path: Path, value: onnx.ValueInfoProto, given: Sequence[int] | None) -> Sequence[int]:
    """The shape that an input is to have: as given, or as stated with a batch of one."""
    dimensions = value.type.tensor_type.shape.dim
    stated = ",".join(str(dimension.dim_value or dimension.dim_param or "?") for dimension in dimensions)
    unknown = not value.type.tensor_type.HasField("shape")
    if unknown and given is None:
        raise OpenShapeError(
            f"{path}: the file does not say how many dimensions input {value.name!r} has",
            input=value.name,
            hints=[f"give it a shape: --input-shape {value.name}:1,3,224,224"],
        )
    if given is not None:
        if len(given) != len(dimensions) and not unknown:
            raise InputError(
                f"{path}: the shape of input {value.name!r} does not fit",
                why=f"{','.join(map(str, given))} was given, the network says {stated}",
            )
        return given
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


# As of this opset Resize may leave out its region and its scales.
_OPTIONAL_SCALES = 13


def _keep_one_of_scales_and_sizes(model: onnx.ModelProto) -> None:
    """Resize takes scales or sizes; some exporters write both, which TVM refuses. The sizes are exact.

    Before opset 13 scales that do not count are empty, and may not be left out, as some exporters do all the same.
    """
    graph, empty = model.graph, ""
    for node in graph.node:
        if node.op_type != "Resize" or len(node.input) != 4 or not node.input[3]:
            continue
        if opset_of(model) < _OPTIONAL_SCALES and not empty:
            empty = "edgedeploy/no scales"
            graph.initializer.append(numpy_helper.from_array(np.zeros(0, np.float32), empty))
        node.input[2] = empty
        node.input[1] = node.input[1] or empty
